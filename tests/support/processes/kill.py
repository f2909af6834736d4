"""Builds and joins that are killed, from the side of the tests."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_forked

CODE = "import json, sys; from tests.support.processes import kill_driver; kill_driver.main(json.loads(sys.argv[1]))"


class Driver:
    """Builds from one source in processes of their own (tests/support/processes/kill_driver.py)."""

    def __init__(self, source: Path) -> None:
        self.source = source

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
