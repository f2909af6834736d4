"""Certificates of compacted lists and tables: those that a build of the vectors that are left measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.index.manifest import Manifest, write_manifest
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.append.lists.held import read_cells, read_held
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.generations.kept import copy_kept
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.kinds.common.memory import exact_bytes
from indexmill.pipeline.kinds.ivf import certify as ivf
from indexmill.pipeline.kinds.lsh import certify as lsh

#: File of the vectors that are left, in the scratch directory.
_VECTORS = "certified.npy"


def lists_certificate(
    lists: OpenedLists, left: NDArray[np.int64], scratch: Path, threads: int
) -> dict[str, Any] | None:
    """Return the certificate of the vectors `left` of lists that hold vectors; those stay in their lists.

    Memory: `lists_bytes`. Vectors and the lists of each are mapped files in `scratch`.
    """
    shared, n = lists.files.centroids, len(left)
    vectors = create_npy(scratch / _VECTORS, np.dtype(shared.dtype), (n, shared.dim))
    read_held(lists, left, vectors)
    cells = create_npy(scratch / "cells.npy", np.dtype(np.uint32), (n, shared.copies))
    read_cells(lists, left, cells)
    centroids = shared.restored(shared.centroids)
    return ivf.certify(vectors, cells, centroids, lists.parameters.seed, threads)


def lists_bytes(lists: OpenedLists, n: int, threads: int) -> int:
    """Return the memory of the certificate of `n` vectors of `lists`, beside what rewriting these takes."""
    shared = lists.files.centroids
    return exact_bytes(n, shared.dim, QUERIES, K, threads) + 24 * QUERIES * shared.n_lists


def lists_scratch_bytes(lists: OpenedLists, n: int) -> int:
    """Return the room of the files of `lists_certificate`."""
    shared = lists.files.centroids
    return n * (shared.dim * np.dtype(shared.dtype).itemsize + 4 * shared.copies)


def tables_certificate(
    tables: OpenedTables, left: NDArray[np.int64], directory: Path, manifest: Manifest, scratch: Path, threads: int
) -> dict[str, Any] | None:  # fmt: skip
    """Return the certificate of the tables in `directory`, of the vectors `left` of `tables`, under this manifest.

    Memory: `generations.tables.memory.certified_bytes`. Vectors are a mapped file in `scratch`.
    """
    row = tables.files.vectors.row_format
    vectors = create_npy(scratch / _VECTORS, row.element_dtype, (len(left), row.dim))
    copy_kept(tables.files.vectors, left, vectors)
    write_manifest(directory, manifest)
    return lsh.measure(lsh.mapped(str(directory)), vectors, tables.metric, tables.parameters.seed, threads)
