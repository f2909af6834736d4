"""Part *disk*: random 4 KiB reads a second that bypass the page cache, the ceiling of every search."""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from workspace import Workspace

FILE_BYTES = 1 << 30
BLOCK_BYTES = 4096
DEPTH = 32
JOBS = 2
SECONDS = 5


def measure(space: Workspace) -> dict[str, Any]:
    """Read a file of 1 GiB at queue depth 32 from two jobs for five seconds, with fio if it is installed."""
    path = space.out / "disk.bin"
    try:
        _write_file(path)
        found = _with_fio(path) if shutil.which("fio") else _with_threads(path)
    finally:
        path.unlink(missing_ok=True)
    return {"block_bytes": BLOCK_BYTES, "depth": DEPTH, "jobs": JOBS, "runtime_s": SECONDS, **found}


def _write_file(path: Path) -> None:
    """Write real bytes: blocks that were only reserved are answered without the device."""
    block = random.Random(1).randbytes(1 << 20)
    with open(path, "wb") as file:
        for _ in range(FILE_BYTES // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def _with_fio(path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [
            "fio", "--name=randread", f"--filename={path}", f"--size={FILE_BYTES}", "--rw=randread",
            "--direct=1", f"--bs={BLOCK_BYTES}", "--ioengine=libaio", f"--iodepth={DEPTH}",
            f"--numjobs={JOBS}", "--time_based", f"--runtime={SECONDS}", "--group_reporting",
            "--output-format=json",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    read = json.loads(done.stdout)["jobs"][0]["read"]
    return {
        "method": "fio",
        "reads_per_s": round(read["iops"]),
        "read_us_mean": read["clat_ns"]["mean"] / 1000,
    }


def _with_threads(path: Path) -> dict[str, Any]:
    """Keep DEPTH x JOBS blocking reads in flight from as many threads; Python makes it a lower bound."""
    counts = [0] * (DEPTH * JOBS)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    stop = time.perf_counter() + SECONDS

    def read(worker: int) -> None:
        places, buffer = (
            random.Random(worker),
            mmap.mmap(-1, BLOCK_BYTES),
        )  # a map is page-aligned, as O_DIRECT asks
        while time.perf_counter() < stop:
            os.preadv(fd, [buffer], places.randrange(FILE_BYTES // BLOCK_BYTES) * BLOCK_BYTES)
            counts[worker] += 1

    threads = [threading.Thread(target=read, args=(worker,)) for worker in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(fd)
    per_second = sum(counts) / SECONDS
    return {
        "method": "own (64 threads, preadv; fio is not installed)",
        "reads_per_s": round(per_second),
        "read_us_mean": round(1e6 * len(counts) / per_second, 1),
    }
