"""Lay files of faiss out and search them with faiss, mapped, where memory holds half of the file.

Parts: `build` makes an IndexHNSWFlat; `layouts` writes it in several orders; `search` compares queries a second and
answers, in turns, each process in a control group with page cache for half of the file. `ivf-build`, `ivf-layouts` and
`ivf-search` do the same with inverted lists; `lists` counts what an order of lists saves by bytes of a row. Needs
faiss-cpu, leave to make a control group, and about 30 minutes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.inplace import ivf, lists
from indexmill.jobs.bench.inplace.child import GROUP
from indexmill.jobs.bench.inplace.searching import ORIGINAL, ROUNDS, Files
from indexmill.jobs.bench.programs.faiss import load_faiss

#: Vectors; places of a list on higher levels, candidates of the build, and of a search.
ROWS, M, BUILD_LIST, SEARCH_LIST = 500_000, 32, 40, 64
ORDERS = ("star", "kmeans-pages", "agglomerative")
_STEP = 50_000


def build(space: Run) -> dict[str, Any]:
    """Build faiss's index of the first vectors, as float32."""
    base = read_bin(_data(space).base)[:ROWS]
    faiss = load_faiss()
    index = faiss.IndexHNSWFlat(base.shape[1], M)
    index.hnsw.efConstruction = BUILD_LIST
    began = time.perf_counter()
    for first in range(0, len(base), _STEP):
        index.add(np.array(base[first : first + _STEP], np.float32))
    seconds = time.perf_counter() - began
    files = _files(space)
    files.folder.mkdir(parents=True, exist_ok=True)
    faiss.write_index(index, str(files.file(ORIGINAL)))
    return {
        "n_vectors": len(base), "M": M, "build_list": BUILD_LIST, "seconds": seconds,
        "bytes": files.file(ORIGINAL).stat().st_size,
    }  # fmt: skip


def layouts(space: Run) -> dict[str, Any]:
    """Write the file in each order; return what that costs."""
    return _files(space).lay_out()


def search(space: Run) -> dict[str, Any]:
    """Search the original and each layout, in turns."""
    return {"list_size": SEARCH_LIST, **_files(space).search(), "recall": _recall(space)}


def inverted(space: Run) -> dict[str, Any]:
    """Count page reads of inverted lists in two orders."""
    return lists.measure(_data(space), ROWS)


def _data(space: Run) -> Dataset:
    return space.sets["sift1m"]


def _files(space: Run) -> Files:
    return Files(_data(space), space.out / "inplace", ORDERS, SEARCH_LIST)


def _recall(space: Run) -> dict[str, float]:
    """Return the share of results no farther than the K-th true neighbour."""
    data = _data(space)
    queries = np.asarray(read_bin(data.query))
    queries = queries[len(queries) // 2 :]
    farthest = exact_neighbours(read_bin(data.base)[:ROWS], queries, K, THREADS)[1][:, -1]
    found = {}
    for name in (ORIGINAL, *ORDERS):
        distances = np.load(_files(space).answers(name))["distances"]
        found[name] = float((distances <= farthest[: len(distances), None]).mean())
    return found


BENCHMARK = Benchmark[Run](
    "inplace",
    {
        "build": build, "layouts": layouts, "search": search, "ivf-build": ivf.build, "ivf-layouts": ivf.layouts,
        "ivf-search": ivf.search, "lists": inverted,
    },
    targets=(
        Target("faiss HNSW mapped in half its memory: queries a second, laid out / original",
               "search.ratio['kmeans-pages']", ">=", 1.5, "x"),
        Target("queries with the same answers, ties excepted", "search.same['kmeans-pages'].answers", ">=", 1.0),
        Target("faiss IVF, pq16, mapped by IO_FLAG_MMAP in half its memory: queries a second, laid out / original",
               "ivf_search.codecs.pq16.mmap.ratio['kmeans-pages']", ">=", 1.5, "x"),
        *(
            Target(f"IVF, {codec}, {ivf.WAYS[way]}: queries with the same answers, ties excepted",
                   f"ivf_search.codecs.{codec}.{way}.same['kmeans-pages'].answers", ">=", 1.0)
            for codec in ivf.CODECS for way in ivf.WAYS
        ),
    ),
    parameters={
        "rows": ROWS, "M": M, "build_list": BUILD_LIST, "search_list": SEARCH_LIST, "threads": THREADS,
        "rounds": ROUNDS, "group": GROUP, "ivf_lists": ivf.LISTS, "nprobe": ivf.NPROBE,
    },
    peers=("faiss-cpu",),
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
