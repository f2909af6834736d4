"""faiss beside a join: the same centroids, the same number of probes, in memory and on the disk."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from indexmill.formats.ivf.index import IvfFiles
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
    centroids = files.centroids.centroids
    coarse = coarse_quantizer(faiss, centroids)
    made = faiss.IndexIVFFlat(coarse, centroids.shape[1], len(centroids))
    made.is_trained = True
    _add(made, data)
    return made


def byte_index(faiss: Any, files: IvfFiles, data: Dataset) -> Any:
    """Return an index of the vectors in memory whose lists hold bytes as bytes (`QT_8bit_direct`), as ours."""
    centroids = files.centroids.centroids
    coarse = coarse_quantizer(faiss, centroids)
    dim, kind = centroids.shape[1], faiss.ScalarQuantizer.QT_8bit_direct
    made = faiss.IndexIVFScalarQuantizer(coarse, dim, len(centroids), kind, faiss.METRIC_L2, False)
    made.is_trained = True
    _add(made, data)
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
