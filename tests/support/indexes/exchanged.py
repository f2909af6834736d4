"""An index that another process exchanges with another build all the time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from indexmill.formats.pagefile import atomic

#: What the other process does until it is killed: exchanges a copy of the second build with one of the first, and may
#: delete what it replaced, as `--force` does.
DRIVER = """
import shutil, sys, time
from pathlib import Path
from indexmill.formats.pagefile.atomic import exchange
out, builds, deletes = Path(sys.argv[1]), [Path(sys.argv[2]), Path(sys.argv[3])], sys.argv[4] == "deletes"
fresh = out.with_name("fresh")
shutil.copytree(builds[0], fresh)
print("ready", flush=True)
turn = 1
while True:
    exchange(fresh, out)
    if deletes:
        shutil.rmtree(fresh)
        shutil.copytree(builds[turn], fresh)
        turn = 1 - turn
        time.sleep(0.01)
"""


@contextmanager
def exchanged(folder: Path, builds: list[Path], deletes: bool) -> Iterator[Path]:
    """Yield a directory that another process exchanges all the time, the second of two builds at first."""
    out = folder / "ix"
    shutil.copytree(builds[0], out)
    if not atomic.exchange(out, shutil.copytree(builds[1], folder / "probe")):
        pytest.skip("this system cannot exchange two names")
    arguments = [str(out), *map(str, builds), "deletes" if deletes else "keeps"]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments], stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            yield out
            assert other.poll() is None, "the other process ended"
        finally:
            other.kill()
