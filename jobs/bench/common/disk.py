"""Random 4 KiB reads a second that bypass the page cache, the ceiling of every search; and files dropped from it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

from indexmill.formats.chunks.tally import forget
from indexmill.jobs.bench.common.dataset import sync_files

FILE_BYTES = 1 << 30
BLOCK_BYTES = 4096
DEPTH = 64
JOBS = 2
SECONDS = 5


def measure(folder: Path) -> dict[str, Any]:
    """Read a file of 1 GiB with 64 reads in flight from two jobs for five seconds."""
    path, block = folder / "disk.bin", random.Random(1).randbytes(1 << 20)
    try:
        with open(
            path, "wb"
        ) as file:  # real bytes: blocks that were only reserved are answered without the device
            for _ in range(FILE_BYTES // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        return read_rate(path, DEPTH, SECONDS)
    finally:
        path.unlink(missing_ok=True)


def drop_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    sync_files(folder)
    for path in folder.iterdir():
        if path.is_file():
            forget(path)


def read_rate(path: Path, depth: int, seconds: float) -> dict[str, Any]:
    """Read random blocks of `path` with `depth` reads in flight, by fio with two jobs where there is fio.

    Returns
    -------
    dict
        ``reads_per_s``, ``read_us_mean``, and how they were measured: ``method``, ``depth``, ``jobs``, ``seconds``.
        The depth is rounded up to a multiple of the jobs.
    """
    jobs = min(JOBS, depth)
    depth_of_job = -(-depth // jobs)
    found = (_with_fio if shutil.which("fio") else _with_reader)(path, depth_of_job, jobs, seconds)
    return {"depth": depth_of_job * jobs, "jobs": jobs, "seconds": seconds, **found}


def _with_fio(path: Path, depth_of_job: int, jobs: int, seconds: float) -> dict[str, Any]:
    blocks = path.stat().st_size // BLOCK_BYTES
    done = subprocess.run(
        [
            "fio", "--name=randread", f"--filename={path}", "--readonly", "--rw=randread",
            f"--size={blocks * BLOCK_BYTES}", "--direct=1", f"--bs={BLOCK_BYTES}", "--ioengine=libaio",
            f"--iodepth={depth_of_job}", f"--numjobs={jobs}", "--time_based",
            f"--runtime={int(1000 * seconds)}ms", "--group_reporting", "--output-format=json",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    read = json.loads(done.stdout)["jobs"][0]["read"]
    mean = round(read["clat_ns"]["mean"] / 1000, 1)
    return {"method": "fio", "reads_per_s": round(read["iops"]), "read_us_mean": mean}


def _with_reader(path: Path, depth_of_job: int, jobs: int, seconds: float) -> dict[str, Any]:
    """Use the reader's own measurement, which is what `indexmill device` stores."""
    from indexmill.reader import native

    found = native.measure_device(str(path), BLOCK_BYTES, depth_of_job * jobs, jobs, float(seconds), 1)
    return {
        "method": "indexmill device (fio is not installed)",
        "reads_per_s": round(found["reads"] / found["elapsed_s"]),
        "read_us_mean": round(float(found["latencies_us"].mean()), 1),
    }
