"""Commands under a memory limit that the kernel enforces: a control group of their own, version 1 or 2."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

#: Limit of a group whose process still warms up.
_FREE_BYTES = 16 << 30
#: Bytes that a process may need beside those that it held when its limit was lowered, such as stacks of threads.
_SLACK_BYTES = 24 << 20
#: Seconds in which the kernel lets go of a group whose last process has ended.
_END_SECONDS = 10
#: Moves the shell into the group, then becomes the command.
_ENTER = 'echo $$ > "$0" && exec "$@"'


class NoLimits(RuntimeError):
    """Memory cannot be limited on this machine; the message says why."""


@dataclass(frozen=True)
class Pressure:
    """Effects of a limit on a group.

    Attributes
    ----------
    limit_bytes : int
    peak_bytes : int or None
        Most that was charged to the group: anonymous memory, page cache, and the kernel's own. None where the kernel
        does not tell it.
    limit_hits : int
        Times that a page had to be given back before another could be had. It stays 0 with version 1 on Linux 6.18;
        there a peak close to the limit tells it.
    oom_kills : int
        Processes killed because nothing could be given back.
    """

    limit_bytes: int
    peak_bytes: int | None
    limit_hits: int
    oom_kills: int


@dataclass(frozen=True)
class Group:
    """A control group that processes can be started in.

    Attributes
    ----------
    folder : Path
    version : {1, 2}
    limit_bytes : int
    """

    folder: Path
    version: int
    limit_bytes: int

    def wrap(self, command: Sequence[object]) -> list[str]:
        """Return the command that runs `command`, and all its children, in the group."""
        return ["/bin/sh", "-c", _ENTER, str(self.folder / "cgroup.procs"), *map(str, command)]

    def pressure(self) -> Pressure:
        """Return what the limit has done so far."""
        if self.version == 1:
            # The counter of memory with swap is asked first, so where both limits are equal it is the one that refuses.
            swap = "memory.memsw.failcnt"
            hits = int(self._read("memory.failcnt"))
            hits += int(self._read(swap)) if (self.folder / swap).exists() else 0
            peak = int(self._read("memory.max_usage_in_bytes"))
            return Pressure(self.limit_bytes, peak, hits, self._counters("memory.oom_control")["oom_kill"])
        events = self._counters("memory.events")
        told = (self.folder / "memory.peak").exists()  # since Linux 5.19
        peak_bytes = int(self._read("memory.peak")) if told else None
        return Pressure(self.limit_bytes, peak_bytes, events["max"], events["oom_kill"])

    def set_limit(self) -> None:
        """Limit memory, and allow no swap where there is a counter of it."""
        if self.version == 1:
            self._write("memory.limit_in_bytes", self.limit_bytes)
            if (self.folder / "memory.memsw.limit_in_bytes").exists():
                self._write("memory.memsw.limit_in_bytes", self.limit_bytes)
            return
        self._write("memory.max", self.limit_bytes)
        if (self.folder / "memory.swap.max").exists():
            self._write("memory.swap.max", 0)

    def remove(self) -> None:
        """End what still runs in the group and remove it.

        Raises
        ------
        OSError
            If it cannot be removed.
        """
        until = time.monotonic() + _END_SECONDS
        while True:
            for pid in self._read("cgroup.procs").split():
                os.kill(int(pid), signal.SIGKILL)
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def _write(self, name: str, value: int) -> None:
        (self.folder / name).write_text(str(value))

    def _counters(self, name: str) -> dict[str, int]:
        return {key: int(value) for key, value in (line.split() for line in self._read(name).splitlines())}


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[Group]:
    """Make a group with a limit, and remove it at the end.

    Raises
    ------
    NoLimits
        If this user on this machine cannot have one.

    Examples
    --------
    >>> with memory_limit(2**30) as group:
    ...     subprocess.run(group.wrap(["indexmill", "build", "job.toml"]), check=True)
    ...     print(group.pressure())
    """
    version, parent = _parent()
    folder = parent / f"indexmill-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoLimits(f"{parent}: no group can be made here: {error.strerror}") from None
    group = Group(folder, version, limit_bytes)
    try:
        try:
            group.set_limit()
        except OSError as error:
            raise NoLimits(f"{folder}: no limit can be set: {error}") from None
        yield group
    finally:
        group.remove()


def run_lowered(command: Sequence[object], cache_bytes: int = 0, *, at_least: int = 0) -> dict[str, Any]:
    """Run a command that first warms up without a limit; then page cache is limited to `cache_bytes` and a slack.

    A limit of `at_least` bytes in all leaves the rest of them to the page cache as well.

    The slack of 24 MiB is for what the process may need beside. As far as it needs nothing, the slack holds page cache
    as well, so that at most ``limit_bytes - held_bytes`` are page cache.

    It prints the bytes that it holds, waits for a line on its standard input, and prints a JSON object in the end.

    Returns
    -------
    dict
        The object, with ``held_bytes`` and ``limit_bytes``.

    Raises
    ------
    NoLimits
        If memory cannot be limited here.
    RuntimeError
        If the command fails.
    """
    with memory_limit(_FREE_BYTES) as group, _started(group.wrap(command)) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        held = int(child.stdout.readline() or 0)
        if not held:
            raise RuntimeError(f"exit code {child.wait()} before it was ready: {' '.join(map(str, command))}")
        lower = replace(group, limit_bytes=max(at_least, held + cache_bytes + _SLACK_BYTES))
        try:
            lower.set_limit()
        except OSError as error:
            raise NoLimits(f"{group.folder}: no limit of {lower.limit_bytes} can be set: {error}") from None
        print("go", file=child.stdin)
        out = child.stdout.read()
        if child.wait():
            raise RuntimeError(
                f"exit code {child.returncode}, {lower.pressure()}: {' '.join(map(str, command))}"
            )
    return {**json.loads(out), "held_bytes": held, "limit_bytes": lower.limit_bytes}


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command with both ends of a conversation; it is ended where the conversation is."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as child:
        try:
            yield child
        finally:
            child.kill()


def _parent() -> tuple[int, Path]:
    """Return the version, and the root of the hierarchy: of a container's own one in a container.

    Raises
    ------
    NoLimits
        If no mounted hierarchy has the memory controller.
    """
    for kind, version in (("cgroup", 1), ("cgroup2", 2)):
        for mount, options in mounts(kind):
            if version == 1 and "memory" in options:
                return 1, mount
            if version == 2 and "memory" in _enabled(mount):
                return 2, mount
    raise NoLimits("no mounted control groups have the memory controller for their children")


def mounts(kind: str) -> Iterator[tuple[Path, list[str]]]:
    """Yield where a kind of file system is mounted, and its options."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return
    for _, where, found, options, *_ in map(str.split, lines):
        if found == kind:
            yield Path(where), options.split(",")


def _enabled(mount: Path) -> list[str]:
    try:
        return (mount / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []
