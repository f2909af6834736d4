"""Peak memory of a tree of processes, without page cache: the figure that a budget limits.

Counted is the proportional set size of anonymous and shared memory (``Pss_Anon + Pss_Shmem`` of Linux's smaps_rollup):
a page that processes share counts once, and pages of mapped files, which the kernel can drop at any time, not at all.
Of a process without children, resident memory says the same and costs microseconds to read instead of milliseconds.
"""

from __future__ import annotations

import re
import resource
import sys
import threading
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

INTERVAL_S = 0.02
#: A sample is followed by a rest of so many times its cost: smaps_rollup walks page tables, milliseconds a GiB.
_REST = 50
#: Ray's daemons: executables, and scripts of Python. Workers begin as such a script too, until they take a title.
_RAY_PROGRAMS = (b"raylet", b"gcs_server")
_RAY_SCRIPT = re.compile(rb"/ray/(_private|dashboard|autoscaler)/[^\0]*\.py\b")
#: Title of a worker with a task, and those without one of ours: idle, moving objects, or agents of the dashboard.
_RAY_TITLE = b"ray::"
_RAY_OTHER_TITLES = (
    b"ray::IDLE", b"ray::SPILL_", b"ray::RESTORE_", b"ray::DELETE_", b"ray::DashboardAgent",
    b"ray::RuntimeEnvAgent", b"ray-dashboard",
)  # fmt: skip


class PeakMemory:
    """Samples the memory of a process and its descendants in a thread until the block ends.

    Ray's daemons do not count; its worker processes do from the first sample that finds them with a task. Processes
    that are no descendants, such as the workers of a cluster that was running before, are not seen.

    A sample first adds up the kernel's own counters of resident memory. They count shared pages once for each process,
    so they are an upper bound: of several processes, the exact sum is computed only where they exceed the peak so far.
    Pages that one process shares with others outside the tree count in full.

    Parameters
    ----------
    pid : int, optional
        Root of the tree; default: this process.
    interval_s : float
        Between samples; stretched where a sample costs more than 2% of it.

    Attributes
    ----------
    bytes : int
        The largest sum so far.
    note : str or None
        What is different from the above on this system or in this run; None if nothing is.

    Examples
    --------
    >>> with PeakMemory() as peak:
    ...     run()
    >>> peak.bytes
    """

    def __init__(self, pid: int | None = None, interval_s: float = INTERVAL_S) -> None:
        self.bytes = 0
        self.note: str | None = None
        self._interval = interval_s
        self._tree = ProcessTree(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> Self:
        if has_proportional_sizes():
            if not Path("/proc/thread-self/children").exists():
                self.note = "without child processes: this kernel does not list them"
            self._sample()
            self._thread.start()
        else:
            self.note = "the greatest resident set of one process, page cache included: no smaps_rollup here"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.ident is None:
            self.bytes = _greatest_resident_bytes()
            return
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        cost = 0.0
        try:
            while not self._done.wait(max(self._interval, _REST * cost)):
                cost = self._sample()
            self._sample()
        except OSError as error:  # a measurement that fails must not fail the build
            self.note = f"sampling ended early: {error}"

    def _sample(self) -> float:
        """Measure once; return the seconds that it took."""
        began = time.thread_time()  # waiting for the interpreter is no cost, and would stretch the rest
        pids = self._tree.counted()
        at_most = sum(map(resident_bytes, pids))
        if at_most > self.bytes:
            counted = at_most if len(pids) == 1 else sum(map(proportional_bytes, pids))
            self.bytes = max(self.bytes, counted)
        return time.thread_time() - began


class ProcessTree:
    """A process and those of its descendants whose memory is ours.

    Parameters
    ----------
    root : int, optional
        Process id; default: this process.

    Attributes
    ----------
    root : int or "self"
    """

    def __init__(self, root: int | None = None) -> None:
        self.root: int | str = "self" if root is None else root
        self._worked: set[int] = set()

    def counted(self) -> list[int | str]:
        """Return the root and its descendants, without Ray's daemons and the workers that had no task yet."""
        found: list[int | str] = [self.root]
        waiting = [(pid, True) for pid in child_pids(self.root)]
        worked = set()
        while waiting:
            pid, parent_counts = waiting.pop()
            command = command_line(pid)
            if pid in self._worked or _is_working(command):
                worked.add(pid)
            counts = pid in worked or (parent_counts and not _is_rays(command))
            if counts:
                found.append(pid)
            waiting += [(child, counts) for child in child_pids(pid)]
        self._worked = worked
        return found


@cache
def has_proportional_sizes() -> bool:
    """Tell whether the system gives the proportional set size by kind: Linux since 5.4, unless /proc is hidden."""
    try:
        return "Pss_Anon:" in Path("/proc/self/smaps_rollup").read_text()
    except OSError:
        return False


def proportional_bytes(pid: int | str) -> int:
    """Return the anonymous and shared memory of a process, with its share of shared pages; 0 if it has ended.

    Of a process that another user runs, which may not be looked into, `resident_bytes` stands for it.
    """
    try:
        return sum_fields(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))
    except PermissionError:
        return resident_bytes(pid)


def resident_bytes(pid: int | str) -> int:
    """Return the anonymous and shared memory of a process, with shared pages in full; 0 if it has ended."""
    return sum_fields(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:"))


def child_pids(pid: int | str) -> list[int]:
    """Return the children of a process; none if it has ended."""
    children: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += [int(child) for child in (thread / "children").read_bytes().split()]
    except (FileNotFoundError, ProcessLookupError):
        return children  # it, or one of its threads, ended meanwhile
    return children


def sum_fields(path: str, names: tuple[str, ...]) -> int:
    """Add up fields of a file of /proc that are in kB."""
    try:
        with open(path) as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(names))
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended meanwhile


def command_line(pid: int) -> bytes:
    """Return the command line of a process, empty if it ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _is_working(command: bytes) -> bool:
    """Tell whether this is the command line of a Ray worker that runs a task."""
    return command.startswith(_RAY_TITLE) and not command.startswith(_RAY_OTHER_TITLES)


def _is_rays(command: bytes) -> bool:
    """Tell whether this is the command line of a process of Ray that runs no task."""
    program = command.split(b"\0", 1)[0].rsplit(b"/", 1)[-1]
    return (
        program in _RAY_PROGRAMS
        or command.startswith(_RAY_OTHER_TITLES)
        or _RAY_SCRIPT.search(command) is not None
    )


def _greatest_resident_bytes() -> int:
    """Return the high-water mark of this process or of a child that has ended, whichever is more."""
    unit = 1 if sys.platform == "darwin" else 1024
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(which).ru_maxrss for which in processes) * unit
