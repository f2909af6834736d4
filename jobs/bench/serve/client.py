"""A service of builds in a process of its own, and its client."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, THREADS
from indexmill.jobs.bench.common.process import indexmill

#: Seconds between two questions for the status of a job.
_POLL_S = 0.05
_LISTENING = "listening on "


class Service:
    """A running service, whose containers are the folders below `folder`."""

    def __init__(self, folder: Path, work: Path) -> None:
        command = indexmill(
            "serve-builds", work=work, storage=f"file://{folder}/{{container}}", port=0, memory=BUILD_MEMORY,
            workers=THREADS,
        )  # fmt: skip
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        if not line.startswith(_LISTENING):
            raise RuntimeError(f"serve-builds: {line}{self._process.stderr.read()}")
        self._url = line.removeprefix(_LISTENING).strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()

    def build(self, request: dict[str, Any]) -> float:
        """Return the seconds from a request to its result.

        Raises
        ------
        RuntimeError
            If the build failed.
        """
        began = time.perf_counter()
        job_id = self._answer("/_build", json.dumps(request).encode())["job_id"]
        while (status := self._answer(f"/_status/{job_id}"))["task_status"] == "RUNNING_INDEX_BUILD":
            time.sleep(_POLL_S)
        seconds = time.perf_counter() - began
        if status["error_message"] is not None:
            raise RuntimeError(status["error_message"])
        return seconds

    def _answer(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        with urllib.request.urlopen(self._url + path, body) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
