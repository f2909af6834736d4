"""Builds that are killed, from the side of the tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.builds import data_files


class Driver:
    """Builds in children of a process that has its kernels loaded (tests/support/kill_driver.py)."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kill_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def run(self, out: Path, shard: int = 0, **command: Any) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = {"source": str(self.source), "out": str(out), "shard": shard, **command}
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        status, message = json.loads(self._process.stdout.readline())
        return status, message

    def succeed(self, out: Path, shard: int = 0, **command: Any) -> dict[str, bytes]:
        assert self.run(out, shard, **command) == (0, "")
        return data_files(out)

    def die(self, out: Path, shard: int, failpoint: str, **command: Any) -> None:
        status, message = self.run(out, shard, failpoint=failpoint, **command)
        assert status == -signal.SIGKILL, (failpoint, status, message)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
