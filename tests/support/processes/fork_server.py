"""Runs Python code in forked children of a process that has kernels loaded, for tests/support/processes/forks.py.

Reads one JSON object a line: ``code``, ``argv``, ``env``, ``cwd``, ``stdout`` and ``stderr`` (files), and optionally
``failpoint`` and ``kill_after`` (seconds until SIGKILL); answers with the child's exit status, negative if a signal
ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.support.indexes.builds import build, clustered
from tests.support.indexes.ivf import build_lists, join, make_vectors
from tests.support.indexes.lsh import build_lsh
from tests.support.processes.forks import THRESHOLD_BYTES

from indexmill.pipeline.execution import allocator, failpoint

#: Of malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def warm_up() -> None:
    """Build a small index of each kind, which loads what every child would have to load."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for builder in ("vamana", "partition"):
            build(folder / builder, clustered(200, 8), R=8, L=20, pq_bytes=4, builder=builder)
        build(folder / "shards", clustered(400, 8), R=8, L=20, pq_bytes=4, shard_vectors=200)
        vectors = make_vectors("float32", 300)
        build_lists(folder / "ivf", vectors, lists=6, batch_vectors=200)
        join(folder / "ivf", vectors[:10], folder / "r.parquet")
        build_lsh(folder / "lsh", clustered(200, 8), n_tables=2, hash_bits=3, block_bytes=128, workers=1)


def run(command: dict[str, Any]) -> int:
    """Fork a child that runs the code; return how it ended."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = execute(command)
        finally:
            os._exit(code)
    timer = None
    if command.get("kill_after") is not None:
        timer = threading.Timer(command["kill_after"], os.kill, (child, signal.SIGKILL))
        timer.start()
    _, status = os.waitpid(child, 0)
    if timer is not None:
        timer.cancel()
        timer.join()  # no thread may run while this process forks
    return os.waitstatus_to_exitcode(status)


def execute(command: dict[str, Any]) -> int:
    """Run the code as ``python -c`` would; return the exit code."""
    for number, name in enumerate(("stdout", "stderr"), start=1):
        with open(command[name], "w") as file:
            os.dup2(file.fileno(), number)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    sys.argv = ["-c", *command["argv"]]
    failpoint.arm(command.get("failpoint") or "")
    reset_allocator()
    code = 0
    try:
        exec(compile(command["code"], "<forked>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):  # the disk that the code filled
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def reset_allocator() -> None:
    """Undo what a build did to the C allocator, and give back what it freed."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for parameter in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            library.mallopt(parameter, THRESHOLD_BYTES)
        library.malloc_trim(0)
    allocator.hold_little.cache_clear()


def main() -> None:
    np.ones((4, 4)) @ np.ones((4, 4))
    with patch("os.fsync", lambda descriptor: None):  # as in tests/conftest.py
        if "cold" not in sys.argv:
            warm_up()
        for line in sys.stdin:
            print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
