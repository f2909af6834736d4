"""Child processes: their cost in time, memory and disk space, and what they print."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from indexmill.jobs.devices.machine import REPOSITORY

#: Folder that children import the benchmarks from, also those of environments that have no indexmill.
_SOURCES = REPOSITORY / "src"
#: Seconds between two looks at memory: often enough for a build of minutes, too rare to disturb it.
SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Usage:
    """Cost of a child and all its descendants.

    Attributes
    ----------
    wall_s, cpu_s : float
        From start to exit; user plus system time, of descendants that were waited for too.
    peak_bytes : int
        Resident memory of the process tree: the largest sampled sum, and no less than any one process's
        high-water mark. Pages that processes share count once for each.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int

    def to_dict(self) -> dict[str, float | int]:
        """Return the figures, times rounded to a millisecond."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


class Failed(RuntimeError):
    """A command that ended with an error.

    Attributes
    ----------
    code : int
        Its exit code.
    said : str
        The last lines of what it said.
    """

    def __init__(self, code: int, command: Sequence[object], said: str) -> None:
        super().__init__(f"exit code {code} of: {' '.join(map(str, command))}\n{said}")
        self.code, self.said = code, said


def module(python: object, name: str, *arguments: object) -> list[str]:
    """Return the command that runs the module `name` of the benchmarks with an interpreter."""
    command = (python, "-m", f"indexmill.jobs.bench.{name}", *arguments)
    return ["env", f"PYTHONPATH={_SOURCES}", *map(str, command)]


def indexmill(*words: object, **options: object) -> list[str]:
    """Return the ``indexmill`` command of this checkout.

    ``pq_bytes=32`` stands for ``--pq-bytes 32``, ``R=32`` for ``-R 32``, True for a flag alone, None and False for
    nothing. Python keeps the byte code of its sources, as an installed package has it.
    """
    kept = ("env", "-u", "PYTHONDONTWRITEBYTECODE")
    command = [*kept, sys.executable, "-m", "indexmill.jobs.cli.main", *map(str, words)]
    for name, value in options.items():
        if value is not None and value is not False:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            command += [flag] if value is True else [flag, str(value)]
    return command


def told(command: Sequence[str]) -> dict[str, Any]:
    """Return the JSON that a command prints.

    Raises
    ------
    Failed
    """
    found: dict[str, Any] = json.loads(output_of(command))
    return found


def output_of(
    command: Sequence[object],
    folder: Path | None = None,
    given: str | None = None,
    limit_s: float | None = None,
) -> str:
    """Run a command in `folder` with `given` on its standard input; return what it prints.

    Raises
    ------
    Failed
    subprocess.TimeoutExpired
        If it takes longer than `limit_s` seconds.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, input=given, capture_output=True, text=True, timeout=limit_s)
    if done.returncode:
        raise Failed(done.returncode, words, done.stderr[-3000:])
    return done.stdout


def run_measured(
    command: Sequence[object],
    log: Path,
    watch: Callable[[int], AbstractContextManager[Any]] = nullcontext,
    ends: Container[int] = (0,),
) -> Usage:
    """Run `command` to its end, its output in `log`.

    Parameters
    ----------
    command : sequence
        Its parts are turned into text.
    log : Path
    watch : callable
        Given the process id, returns a context to hold while the process runs.
    ends : container of int
        Exit codes of a command that did what it should.

    Raises
    ------
    Failed
        With the last lines of `log`.
    """
    with open(log, "wb") as file:
        began = time.perf_counter()
        child = subprocess.Popen([str(part) for part in command], stdout=file, stderr=subprocess.STDOUT)
        peak, ended = _tree_bytes(child.pid), os.pidfd_open(child.pid)
        try:
            with watch(child.pid):
                while not select.select([ended], [], [], SAMPLE_SECONDS)[0]:
                    peak = max(peak, _tree_bytes(child.pid))
                wall = time.perf_counter() - began
        finally:
            os.close(ended)
        # wait4 and not communicate(): it is the call that also tells the child's CPU time.
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in ends:
        raise failed(child.returncode, command, log)
    return Usage(wall, used.ru_utime + used.ru_stime, peak)


def failed(code: int, command: Sequence[object], log: Path) -> Failed:
    """Return the error of a command that failed, with the last lines of its `log`."""
    return Failed(code, command, "\n".join(log.read_text(errors="replace").splitlines()[-15:]))


def run_indexmill(log: Path, *words: object, **options: object) -> Usage:
    """Run a command of this checkout that replaces what is there and prints JSON into `log`; see `indexmill`."""
    return run_measured(indexmill(*words, **options, force=True, json=True), log)


def _tree_bytes(root: int) -> int:
    """Resident bytes of `root` and its descendants now, or the largest high-water mark if that is more."""
    from indexmill.pipeline.mill.peak import child_pids

    resident = highest = 0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        now, most = _resident_bytes(pid)
        resident += now
        highest = max(highest, most)
        waiting += child_pids(pid)
    return max(resident, highest)


def _resident_bytes(pid: int) -> tuple[int, int]:
    """VmRSS and VmHWM; not ru_maxrss, which starts at the size of the process that forked."""
    try:
        found = memory_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0  # it ended meanwhile
    return found.get("VmRSS", 0), found.get("VmHWM", 0)


def memory_of(pid: int | str = "self") -> dict[str, int]:
    """Bytes of a process by kind, as ``/proc/PID/status`` names it: ``VmRSS``, ``RssAnon``, ``RssFile`` and others."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = (line.partition(":") for line in lines if line.endswith(" kB"))
    return {name: int(value.split()[0]) * 1024 for name, _, value in fields}


#: Seconds between two looks; a look takes microseconds a file.
INTERVAL_S = 0.02
#: Bytes of a block of st_blocks, whatever the file system's own.
_BLOCK = 512


class PeakScratch:
    """Samples the disk space of a folder in a thread until the block ends.

    Parameters
    ----------
    folder : Path
        Need not be there yet.

    Attributes
    ----------
    bytes : int
        The largest sum so far.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-scratch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self.bytes = max(self.bytes, allocated_bytes(self.folder))


def allocated_bytes(folder: Path) -> int:
    """Return the disk space of all files below a folder: holes are not counted, files with two names once."""
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue  # it was removed meanwhile
            sizes[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
    return sum(sizes.values())
