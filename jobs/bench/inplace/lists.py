"""Part *lists*: page reads of inverted lists in the order of their numbers, and with near lists side by side.

A count, of the bytes that faiss's file has for the lists that a query probes; nothing is searched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.bench.common.dataset import Dataset, read_bin
from indexmill.jobs.bench.common.parameters import SEED
from indexmill.jobs.bench.programs.faiss import load_faiss
from indexmill.layout.kmeans_pages import KmeansPagesOrder
from indexmill.layout.order import Adjacency, invert

#: Lists, and how many of them a query probes.
LISTS, NPROBES = 2048, (4, 32)
#: Bytes of a row, beside the 8 of its id: float32, one byte a component, product quantizers of 16 and 8 bytes.
ROWS = {"flat": 512, "sq8": 128, "pq16": 16, "pq8": 8}
#: What one read brings: a page, and a block of object storage.
UNITS = (4096, 65_536)
_SAMPLE, _ITERATIONS, _ID_BYTES = 100_000, 8, 8


def measure(data: Dataset, n_vectors: int) -> dict[str, Any]:
    """Return reads a query by bytes of a row, probes and unit: in the order of numbers, and in that of k-means."""
    faiss = load_faiss()
    base, queries = read_bin(data.base)[:n_vectors], np.array(read_bin(data.query), np.float32)
    kmeans = faiss.Kmeans(base.shape[1], LISTS, niter=_ITERATIONS, seed=SEED)
    kmeans.train(np.array(base[:_SAMPLE], np.float32))
    sizes = np.zeros(LISTS, np.int64)
    for first in range(0, len(base), _SAMPLE):
        nearest = kmeans.index.search(np.array(base[first : first + _SAMPLE], np.float32), 1)[1]
        sizes += np.bincount(nearest.ravel(), minlength=LISTS)
    centroids = np.ascontiguousarray(kmeans.centroids, np.float32)
    nobody = Adjacency(np.zeros((LISTS, 1), np.uint32), np.zeros(LISTS, np.int32))
    order = KmeansPagesOrder().fit(nobody, centroids, 1, SEED)
    probed = kmeans.index.search(queries, max(NPROBES))[1]
    rows = [
        {
            "codec": codec, "row_bytes": size, "nprobe": nprobe, "unit": unit,
            "numbers": reads(np.arange(LISTS), sizes * (size + _ID_BYTES), probed[:, :nprobe], unit),
            "near": reads(order, sizes * (size + _ID_BYTES), probed[:, :nprobe], unit),
        }
        for codec, size in ROWS.items() for nprobe in NPROBES for unit in UNITS
    ]  # fmt: skip
    return {"lists": LISTS, "n_vectors": len(base), "rows": rows}


def reads(order: NDArray[Any], sizes: NDArray[np.int64], probed: NDArray[np.int64], unit: int) -> float:
    """Return the mean number of units that hold the lists of a query.

    Parameters
    ----------
    order : integer array, shape (n_lists,)
        List in each place of the file.
    sizes : int64 array, shape (n_lists,)
        Bytes of each list.
    probed : int64 array, shape (n_queries, nprobe)
    """
    ends = np.cumsum(sizes[order])[invert(order.astype(np.uint32))]
    counts = []
    for lists in probed:
        there = lists[sizes[lists] > 0]
        there = there[np.argsort(ends[there])]
        first, last = (ends - sizes)[there] // unit, (ends[there] - 1) // unit
        counts.append(
            (last - first + 1).sum() - (first[1:] == last[:-1]).sum()
        )  # a unit of two lists is one read
    return float(np.mean(counts))
