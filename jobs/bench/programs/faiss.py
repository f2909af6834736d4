"""faiss beside a join: the same centroids, the same number of probes, in memory and on the disk."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.ivf.lists import ListReader
from indexmill.jobs.bench.common.dataset import Dataset, read_bin
from indexmill.jobs.bench.common.parameters import THREADS

#: Rows that faiss gets at a time.
_ROWS = 250_000


def load_faiss() -> Any:
    """Import faiss; its OpenBLAS may not know the processor, so it is told the core that numpy's found."""
    blas = next(one for one in threadpool_info() if one["user_api"] == "blas")
    os.environ.setdefault("OPENBLAS_CORETYPE", blas.get("architecture", ""))
    faiss = importlib.import_module("faiss")
    faiss.omp_set_num_threads(THREADS)
    return faiss


def coarse_quantizer(faiss: Any, centroids: Any) -> Any:
    """Return faiss's brute force over the centroids of an index."""
    made = faiss.IndexFlatL2(centroids.shape[1])
    made.add(centroids.copy())
    return made


def flat_index(faiss: Any, files: IvfFiles, data: Dataset) -> Any:
    """Return an `IndexIVFFlat` of the vectors in memory."""
    made = _of_floats(faiss, files)
    _add(made, data)
    return made


def byte_index(faiss: Any, files: IvfFiles, data: Dataset) -> Any:
    """Return an index of the vectors in memory whose lists hold bytes as bytes (`QT_8bit_direct`), as ours."""
    made = _of_bytes(faiss, files)
    _add(made, data)
    return made


def write_batches(faiss: Any, files: IvfFiles, folder: Path, pieces: int, *, as_floats: bool) -> None:
    """Write each batch of an index of bytes as `pieces` files of faiss, unless they are there.

    A list of a piece has its share of the rows of that list in the batch, with their vector ids. Memory: a batch.
    """
    for number in range(len(files.batches)):
        paths = [folder / f"{number:03d}-{piece}.faiss" for piece in range(pieces)]
        if all(path.exists() for path in paths):
            continue
        folder.mkdir(exist_ok=True)
        made = [(_of_floats if as_floats else _of_bytes)(faiss, files) for _ in paths]
        with ListReader(files, [number]) as lists:
            for one in np.flatnonzero(lists.sizes).tolist():
                ids = np.concatenate(list(lists.ids(one))).astype(np.int64)
                rows = np.concatenate(list(lists.rows(one)))
                rows = rows.astype(np.float32).view(np.uint8) if as_floats else rows
                for at, index in enumerate(made):
                    part = slice(len(ids) * at // pieces, len(ids) * (at + 1) // pieces)
                    _add_entries(faiss, index, one, ids[part], rows[part])
        for path, index in zip(paths, made, strict=True):
            faiss.write_index(index, str(path))


def _add_entries(faiss: Any, made: Any, number: int, ids: Any, codes: Any) -> None:
    if len(ids):
        made.invlists.add_entries(number, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(codes))
        made.ntotal += len(ids)


def _of_floats(faiss: Any, files: IvfFiles) -> Any:
    """Return an empty `IndexIVFFlat` with the centroids of an index."""
    centroids = files.centroids.centroids
    made = faiss.IndexIVFFlat(coarse_quantizer(faiss, centroids), centroids.shape[1], len(centroids))
    made.is_trained = True
    return made


def _of_bytes(faiss: Any, files: IvfFiles) -> Any:
    """Return an empty index of bytes with the centroids of an index."""
    centroids = files.centroids.centroids
    coarse = coarse_quantizer(faiss, centroids)
    dim, kind = centroids.shape[1], faiss.ScalarQuantizer.QT_8bit_direct
    made = faiss.IndexIVFScalarQuantizer(coarse, dim, len(centroids), kind, faiss.METRIC_L2, False)
    made.is_trained = True
    return made


def write_ondisk(faiss: Any, files: IvfFiles, data: Dataset, folder: Path) -> Path:
    """Write a `byte_index` whose lists lie in a mapped file."""
    folder.mkdir(parents=True, exist_ok=True)
    made = byte_index(faiss, files, data)
    lists = faiss.OnDiskInvertedLists(made.nlist, made.code_size, str(folder / "lists.ivfdata"))
    parts = faiss.InvertedListsPtrVector()
    parts.push_back(made.invlists)
    lists.merge_from_multiple(parts.data(), parts.size())
    made.replace_invlists(lists, False)
    faiss.write_index(made, str(folder / "lists.faiss"))
    return folder / "lists.faiss"


def _add(made: Any, data: Dataset) -> None:
    base = read_bin(data.base)
    for first in range(0, len(base), _ROWS):
        made.add(np.asarray(base[first : first + _ROWS], np.float32))
