"""Part *chunks*: the chunk files that builds make, written and sorted raw and compressed by zstd.

Builds of graphs in shards and region by region, of hash tables and of inverted lists leave chunk files between their
stages. Those of each stage are kept, read, and then written again and sorted from the first key to the last in turns,
raw and compressed: by one thread, in the batches that they had, synced, and read past the page cache.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np

from indexmill.formats.chunks.reader import ChunkFile, Records
from indexmill.formats.chunks.tally import Tally, forget, sync
from indexmill.formats.chunks.writer import Compression, write_chunk
from indexmill.jobs.api.given import job_of
from indexmill.jobs.bench.assign.large import ROUNDS
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import beginning, read_bin
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.pipeline.build import run_build
from indexmill.pipeline.mill.external_sort import sorted_records
from indexmill.pipeline.mill.progress import Silent

#: Vectors of the builds, and what makes them leave chunk files.
ROWS = 200_000
BUILDS: dict[str, dict[str, Any]] = {
    "shards": {"kind": "graph", "builder": "vamana", "shard_vectors": 80_000},
    "regions": {"kind": "graph", "builder": "partition", "memory": "370MiB"},
    "hash tables": {"kind": "lsh"},
    "inverted lists": {"kind": "ivf"},
}
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
#: Most bytes of a stage's files that are measured, and buffers of a sort.
_MOST_BYTES, _BUFFER_BYTES = 256 << 20, 1 << 30
_ANY_KEY = (0, 1 << 32)


class Kept(Silent):
    """Progress of a build that keeps the chunk files of its stages, as links.

    Parameters
    ----------
    work, folder : Path
        Of the build's stages, and of the links.

    Attributes
    ----------
    files : dict of str to list of Path
        By stage, in the order of the build.
    """

    def __init__(self, work: Path, folder: Path) -> None:
        self._work, self._folder, self._stage = work, folder, ""
        self._seen: set[tuple[str, int]] = set()
        self.files: dict[str, list[Path]] = {}

    def start(self, stage: str, total: int, unit: str) -> None:
        """Remember the stage."""
        self._stage = stage

    def finish(self, note: str = "") -> None:
        """Link what the stage has made."""
        for path in sorted(self._work.rglob("*.chunk")):
            made = str(path), path.stat().st_ino
            if made not in self._seen:
                self._seen.add(made)
                kept = self.files.setdefault(self._stage, [])
                link = self._folder / f"{self._stage}-{len(kept):06d}.chunk"
                os.link(path, link)
                kept.append(link)


def measure(run: Run) -> dict[str, Any]:
    """Make chunk files by each build, and measure those of each stage."""
    base = beginning(run.sets["sift1m"].base, ROWS, run.out / "data", "sift1m")
    folder = run.out / "chunks"
    found: list[dict[str, Any]] = []
    for name, parameters in BUILDS.items():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "kept").mkdir(parents=True)
        for stage, files in _chunk_files(base, folder, parameters).items():
            if records := list(_within(files)):
                told = _measured(records, folder, run.options.rounds or ROUNDS)
                found.append({"build": name, "stage": stage, "of_files": len(files), **told})
    shutil.rmtree(folder)
    return {"rows": len(read_bin(base)), "stages": found}


def _chunk_files(base: Path, folder: Path, parameters: dict[str, Any]) -> dict[str, list[Path]]:
    """Build an index, and throw it away; return the chunk files of its stages."""
    work = folder / "work"
    shared = {"seed": SEED, "workers": THREADS, "work": str(work)}
    spec, source = job_of(base, folder / "an.index", shared | parameters)
    kept = Kept(work, folder / "kept")
    run_build(spec, source, kept)
    return kept.files


def _measured(records: list[tuple[Records, int]], folder: Path, rounds: int) -> dict[str, Any]:
    """Write and sort files in turns, raw and compressed; `to_raw` has the figures of zstd over those of raw files."""
    done = [{how: _once(records, folder, how) for how in COMPRESSIONS} for _ in range(rounds)]
    first, batch_bytes = records[0]
    return {
        "files": len(records),
        "records": sum(len(one.keys) for one, _ in records),
        "payload": f"{first.payload.dtype}[{first.payload.shape[1]}]",
        "batch_bytes": batch_bytes,
        "bytes": {how: done[0][how]["bytes"] for how in COMPRESSIONS},
        "seconds": {
            how: {phase: over_rounds([turn[how][phase] for turn in done]) for phase in ("write_s", "sort_s")}
            for how in COMPRESSIONS
        },
        "to_raw": {
            phase: over_rounds([turn["zstd"][phase] / turn["none"][phase] for turn in done])
            for phase in ("bytes", "write_s", "sort_s", "both_s")
        },
    }


def _within(files: list[Path]) -> Iterator[tuple[Records, int]]:
    """Yield the records of the first files, of `_MOST_BYTES` together, each with the bytes of a batch."""
    left = _MOST_BYTES
    for path in files:
        left -= path.stat().st_size
        with ChunkFile(path) as file:
            batches = [file.read(i) for i in range(len(file.directory))]
            if batches:
                columns = (np.concatenate(parts) for parts in zip(*batches, strict=True))
                yield Records(*columns), int(file.directory["rows"].max()) * file.record_bytes
        if left <= 0:
            return


def _once(records: list[tuple[Records, int]], folder: Path, how: Compression) -> dict[str, float]:
    """Write files, sync them, drop them from the page cache and sort them; return bytes and seconds."""
    paths = [folder / f"{how}-{i}.chunk" for i in range(len(records))]
    began = time.perf_counter()
    for path, (one, batch_bytes) in zip(paths, records, strict=True):
        write_chunk(path, one, _ANY_KEY, compression=how, batch_bytes=batch_bytes)
        sync(path, Tally())
    write_s = time.perf_counter() - began
    for path in paths:
        forget(path)
    began = time.perf_counter()
    for _ in sorted_records(paths, *_ANY_KEY, buffer_bytes=_BUFFER_BYTES):
        pass
    sort_s = time.perf_counter() - began
    n_bytes = sum(path.stat().st_size for path in paths)
    for path in paths:
        path.unlink()
    return {"bytes": n_bytes, "write_s": write_s, "sort_s": sort_s, "both_s": write_s + sort_s}
