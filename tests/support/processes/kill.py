"""Builds and joins that are killed, from the side of the tests."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_forked

CODE = "import json, sys; from tests.support.processes import kill_driver; kill_driver.main(json.loads(sys.argv[1]))"


#: Moments of a stage.
MOMENTS = ("begun", "written", "done")


def moments_of(stages: Iterable[str], moments: Iterable[str] = MOMENTS) -> list[str]:
    """Return the failpoints of all stages, in order."""
    return [f"{stage}-{moment}" for stage in stages for moment in moments]


class Driver:
    """Builds from one source in processes of their own (tests/support/processes/kill_driver.py)."""

    def __init__(self, folder: Path, vectors: np.ndarray) -> None:
        self.source = folder / "v.npy"
        np.save(self.source, vectors)

    def run(
        self, out: Path, shard: int = 0, failpoint: str = "", delay: float | None = None, **command: Any
    ) -> tuple[int, str]:
        """Return how the process ended and what it said."""
        line = {"source": str(self.source), "out": str(out), "shard": shard, **command}
        done = run_forked(CODE, json.dumps(line), failpoint=failpoint, kill_after=delay)
        return done.returncode, done.stderr

    def succeed(self, out: Path, shard: int = 0, **command: Any) -> dict[str, bytes]:
        assert self.run(out, shard, **command) == (0, "")
        return data_files(out)

    def die(self, out: Path, shard: int, failpoint: str, **command: Any) -> None:
        status, message = self.run(out, shard, failpoint, **command)
        assert status == -signal.SIGKILL, (failpoint, status, message)

    def die_at_each(
        self, out: Path, shard: int, failpoints: Iterable[str], **command: Any
    ) -> dict[str, bytes]:
        """Kill a new build at one failpoint after the other; return the files that the last run ends with."""
        for failpoint in failpoints:  # each run gets a little further than the one before
            self.die(out, shard, failpoint, **command)
            assert not out.exists()
        files = self.succeed(out, shard, **command)
        assert [path.name for path in out.parent.iterdir()] == [out.name]
        return files


def leave_half_files(work: Path, stage: str, names: Iterable[str]) -> None:
    """Write files into each directory of a stage, as a run that was killed may leave them."""
    for directory in work.glob(f"{stage}-*"):
        for name in names:
            (directory / name).write_bytes(b"half")
