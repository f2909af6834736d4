"""Graphs and inverted lists made by faiss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np


def make_hnsw(rows: np.ndarray, m: int = 6, metric: int = faiss.METRIC_L2) -> Any:
    faiss.omp_set_num_threads(1)
    index = faiss.IndexHNSWFlat(rows.shape[1], m, metric)
    index.add(rows)
    return index


def make_nsg(rows: np.ndarray, r: int = 9) -> Any:
    faiss.omp_set_num_threads(1)
    index = faiss.IndexNSGFlat(rows.shape[1], r)
    index.build_type = 0  # neighbours by brute force
    index.add(rows)
    return index


def make_ivf(rows: np.ndarray, factory: str, metric: int = faiss.METRIC_L2, ids: Any = None) -> Any:
    """Build an index by its name for `faiss.index_factory`; with `ids` in an index that takes them."""
    faiss.omp_set_num_threads(1)
    index = faiss.index_factory(rows.shape[1], factory, metric)
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is not None:
        ivf.cp.min_points_per_centroid = 1  # no warnings
    index.train(rows)
    if ids is None:
        index.add(rows)
    else:
        index.add_with_ids(rows, ids)
    return index


def write_on_disk(index: Any, path: Path) -> Path:
    """Write an index whose lists are in a file beside `path`; return that file."""
    ivf = faiss.extract_index_ivf(index)
    beside = path.with_suffix(".ivfdata")
    lists = faiss.OnDiskInvertedLists(ivf.nlist, ivf.code_size, str(beside))
    parts = faiss.InvertedListsPtrVector()
    parts.push_back(ivf.invlists)
    lists.merge_from_multiple(parts.data(), parts.size())
    ivf.replace_invlists(lists, False)
    faiss.write_index(index, str(path))
    return beside


def lists_of(path: Path) -> dict[str, Any]:
    """What faiss itself reads: centroids, ids and codes of each list, and what belongs to no list."""
    index = faiss.read_index(str(path), faiss.IO_FLAG_ONDISK_SAME_DIR)
    ivf = faiss.extract_index_ivf(index)
    lists, sizes = ivf.invlists, [ivf.invlists.list_size(number) for number in range(ivf.nlist)]

    def copied(pointer: Any, n: int) -> bytes:
        return faiss.rev_swig_ptr(pointer, n).tobytes() if n else b""

    outer = [index.d, index.ntotal, index.metric_type, ivf.metric_type, ivf.nprobe, ivf.code_size]
    if isinstance(index, faiss.IndexIDMap):
        outer.append(faiss.vector_to_array(index.id_map).tolist())
    return {
        "kind": (type(index), type(ivf)),
        "outer": outer,
        "centroids": ivf.quantizer.reconstruct_n(0, ivf.nlist),
        "ids": [copied(lists.get_ids(number), size) for number, size in enumerate(sizes)],
        "codes": [copied(lists.get_codes(number), size * ivf.code_size) for number, size in enumerate(sizes)],
    }
