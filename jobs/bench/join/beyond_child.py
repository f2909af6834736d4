"""One side of part *beyond*: warm up, say how much memory that takes, wait for the limit, search, print JSON.

Searches of mapped lists end after a time, with as many queries as they were through with by then.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.builders.lists.scan_lists import scan_rows
from indexmill.formats.kernel import kernel
from indexmill.jobs.bench.common.dataset import Dataset, read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import memory_of
from indexmill.jobs.bench.programs.faiss import load_faiss

#: Queries that warm up: kernels are loaded, threads made, and working memory is had once that grows with the queries.
#: A join reads past the page cache, so that it may warm up on all of them; the others must not bring lists in.
_WARM = {"bss": None, "mapped": 16, "faiss-ondisk": 16}
#: Seconds after which a mapped search begins no more queries, and queries that it begins at a time.
_MOST_SECONDS, _CHUNK = 30.0, 50


def main() -> None:
    side, folder, index, nprobe, k, advice = sys.argv[1:]
    queries = np.array(read_bin(Dataset(Path(folder)).query))
    made = {"bss": bss, "mapped": mapped, "faiss-ondisk": ondisk}[side]
    search = made(Path(index), int(nprobe), int(k), advice == "random")
    search(queries[: _WARM[side]])
    print(memory_of()["RssAnon"], flush=True)  # a limit of page cache comes on top of it
    sys.stdin.readline()
    began = time.perf_counter()
    ids = search(queries) if side == "bss" else _until(began + _MOST_SECONDS, search, queries)
    seconds = time.perf_counter() - began
    digest = hashlib.sha256(np.ascontiguousarray(ids, np.int64).data).hexdigest()
    print(json.dumps({"seconds": seconds, "queries": len(ids), "digest": digest}))


def _until(end: float, search: Callable[[Any], Any], queries: Any) -> Any:
    """Search queries in their order until it is late."""
    found = []
    for first in range(0, len(queries), _CHUNK):
        found.append(search(queries[first : first + _CHUNK]))
        if time.perf_counter() > end:
            break
    return np.concatenate(found)


def bss(index: Path, nprobe: int, k: int, random: bool) -> Callable[[Any], Any]:
    """Return a join as the command runs it, its result file read back."""
    import pyarrow.parquet as pq

    from indexmill.pipeline.join.options import JoinOptions
    from indexmill.pipeline.join.run import run_join

    def search(queries: Any) -> Any:
        with tempfile.TemporaryDirectory(dir=index.parent) as folder:
            out = Path(folder) / "r.parquet"
            run_join(queries, index, out, JoinOptions(k, nprobe, workers=THREADS))
            table = pq.read_table(out, columns=["query", "rank", "vector_id"])
        ids = np.full((len(queries), k), -1, np.int64)
        ids[table["query"].to_numpy(), table["rank"].to_numpy()] = table["vector_id"].to_numpy()
        return ids

    return search


def mapped(index: Path, nprobe: int, k: int, random: bool) -> Callable[[Any], Any]:
    """Return the same search through virtual memory: query after query, its lists wherever they are mapped."""
    from indexmill.builders.lists.rows import Lists
    from indexmill.builders.nearest.panels import NO_SCORE, NOTHING
    from indexmill.formats.ivf.batch import ids_offset
    from indexmill.formats.ivf.index import IvfFiles
    from indexmill.formats.pagefile.frame import PAGE_BYTES
    from indexmill.pipeline.join.search import Search
    from indexmill.reader.threads import BlockPool

    files = IvfFiles(index)
    dim, chooser = files.centroids.dim, Search(files.centroids, k, nprobe, THREADS)
    with files.open_batch(0) as batch:
        # private, since kernels are compiled for arrays that may be written
        data = np.asarray(np.memmap(batch.path, np.uint8, "c"))
        if random:
            _advise_random(data.ctypes.data, len(data))
        entries, first_page = batch.directory, batch.file.section_entry("lists").first_page
    at = (first_page + entries["first_page"].astype(np.int64)) * PAGE_BYTES
    sizes = entries["size"].astype(np.int64)
    lists = Lists(
        data, entries["list"].astype(np.uint32), sizes, at, data[: len(data) // 4 * 4].view(np.uint32)
    )
    id_starts = (at + ids_offset(sizes, dim)) // 4
    places = np.empty(len(entries), np.int64)
    places[entries["list"]] = np.arange(len(entries))

    def search(queries: Any) -> Any:
        scores = np.full((len(queries), k), NO_SCORE, np.int32)
        found = np.full((len(queries), k), NOTHING, np.uint32)
        with threadpool_limits(1):
            chosen = places[chooser.choose(queries)]

        def some(first: int, last: int) -> None:
            _scan_mapped(queries, chosen, lists, id_starts, first, last, scores, found)

        with BlockPool(THREADS) as pool:
            pool.run(some, len(queries), 1)
        return found

    return search


@kernel
def _scan_mapped(
    queries: Any, chosen: Any, lists: Any, id_starts: Any, first: Any, last: Any, scores: Any, found: Any
) -> None:
    near, numbers = np.empty(1024, np.float32), np.arange(1024, dtype=np.uint32)
    tile, mine = np.empty((1, 1024), np.int32), np.empty(1, np.int64)
    for i in range(first, last):
        mine[0] = i
        for p in range(chosen.shape[1]):
            e = chosen[i, p]
            scan_rows(
                queries, mine, lists, e, id_starts[e], queries.shape[1], near, numbers, tile, scores, found
            )


def ondisk(index: Path, nprobe: int, k: int, random: bool) -> Callable[[Any], Any]:
    """Return faiss's search of lists on the disk; it reads ahead with threads of its own."""
    faiss = load_faiss()
    made = faiss.read_index(str(index))
    made.nprobe = nprobe
    if random:
        lists = faiss.downcast_InvertedLists(made.invlists)
        _advise_random(int(lists.ptr), lists.totsize)
    return lambda queries: made.search(queries.astype(np.float32), k)[1]


def _advise_random(address: int, n_bytes: int) -> None:
    """Tell the kernel to bring in the page of a fault alone, without what its device reads ahead."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(n_bytes), mmap.MADV_RANDOM):
        raise OSError(ctypes.get_errno(), "madvise")


if __name__ == "__main__":
    main()
