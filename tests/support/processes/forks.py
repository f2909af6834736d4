"""Python code in processes of its own, forked from one that has the package and its kernels loaded."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

#: What the C allocator of the server starts with: glibc returns freed memory at once, and Arrow allocates by it
#: (its own pool may take 32 MiB for the first block), so that the peak of a child's memory is what it held.
THRESHOLD_BYTES = 64 << 10
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(THRESHOLD_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(THRESHOLD_BYTES),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


@cache
def _server(*options: str) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes.fork_server", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, **ALLOCATOR},
    )
    atexit.register(_stop, server)
    return server


def _stop(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()


def run_forked(
    code: str, *argv: object, failpoint: str = "", kill_after: float | None = None, cold: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run code as ``python -c`` would, without the seconds that loading takes.

    Parameters
    ----------
    failpoint : str
        See `indexmill.pipeline.execution.failpoint`.
    kill_after : float, optional
        Seconds until the process is killed.
    cold : bool
        Whether no kernel is loaded when the code begins; the package is.
    """
    server = _server("cold") if cold else _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as name:
        out, err = Path(name, "out"), Path(name, "err")
        for file in (out, err):
            file.touch()  # a process may be killed before it opens them
        command = {
            "code": code,
            "argv": list(map(str, argv)),
            "env": dict(os.environ),
            "cwd": os.getcwd(),
            "stdout": str(out),
            "stderr": str(err),
            "failpoint": failpoint,
            "kill_after": kill_after,
        }
        server.stdin.write(json.dumps(command) + "\n")
        server.stdin.flush()
        status = json.loads(server.stdout.readline())
        return subprocess.CompletedProcess(code, status, out.read_text(), err.read_text())


def run_command(*argv: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run ``indexmill ...``; `how` is as for `run_forked`."""
    return run_forked("from indexmill.jobs.cli.main import main; main()", *argv, **how)
