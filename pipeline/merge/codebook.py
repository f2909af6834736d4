"""The codebook of merged inverted lists: that of the largest build, or one of all vectors where its codes err too much.

Runs and plans decide by `anew_of`. Centroids are never trained: with others every vector would be assigned anew, which
is what a build does, and what the drift of the result advises where it pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.cluster.cells import Cells
from indexmill.builders.quantize.pq import TRAINING_VECTORS, encode_pq, train_pq
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.ivf.lists import ListReader
from indexmill.pipeline.append.codes import REBUILD_CODE_ERROR
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.kinds.common.encode import save_codebook
from indexmill.pipeline.merge.anew import ANEW_SHARE
from indexmill.pipeline.merge.assigned import ListsForm

#: Vectors by which it is told what codes of a new codebook would err: half of them train one, half are coded.
_TRIED = 8192
#: Rows whose residuals are computed at a time.
_BLOCK = 1024


class Anew(NamedTuple):
    """What a merge makes anew.

    Attributes
    ----------
    trains : bool
        Whether it trains a codebook on all vectors.
    places : list of int
        Places of the indexes whose vectors are assigned and coded; all where it trains.
    """

    trains: bool
    places: list[int]


def anew_of(form: ListsForm, indexes: Sequence[OpenedLists]) -> Anew:
    """Return what a merge of `indexes` into lists of `form` makes anew.

    Memory: `choice_bytes`.
    """
    if _is_trained_anew(form, indexes):
        return Anew(True, list(range(len(indexes))))
    return Anew(False, form.unlike(indexes))


def _is_trained_anew(form: ListsForm, indexes: Sequence[OpenedLists]) -> bool:
    """Tell whether codes of the vectors of other indexes err too much by the codebook of the base.

    They do where they err so many times what codes by a codebook of all would, as a graph's codes of added vectors may
    err times those of built ones (`append.codes`). More than a quarter of all vectors must be of other indexes, because
    all are coded anew; lists that do not hold their vectors cannot be.
    """
    if not can_be_trained(form):
        return False
    others = [index for index in indexes if index is not form.base]
    n, n_others = (sum(map(_left, some)) for some in (indexes, others))
    if n_others <= ANEW_SHARE * n:
        return False
    step = max(1, -(-n // _TRIED))
    own, theirs = (_residuals(form, some, step) for some in ([form.base], others))
    tried = _trained(form, np.concatenate([own[::2], theirs[::2]]), 1)
    coded = theirs[1::2] if len(theirs) > 1 else theirs
    codebook = form.shared.codebook
    assert codebook is not None
    return _error(coded, codebook) >= REBUILD_CODE_ERROR * _error(coded, tried) > 0


def train(form: ListsForm, indexes: Sequence[OpenedLists], directory: Path, threads: int) -> None:
    """Train a codebook on all vectors that are left, with as many bytes of a code, and write it to `directory`.

    A rotation stays as it is, so that centroids do.

    Memory: `choice_bytes`.
    """
    step = max(1, -(-sum(map(_left, indexes)) // _most(form)))
    save_codebook(_trained(form, _residuals(form, indexes, step), threads), directory)


def choice_bytes(form: ListsForm, indexes: Sequence[OpenedLists], trains: bool, threads: int) -> int:
    """Return the memory of `anew_of`, or that of `train`, if that is more and it trains."""
    if not can_be_trained(form):
        return 0
    trial = _bytes_of(form, indexes, _TRIED, 1)
    return max(trial, _bytes_of(form, indexes, _most(form), threads)) if trains else trial


def _bytes_of(form: ListsForm, indexes: Sequence[OpenedLists], most: int, threads: int) -> int:
    """Return the memory of `most` residuals, and in training; for each thread a chunk of them and its codes."""
    codebook, dim = form.shared.codebook, form.shared.dim
    assert codebook is not None
    drawn = min(most + 1, sum(map(_left, indexes)))  # a trial draws from two groups, and rounds up in each
    chunks = len(codebook.offsets) - 1
    chunk = drawn * (12 * -(-dim // chunks) + 24)
    finding = 3 * form.shared.centroids.nbytes + _BLOCK * (24 * dim + 128) + (16 << 20)
    finding += form.shared.rotation_bytes + 4 * _BLOCK * dim * (form.shared.rotation is not None)
    return finding + 8 * drawn * dim + min(threads, chunks) * chunk


def can_be_trained(form: ListsForm) -> bool:
    """Tell whether lists of this form have a codebook, and the vectors to train another one."""
    return form.shared.codebook is not None and form.base.vectors is not None


def _most(form: ListsForm) -> int:
    """Return how many vectors train a codebook at most."""
    return min(form.base.parameters.sample_vectors, TRAINING_VECTORS)


def _left(index: OpenedLists) -> int:
    return index.n - len(index.deleted)


def _trained(form: ListsForm, residuals: NDArray[np.float32], threads: int) -> Codebook:
    codebook = form.shared.codebook
    assert codebook is not None
    seed, chunks = form.base.parameters.seed, len(codebook.offsets) - 1
    trained = train_pq(residuals, chunks, seed=seed, threads=threads)
    return replaced(trained, rotation=codebook.rotation)


def _error(residuals: NDArray[np.float32], codebook: Codebook) -> float:
    """Return the mean squared error of the codes of residuals (m, dim), as `_residuals` returns them."""
    total, within = 0.0, codebook.of_rotated()
    for first in range(0, len(residuals), _BLOCK):
        rows = residuals[first : first + _BLOCK]
        difference = rows - within.decoded(encode_pq(rows, within))
        total += float(np.einsum("ij,ij->", difference, difference, dtype=np.float64))
    return total / len(residuals)


def _residuals(form: ListsForm, indexes: Sequence[OpenedLists], step: int) -> NDArray[np.float32]:
    """Return every one of `step` vectors that are left, minus their nearest centroids: float32 (m, dim), rotated."""
    found = np.empty((-(-sum(map(_left, indexes)) // step), form.shared.dim), np.float32)
    filled, skipped = 0, 0
    for index in indexes:
        ids = index.left[skipped::step].astype(np.uint32)
        _read(form, index, ids, found[filled : filled + len(ids)])
        filled, skipped = filled + len(ids), (skipped - _left(index)) % step
    centroids = form.shared.centroids
    cells = Cells(centroids, np.dtype(np.float32))
    for first in range(0, len(found), _BLOCK):
        rows = found[first : first + _BLOCK]
        rows[:] = form.shared.compared(rows)
        rows -= centroids[cells.nearest(rows)]
    return found


def _read(form: ListsForm, index: OpenedLists, ids: NDArray[np.uint32], vectors: NDArray[np.float32]) -> None:
    """Write the vectors `ids`, ascending, of `index` to `vectors`, shape (len(ids), dim), as `form` stores them."""
    if index.vectors is not None:
        for first in range(0, len(ids), _BLOCK):
            some = slice(first, first + _BLOCK)
            vectors[some] = form.stored(index, index.vectors.take(ids[some]))
        return
    with ListReader(index.files) as lists:
        for found, rows in lists.rows_of(ids):
            stored = rows.view(index.files.centroids.dtype)
            vectors[np.searchsorted(ids, found)] = form.stored(index, stored)
