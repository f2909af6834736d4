"""A child process that answers one question after another, so that an index is opened once and not a row."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from indexmill.jobs.bench.common.process import failed

#: Seconds that a child has to end by itself once nothing more is asked.
_END_SECONDS = 10
#: Until when each child that answered may still keep cores busy.
_restless: dict[int, float] = {}


class Session:
    """A child that reads a JSON line for each question and answers with another one (see `serving`).

    Parameters
    ----------
    command : sequence
        Its arguments are turned into text.
    log : Path
        Where its standard error goes.

    Attributes
    ----------
    rest_s : float
        How long its idle threads may go on spinning after an answer; other children are asked later.
    """

    def __init__(self, command: Sequence[object], log: Path) -> None:
        self.log, self.rest_s = log, 0.0
        self.command = [str(part) for part in command]
        with open(log, "wb") as file:
            self.child = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )

    def send(self, **question: Any) -> None:
        """Ask without waiting for the answer."""
        assert self.child.stdin is not None
        others = [until for pid, until in _restless.items() if pid != self.child.pid]
        time.sleep(max([0.0, *(until - time.monotonic() for until in others)]))
        try:
            self.child.stdin.write(json.dumps(question) + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> Any:
        """Wait for the answer to what was sent.

        Raises
        ------
        RuntimeError
            If the child ended instead; the message holds the last lines of its log.
        """
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        _restless[self.child.pid] = time.monotonic() + self.rest_s
        if not line:
            raise self._ended()
        return json.loads(line)

    def ask(self, **question: Any) -> Any:
        """Ask and wait for the answer.

        Raises
        ------
        RuntimeError
            As for `receive`.
        """
        self.send(**question)
        return self.receive()

    def close(self) -> None:
        """End the child."""
        _restless.pop(self.child.pid, None)
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # what it did not read is not wanted any more
        try:
            self.child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ended(self) -> RuntimeError:
        return failed(self.child.wait(_END_SECONDS), self.command, self.log)


class Asking:
    """A program whose searches a child answers; as a context it ends the child.

    Attributes
    ----------
    session : Session
    """

    session: Session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()
