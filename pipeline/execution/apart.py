"""A task in a process of its own: ``python -m indexmill.pipeline.execution.apart``, started by `call_apart`.

Its standard input has one pickled call and stays open: where it ends, the caller is gone, and the process ends, too.
Its standard output has pickled pairs: ``("step", n)`` for each step that the task reports, and in the end ``("result",
value)`` or ``("error", exception)``.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from indexmill.formats.errors import BudgetError
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.execution.local import Task, run_single_threaded


def call_apart(
    task: Task, *arguments: Any, advance: Callable[[int], None] | None = None, **keywords: Any
) -> Any:
    """Return the result of a task in a process of its own, which is ended with this one.

    Parameters
    ----------
    task : callable
        A module-level function; with `advance` it gets a keyword of that name.
    advance : callable, optional
        Called here with each step that the task reports.

    Raises
    ------
    Exception
        What the task raises.
    BudgetError
        If the process dies.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-P", "-m", __name__]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as child:
            try:
                given = cast(BinaryIO, child.stdin)
                pickle.dump((task, arguments, keywords, advance is not None), given)
                given.flush()
                return _answer(cast(BinaryIO, child.stdout), advance)
            finally:
                child.kill()  # does nothing to one that has ended
    except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
        raise BudgetError(
            f"{task.__name__}: its process ended with status {child.returncode}, probably for lack of memory; lower "
            "--memory, or stop other programs, and run again: finished work is kept"
        ) from error


def _answer(said: BinaryIO, advance: Callable[[int], None] | None) -> Any:
    """Pass steps on until the task ends; return its result, or raise its error."""
    while True:
        kind, value = pickle.load(said)
        if kind == "error":
            raise value
        if kind == "result":
            return value
        assert advance is not None
        advance(value)


def _end_with_caller() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the task of standard input."""
    hold_little()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the caller tells of an interruption
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer

    def say(kind: str, value: Any) -> None:
        answers.write(pickle.dumps((kind, value)))
        answers.flush()

    task, arguments, keywords, reports = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_caller, name="end-with-caller", daemon=True).start()
    if reports:
        keywords["advance"] = lambda n: say("step", n)
    try:
        result = run_single_threaded(task, *arguments, **keywords)
    except Exception as error:
        say("error", error)
    else:
        say("result", result)


if __name__ == "__main__":
    main()
