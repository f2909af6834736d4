"""Parts *ivf-...*: inverted lists of faiss, of two codecs, laid out and searched while they are mapped."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import SEED
from indexmill.jobs.bench.inplace.searching import MAPPED, MAPPED_LISTS, ORIGINAL, Files
from indexmill.jobs.bench.programs.faiss import coarse_quantizer, load_faiss

#: Lists, and how many of them a query probes.
LISTS, NPROBE = 16_384, 32
ORDERS = ("kmeans-pages",)
#: Ways to map a file, by their names in the record.
WAYS = {"mmap_ifc": MAPPED, "mmap": MAPPED_LISTS}
#: Vectors that centroids and codes are trained on, and steps of the k-means.
_SAMPLE, _ITERATIONS = 400_000, 4
#: Spread of the vectors that stand for one of the set, beside its bytes from 0 to 218.
_SPREAD = 8.0
_STEP = 100_000


class Codec(NamedTuple):
    """How rows are encoded.

    Attributes
    ----------
    chunks : int
        Bytes of a code of PQ, a chunk each; 0: the bytes of the vector as they are (`QT_8bit_direct`).
    copies : int
        Vectors for each of the set: itself, and others near it, so that small codes fill more than the slack of a
        memory limit.
    """

    chunks: int
    copies: int


CODECS = {"sq8": Codec(0, 1), "pq16": Codec(16, 8)}


def build(space: Run) -> dict[str, Any]:
    """Build the index of each codec over the same centroids of k-means, in faiss's own order."""
    faiss, base = load_faiss(), read_bin(space.sets["sift1m"].base)
    began = time.perf_counter()
    sample = np.array(base[:: max(1, len(base) // _SAMPLE)], np.float32)
    kmeans = faiss.Kmeans(base.shape[1], LISTS, niter=_ITERATIONS, seed=SEED)
    kmeans.train(sample)
    centroids = np.ascontiguousarray(kmeans.centroids, np.float32)
    coarse = coarse_quantizer(faiss, centroids)
    parts = [coarse.search(np.array(one, np.float32), 1)[1].ravel() for one in _blocks(base)]
    lists = np.concatenate(parts)
    centroids_s = time.perf_counter() - began
    found = {}
    for name, codec in CODECS.items():
        began = time.perf_counter()
        index = _index(faiss, coarse, codec)
        index.train(sample)
        _fill(faiss, index, base, lists, codec.copies)
        files = _files(space, name)
        files.folder.mkdir(parents=True, exist_ok=True)
        faiss.write_index(index, str(files.file(ORIGINAL)))
        found[name] = {
            "n_vectors": index.ntotal, "row_bytes": index.code_size + 8, "seconds": time.perf_counter() - began,
            "bytes": files.file(ORIGINAL).stat().st_size,
        }  # fmt: skip
    return {"lists": LISTS, "centroids_s": centroids_s, "codecs": found}


def layouts(space: Run) -> dict[str, Any]:
    """Write each file in each order; return what that costs."""
    return {"codecs": {name: _files(space, name).lay_out() for name in CODECS}}


def search(space: Run) -> dict[str, Any]:
    """Search each file and its layouts, in turns, mapped in both ways."""
    found = {
        name: {way: replace(_files(space, name), flag=flag).search() for way, flag in WAYS.items()}
        for name in CODECS
    }
    return {"nprobe": NPROBE, "codecs": found}


def _files(space: Run, name: str) -> Files:
    return Files(space.sets["sift1m"], space.out / "inplace" / f"ivf-{name}", ORDERS, NPROBE)


def _index(faiss: Any, coarse: Any, codec: Codec) -> Any:
    dim, n_lists = coarse.d, coarse.ntotal
    if codec.chunks:
        return faiss.IndexIVFPQ(coarse, dim, n_lists, codec.chunks, 8)
    kind = faiss.ScalarQuantizer.QT_8bit_direct
    return faiss.IndexIVFScalarQuantizer(coarse, dim, n_lists, kind, faiss.METRIC_L2, False)


def _fill(faiss: Any, index: Any, base: Any, lists: Any, copies: int) -> None:
    """Add `copies` of each vector, all but the first with normal deviations, to the list of the vector itself."""
    random, first = np.random.default_rng(SEED), 0
    for copy in range(copies):
        for rows in _blocks(base):
            vectors = np.array(rows, np.float32)
            if copy:
                vectors += random.normal(0, _SPREAD, vectors.shape).astype(np.float32)
            at = np.ascontiguousarray(lists[first % len(base) :][: len(vectors)])
            ids = np.arange(first, first + len(vectors))
            index.add_core(len(vectors), *map(faiss.swig_ptr, (vectors, ids, at)))
            first += len(vectors)


def _blocks(base: Any) -> Any:
    """Yield rows of `base` in parts."""
    for first in range(0, len(base), _STEP):
        yield base[first : first + _STEP]
