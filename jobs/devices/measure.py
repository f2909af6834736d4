"""Measuring a device with random reads, as fio's randread does, into a profile."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.device import (
    MAX_IOPS,
    MAX_LATENCY_US,
    MAX_MB_PER_S,
    MAX_REQUEST_US,
    MIN_IOPS,
    MIN_MB_PER_S,
    QUANTILES,
    DeviceProfile,
    Latency,
    Measured,
    Model,
    Reads,
)
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.jobs.console.tables import human_bytes
from indexmill.jobs.devices.profiles import device_of, host_name
from indexmill.pipeline.mill.progress import Progress, stage_progress

#: Sizes of the reads: our page, and the sector of most devices.
PAGE_BYTES, SECTOR_BYTES = 4096, 512
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
#: Reads that are as good as sequential ones, and their depths: how many bytes a second the device moves.
LARGE_BYTES, LARGE_DEPTHS = 1 << 20, (1, 8)
#: Reads each thread keeps in flight at least before another one joins in: one thread drives a shallow queue.
READS_A_THREAD = 4
#: Below this size a device may answer from memory of its own.
SMALL_BYTES = 64 * 2**20
#: File that searches read of an index, by its kind: graph, lsh, ivf.
_READ_FILES = ("graph.imx", "buckets.imx", "batch-000000.imx")
#: Bytes of a temporary file written at once.
_CHUNK_BYTES = 4 * 2**20
#: Shares of the reads at which the model's latency is kept: dense where the tail begins.
SHARES = (
    *(0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95),
    *(0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 1.0),
)  # fmt: skip

#: The reader's `measure_device`: path, bytes of a read, depth, threads, seconds, seed.
Measurer: TypeAlias = Callable[[str, int, int, int, float, int], dict[str, Any]]


@dataclass(frozen=True)
class Target:
    """A file to read, its size, and the path that people know it by."""

    file: Path
    bytes: int
    shown: Path


@dataclass(frozen=True)
class Outcome:
    """A profile, the reason if 512-byte reads were refused, and notes on the figures."""

    profile: DeviceProfile
    refused: str | None
    notes: list[str]


def native_measurer() -> Measurer:
    """Return the reader's measuring function."""
    from indexmill.reader import native

    return native.measure_device


def measure_device(
    target: Target, measure: Measurer, progress: Progress, seconds: float = 1.0, seed: int = 1
) -> Outcome:
    """Read `target` at every size and depth, `seconds` each.

    Raises
    ------
    InputError
        If the file cannot be read past its first page, or no read ends in time.
    """
    if target.bytes < PAGE_BYTES:
        raise InputError(
            f"{target.shown}: holds {target.bytes} bytes, but a read takes {PAGE_BYTES}; name a larger file, or a"
            " directory to have one written there"
        )
    reads: list[Reads] = []
    results: list[dict[str, Any]] = []
    refused = None
    kinds = [(size, depth) for size in (PAGE_BYTES, SECTOR_BYTES) for depth in DEPTHS]
    kinds += [(LARGE_BYTES, depth) for depth in LARGE_DEPTHS if target.bytes >= LARGE_BYTES]
    with stage_progress(progress, "measure", len(kinds), "runs"):
        for number, (block_bytes, depth) in enumerate(kinds):
            if block_bytes == SECTOR_BYTES and refused is not None:
                continue
            threads = threads_for(depth)
            before = time.process_time()
            try:
                found = measure(str(target.file), block_bytes, depth, threads, seconds, seed + number)
            except (InputError, ConfigError) as error:
                if block_bytes != SECTOR_BYTES:
                    raise
                refused = str(error)
                continue
            found["cpu_s"] = time.process_time() - before
            if block_bytes == SECTOR_BYTES and results[0]["direct"] and not found["direct"]:
                refused = "they would go through the page cache"
                continue
            reads.append(summarise(found, block_bytes, depth, threads, target.shown))
            results.append(found)
            progress.advance(1)
    pages = results[: len(DEPTHS)]
    profile = _profile(target, reads, pages, seconds)
    return Outcome(profile, refused, list(_notes(target, profile, refused)))


def threads_for(depth: int) -> int:
    """Threads that share `depth` reads in flight: one while few, then more, up to the cores of this machine."""
    return max(1, min(os.cpu_count() or 1, depth // READS_A_THREAD))


def summarise(found: dict[str, Any], block_bytes: int, depth: int, threads: int, shown: Path) -> Reads:
    """Turn what the reader measured, and ``cpu_s`` that it took, into rates, times and latencies.

    Raises
    ------
    InputError
        If no read ended.
    """
    latencies: NDArray[np.float32] = found["latencies_us"]
    if found["reads"] == 0:
        raise InputError(f"{shown}: no read of {block_bytes} bytes ended in time; measure longer: --seconds")
    iops = found["reads"] / found["elapsed_s"]
    p50, p90, p99, p999 = _quantiles(latencies, (0.5, 0.9, 0.99, 0.999))
    mean = round(float(np.mean(latencies, dtype=np.float64)), 2)
    greatest = round(float(latencies.max()), 2)
    return Reads(
        bytes=block_bytes,
        depth=depth,
        threads=threads,
        iops=round(iops, 1),
        mb_per_s=round(iops * block_bytes / 1e6, 3),
        cpu_us=round(found["cpu_s"] / found["reads"] * 1e6, 3),
        latency_us=Latency(mean=mean, p50=p50, p90=p90, p99=p99, p999=p999, max=greatest),
        quantiles_us=_quantiles(latencies, np.linspace(0, 1, QUANTILES)),
    )


def _quantiles(latencies: NDArray[np.float32], shares: Any) -> list[float]:
    """Latencies at `shares`, to a hundredth of a microsecond."""
    return [round(float(value), 2) for value in np.quantile(latencies.astype(np.float64), shares)]


def _profile(
    target: Target, reads: list[Reads], pages: list[dict[str, Any]], seconds: float
) -> DeviceProfile:
    device, host = device_of(target.shown), host_name()
    points = zip(SHARES, _quantiles(pages[0]["latencies_us"], SHARES), strict=True)
    deepest = reads[len(DEPTHS) - 1]
    moved = max(one.mb_per_s for one in reads) if reads[-1].bytes == LARGE_BYTES else None
    return DeviceProfile(
        name=f"{device} of {host}",
        model=Model(
            latency_us=[[share, min(latency, MAX_LATENCY_US)] for share, latency in points],
            iops=min(max(MIN_IOPS, *(one.iops for one in reads if one.bytes == PAGE_BYTES)), MAX_IOPS),
            mb_per_s=None if moved is None else min(max(MIN_MB_PER_S, moved), MAX_MB_PER_S),
            request_us=None if deepest.cpu_us is None else min(deepest.cpu_us, MAX_REQUEST_US),
        ),
        measured=Measured(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            host=host,
            path=str(target.shown.resolve()),
            device=device,
            direct=all(found["direct"] for found in pages),
            engine=pages[0]["engine"],
            seconds=seconds,
            reads=reads,
        ),
    )


def _notes(target: Target, profile: DeviceProfile, refused: str | None) -> Iterator[str]:
    assert profile.measured is not None
    if not profile.measured.direct:
        yield "reads went through the page cache: these figures measure memory, not the device"
    if target.bytes < SMALL_BYTES:
        yield (
            f"{target.shown}: only {human_bytes(target.bytes)}; the device may answer from memory of its own:"
            " measure a larger file, or a directory"
        )
    status = os.stat(target.file)
    if stat.S_ISREG(status.st_mode) and status.st_blocks * 512 < 0.9 * target.bytes:
        yield f"{target.shown}: parts of it are holes or compressed, which are read without the device"
    if refused is not None:
        yield f"no 512-byte reads: {refused}"


@contextmanager
def open_target(path: Path, file_bytes: int, seed: int, progress: Progress) -> Iterator[Target]:
    """Find what to read for `path`: the file itself, what an index is searched in, or a temporary file in a directory.

    A temporary file is removed in the end, however the block ends.

    Raises
    ------
    InputError
        If there is nothing at `path`.
    BudgetError
        If `file_bytes` do not fit on the device.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or directory; name one on the device to measure")
    if path.is_dir() and (path / "manifest.json").exists():
        files = [path / name for name in _READ_FILES]
        found = next((file for file in files if file.is_file()), None)
        if found is None:
            raise InputError(
                f"{files[0]}: no such file, though {path} has a manifest; see: indexmill verify {path}"
            )
        path = found
    if not path.is_dir():
        with open(path, "rb") as file:
            yield Target(path, file.seek(0, os.SEEK_END), path)
        return
    temporary = path / f".indexmill-device-{secrets.token_hex(8)}.tmp"
    try:
        _write_random(temporary, file_bytes, seed, progress)
        yield Target(temporary, file_bytes, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_random(path: Path, file_bytes: int, seed: int, progress: Progress) -> None:
    """Write random bytes, which no device can compress, make them durable and leave none in the page cache."""
    from shutil import disk_usage

    if file_bytes < PAGE_BYTES:
        raise ConfigError(f"--size: expected at least {PAGE_BYTES} bytes, got {file_bytes}")
    free = disk_usage(path.parent).free
    if file_bytes > free:
        raise BudgetError(
            f"{path.parent}: a temporary file of {human_bytes(file_bytes)} does not fit, {human_bytes(free)} are"
            " free; free some space or pass a smaller --size"
        )
    random = np.random.default_rng(seed)
    with open(path, "xb") as file, stage_progress(progress, "write", file_bytes >> 20, "MiB"):
        for start in range(0, file_bytes, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, file_bytes - start)
            file.write(random.bytes(size))
            progress.advance(size >> 20)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
