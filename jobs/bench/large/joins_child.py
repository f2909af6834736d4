"""One side of a part *join*: warm up, forget its files, search all queries once, print JSON.

The join writes its result file, as the command does. faiss chooses the lists of all queries once; then each batch is
searched while the next one is loaded, and results are merged by faiss's heap.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.common.disk import drop_cache
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.programs.faiss import load_faiss

#: Queries that warm up: kernels are loaded, and threads made.
_WARM = 16


def main() -> None:
    side, path, place, nprobe, memory, out = sys.argv[1:]
    queries, folder = np.array(read_bin(Path(path))), Path(place)
    search = _join(folder, int(nprobe), int(memory)) if side == "join" else _by_batches(folder, int(nprobe))
    search(queries[:_WARM])
    drop_cache(folder)
    began = time.perf_counter()
    answers = search(queries)
    seconds = time.perf_counter() - began
    np.save(out, answers())
    print(json.dumps({"seconds": seconds, "queries": len(queries)}))


def joined(queries: Any, index: Path, folder: Path, nprobe: int, memory: int | None = None) -> Any:
    """Return the vectors that a join finds, int64 (n_queries, K); its result lies in `folder` meanwhile."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        return _read(_write(queries, index, Path(work) / "r.parquet", nprobe, memory), len(queries))


def _join(index: Path, nprobe: int, memory: int) -> Callable[[Any], Callable[[], Any]]:
    """Return a join, which returns what reads its result file."""
    work = Path(tempfile.mkdtemp(dir=index.parent))

    def search(queries: Any) -> Callable[[], Any]:
        out = _write(queries, index, work / f"{len(queries)}.parquet", nprobe, memory)

        def answers() -> Any:
            found = _read(out, len(queries))
            out.unlink()
            work.rmdir()
            return found

        if len(queries) == _WARM:
            out.unlink()
        return answers

    return search


def _write(queries: Any, index: Path, out: Path, nprobe: int, memory: int | None) -> Path:
    from indexmill.pipeline.join.options import JoinOptions
    from indexmill.pipeline.join.run import run_join

    told: dict[str, Any] = {} if memory is None else {"memory": memory}
    run_join(queries, index, out, JoinOptions(K, nprobe, workers=THREADS, **told))
    return out


def _read(out: Path, n_queries: int) -> Any:
    import pyarrow.parquet as pq

    table = pq.read_table(out, columns=["query", "rank", "vector_id"])
    ids = np.full((n_queries, K), -1, np.int64)
    ids[table["query"].to_numpy(), table["rank"].to_numpy()] = table["vector_id"].to_numpy()
    return ids


def _by_batches(folder: Path, nprobe: int) -> Callable[[Any], Callable[[], Any]]:
    """Return a search of the files of a folder, one loaded while the one before is searched."""
    files = sorted(folder.glob("*.faiss"))

    def search(queries: Any) -> Callable[[], Any]:
        found = search_files(files[:1] if len(queries) == _WARM else files, queries, nprobe)
        return lambda: found

    return search


def search_files(files: Sequence[Path], queries: Any, nprobe: int) -> Any:
    """Return the vectors that faiss finds in all batches, int64 (n_queries, K)."""
    faiss = load_faiss()
    wanted = np.asarray(queries, np.float32)
    heap, chosen = faiss.ResultHeap(len(wanted), K), None
    with ThreadPoolExecutor(1) as loader:
        ahead = loader.submit(faiss.read_index, str(files[0]))
        for number in range(len(files)):
            batch = ahead.result()
            if number + 1 < len(files):
                ahead = loader.submit(faiss.read_index, str(files[number + 1]))
            if chosen is None:  # all batches have the same centroids
                chosen = batch.quantizer.search(wanted, nprobe)
            batch.nprobe = nprobe
            heap.add_result(*batch.search_preassigned(wanted, K, chosen[1], chosen[0]))
            del batch
    heap.finalize()
    return heap.I


if __name__ == "__main__":
    main()
