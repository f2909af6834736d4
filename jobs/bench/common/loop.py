"""Drives of a stated speed: ext4 on loop devices over files in memory, which the kernel holds to rates.

They stand in for drives that are not there, and as devices apart from the disk. What they do not have is the time to
seek, and a limit that reads and writes share. Needs root, ``losetup``, ``mkfs.ext4`` and control groups of version 1
with the controller ``blkio``: its root limits writes of the page cache as well, which no group of version 2 can.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from indexmill.jobs.bench.common.cgroup import mounts

#: Where the files are.
MEMORY = Path("/dev/shm")
#: Bytes that ext4 needs beside what is stored: a share, and at least.
_OVERHEAD, _LEAST = 0.05, 64 << 20
_COMMANDS = ("losetup", "mkfs.ext4", "mount", "umount")


class NoDrives(RuntimeError):
    """Such drives cannot be had on this machine; the message says why."""


@dataclass(frozen=True)
class Rates:
    """Megabytes (10^6 bytes) a second of reads and of writes."""

    read: float
    write: float

    def __str__(self) -> str:
        return f"{self.read:g}/{self.write:g} MB/s"


@dataclass(frozen=True)
class Drive:
    """A mounted drive.

    Attributes
    ----------
    folder : Path
        Its root, empty at first except for ``lost+found``.
    number : str
        Of its device: ``7:0``.
    """

    folder: Path
    number: str


@contextmanager
def drive(n_bytes: int) -> Iterator[Drive]:
    """Make a drive for `n_bytes` of files, without limits; it is gone at the end of the block.

    Raises
    ------
    NoDrives
        If a command is missing, or the kernel refuses.
    """
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing:
        raise NoDrives(f"{', '.join(missing)}: not installed; install util-linux, mount and e2fsprogs")
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="indexmill-drive-", dir=MEMORY)))
        image, root = folder / "image", folder / "root"
        with open(image, "wb") as file:
            file.truncate(int((1 + _OVERHEAD) * n_bytes) + _LEAST)
        # Tables of inodes are written at once: later the kernel would write them while something is measured.
        _run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", image)
        device = _run("losetup", "--find", "--show", image)
        undo.callback(_run, "losetup", "--detach", device)
        root.mkdir()
        _run("mount", device, root)
        undo.callback(_run, "umount", root)
        yield Drive(root, Path("/sys/block", Path(device).name, "dev").read_text().strip())


@contextmanager
def held(one: Drive, rates: Rates) -> Iterator[None]:
    """Hold a drive to rates for the length of a block.

    Raises
    ------
    NoDrives
        If the kernel has no such limit.
    """
    groups = _groups()
    try:
        _limit(groups, one, round(1e6 * rates.read), round(1e6 * rates.write))
        yield
    finally:
        _limit(groups, one, 0, 0)  # none


def _limit(groups: list[Path], one: Drive, read: int, write: int) -> None:
    for group in groups:
        for what, rate in (("read", read), ("write", write)):
            try:
                (group / f"blkio.throttle.{what}_bps_device").write_text(f"{one.number} {rate}")
            except OSError as error:
                raise NoDrives(f"{group}: no limit can be set: {error}") from None


def _groups() -> list[Path]:
    """Return the group of writes of the page cache, which is the root, and that of this process."""
    for root, options in mounts("cgroup"):
        if "blkio" in options:
            lines = Path("/proc/self/cgroup").read_text().splitlines()
            own = {
                path
                for _, names, path in (line.split(":", 2) for line in lines)
                if "blkio" in names.split(",")
            }
            return [root, *(root / path.lstrip("/") for path in sorted(own - {"/"}))]
    raise NoDrives("no mounted control groups of version 1 have the controller blkio")


def _run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise NoDrives(f"{command[0]}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()
