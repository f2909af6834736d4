"""Random reads a second that bypass the page cache, the ceiling of every search; files in it, and dropped from it."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.chunks.tally import forget
from indexmill.jobs.bench.common.dataset import sync_files

FILE_BYTES = 1 << 30
#: Bytes of a read, unless said.
BLOCK_BYTES = 4096
DEPTH = 64
JOBS = 2
SECONDS = 5
#: Percentiles of the times of reads that are told, ascending.
PERCENTILES = (50, 90, 99, 99.9, 99.99)
#: Microseconds beyond which a read is slow: fio counts reads up to there.
SLOW_US = 1000


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


def resident_share(path: Path) -> float:
    """Return the share of a file's pages that the page cache holds; of an empty file 1.

    Raises
    ------
    OSError
        If the kernel does not tell it.
    """
    n_bytes = path.stat().st_size
    if not n_bytes:
        return 1.0
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), n_bytes, mmap.MAP_PRIVATE) as mapped:
        pages = np.empty(-(-n_bytes // mmap.PAGESIZE), np.uint8)
        begin = ctypes.byref(ctypes.c_char.from_buffer(mapped))
        failed = libc.mincore(begin, ctypes.c_size_t(n_bytes), ctypes.c_void_p(pages.ctypes.data))
        del begin  # what is mapped is let go, which an error would hinder, too
    if failed:
        raise OSError(ctypes.get_errno(), "mincore", str(path))
    return float((pages & 1).mean())


def read_rate(path: Path, depth: int, seconds: float, block_bytes: int = BLOCK_BYTES) -> dict[str, Any]:
    """Read random blocks of `path` with `depth` reads in flight, by fio with two jobs where there is fio.

    Returns
    -------
    dict
        ``reads_per_s``, ``read_us_mean``, and how they were measured: ``method``, ``depth``, ``jobs``, ``seconds``.
        The depth is rounded up to a multiple of the jobs.
    """
    return _measured(path, depth, seconds, lambda done: {"read_us_mean": done.mean_us}, block_bytes)


def read_times(path: Path, depth: int, seconds: float) -> dict[str, Any]:
    """Read as `read_rate` does; tell how long single reads took.

    Returns
    -------
    dict
        As for `read_rate`, with ``percentiles_us`` (`PERCENTILES`) in place of ``read_us_mean``, and ``slow``: the
        share of the reads that took more than a millisecond.
    """

    def times(done: _Reads) -> dict[str, Any]:
        return {"percentiles_us": done.percentiles_us, "slow": done.slow}

    return _measured(path, depth, seconds, times)


@dataclass(frozen=True)
class _Reads:
    """What some seconds of reads gave; ``slow`` as for `read_times`."""

    method: str
    per_s: float
    mean_us: float
    percentiles_us: dict[str, float]
    slow: float


def _measured(
    path: Path,
    depth: int,
    seconds: float,
    figures: Callable[[_Reads], dict[str, Any]],
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, Any]:
    jobs = min(JOBS, depth)
    depth_of_job = -(-depth // jobs)
    done = (_with_fio if shutil.which("fio") else _with_reader)(
        path, depth_of_job, jobs, seconds, block_bytes
    )
    how = {"depth": depth_of_job * jobs, "jobs": jobs, "seconds": seconds, "method": done.method}
    return {**how, "reads_per_s": round(done.per_s), **figures(done)}


def _with_fio(path: Path, depth_of_job: int, jobs: int, seconds: float, block_bytes: int) -> _Reads:
    blocks = path.stat().st_size // block_bytes
    done = subprocess.run(
        [
            "fio", "--name=randread", f"--filename={path}", "--readonly", "--rw=randread",
            f"--size={blocks * block_bytes}", "--direct=1", f"--bs={block_bytes}", "--ioengine=libaio",
            f"--iodepth={depth_of_job}", f"--numjobs={jobs}", "--time_based",
            f"--runtime={int(1000 * seconds)}ms", "--group_reporting", "--output-format=json",
            f"--percentile_list={':'.join(map(str, PERCENTILES))}",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    job = json.loads(done.stdout)["jobs"][0]
    read = job["read"]
    ns = {float(p): value for p, value in read["clat_ns"]["percentile"].items()}
    return _Reads(
        "fio",
        read["iops"],
        round(read["clat_ns"]["mean"] / 1000, 1),
        {str(p): round(ns[p] / 1000, 1) for p in PERCENTILES},
        sum(job["latency_ms"].values()) / 100,
    )


def _with_reader(path: Path, depth_of_job: int, jobs: int, seconds: float, block_bytes: int) -> _Reads:
    """Use the reader's own measurement, which is what `indexmill device` stores."""
    from indexmill.reader import native

    found = native.measure_device(str(path), block_bytes, depth_of_job * jobs, jobs, float(seconds), 1)
    times = found["latencies_us"].astype(np.float64)
    return _Reads(
        "indexmill device (fio is not installed)",
        found["reads"] / found["elapsed_s"],
        round(float(times.mean()), 1),
        {str(p): round(float(np.percentile(times, p)), 1) for p in PERCENTILES},
        float((times > SLOW_US).mean()),
    )
