"""The codebook of merged inverted lists: that of the largest build, or one of all vectors where its codes err too much.

Runs and plans decide by `anew_of`. Centroids are never trained: with others every vector would be assigned anew, which
is what a build does, and what the drift of the result advises where it pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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

    Memory: `trial_bytes`.
    """
    if _is_trained_anew(form, indexes):
        return Anew(True, list(range(len(indexes))))
    return Anew(False, [at for at, index in enumerate(indexes) if form.difference(index) is not None])


def _is_trained_anew(form: ListsForm, indexes: Sequence[OpenedLists]) -> bool:
    """Tell whether codes of the vectors of other indexes err too much by the codebook of the base.

    They do where they err so many times what codes by a codebook of all would, as a graph's codes of added vectors may
    err times those of built ones (`append.codes`). More than a quarter of all vectors must be of other indexes, because
    all are coded anew; lists that do not hold their vectors cannot be.
    """
    if not _can_be_trained(form):
        return False
    others = [index for index in indexes if index is not form.base]
    n, n_others = (sum(map(_left, some)) for some in (indexes, others))
    if n_others <= ANEW_SHARE * n:
        return False
    step = max(1, -(-n // _TRIED))
    own, theirs = (np.concatenate(list(_residuals(form, some, step))) for some in ([form.base], others))
    tried = _trained(form, np.concatenate([own[::2], theirs[::2]]), 1)
    coded = theirs[1::2] if len(theirs) > 1 else theirs
    codebook = form.shared.codebook
    assert codebook is not None
    return _error(coded, codebook) >= REBUILD_CODE_ERROR * _error(coded, tried) > 0


def train(form: ListsForm, indexes: Sequence[OpenedLists], directory: Path, threads: int) -> None:
    """Train a codebook on all vectors that are left, with as many bytes of a code, and write it to `directory`.

    Memory: `training_bytes`.
    """
    step = max(1, -(-sum(map(_left, indexes)) // _most(form)))
    rows = np.concatenate(list(_residuals(form, indexes, step)))
    save_codebook(_trained(form, rows, threads), directory)


def training_bytes(form: ListsForm, indexes: Sequence[OpenedLists], threads: int) -> int:
    """Return the memory of `train`."""
    return _bytes_of(form, indexes, _most(form), threads)


def trial_bytes(form: ListsForm, indexes: Sequence[OpenedLists]) -> int:
    """Return the memory of `anew_of`."""
    return _bytes_of(form, indexes, _TRIED, 1) if _can_be_trained(form) else 0


def _bytes_of(form: ListsForm, indexes: Sequence[OpenedLists], most: int, threads: int) -> int:
    """Return the memory of `most` residuals, joined, and in training; for each thread a chunk of them and its codes."""
    codebook, dim = form.shared.codebook, form.shared.dim
    assert codebook is not None
    drawn = min(most, sum(map(_left, indexes)))
    # of flat lists a row more is drawn from each, at most
    lists = sum(
        index.files.centroids.n_lists * len(index.files.batches) for index in indexes if _is_flat(index)
    )
    chunks = len(codebook.offsets) - 1
    chunk = drawn * (12 * -(-dim // chunks) + 24)
    finding = 3 * form.shared.centroids.nbytes + _BLOCK * (24 * dim + 128) + (16 << 20)
    return finding + 12 * (drawn + lists) * dim + min(threads, chunks) * chunk


def _can_be_trained(form: ListsForm) -> bool:
    return form.shared.codebook is not None and form.base.vectors is not None


def _most(form: ListsForm) -> int:
    """Return how many vectors train a codebook at most."""
    return min(form.base.parameters.sample_vectors, TRAINING_VECTORS)


def _left(index: OpenedLists) -> int:
    return index.n - len(index.deleted)


def _is_flat(index: OpenedLists) -> bool:
    """Tell whether an index holds its vectors in its lists alone."""
    return index.vectors is None


def _trained(form: ListsForm, residuals: NDArray[np.float32], threads: int) -> Codebook:
    codebook = form.shared.codebook
    assert codebook is not None
    return train_pq(residuals, len(codebook.offsets) - 1, seed=form.base.parameters.seed, threads=threads)


def _error(residuals: NDArray[np.float32], codebook: Codebook) -> float:
    """Return the mean squared error of the codes of residuals (m, dim)."""
    total = 0.0
    for first in range(0, len(residuals), _BLOCK):
        rows = residuals[first : first + _BLOCK]
        difference = rows - codebook.decoded(encode_pq(rows, codebook))
        total += float(np.einsum("ij,ij->", difference, difference, dtype=np.float64))
    return total / len(residuals)


def _residuals(form: ListsForm, indexes: Sequence[OpenedLists], step: int) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors that are left, every one of `step`, minus their nearest centroids."""
    centroids = form.shared.centroids
    cells = Cells(centroids, np.dtype(np.float32))
    yield np.empty((0, form.shared.dim), np.float32)
    for index in indexes:
        for rows in _rows(index, step):
            floats = np.asarray(form.stored(index, rows), np.float32)
            yield floats - centroids[cells.nearest(floats)]


def _rows(index: OpenedLists, step: int) -> Iterator[NDArray[Any]]:
    """Yield every one of `step` vectors that are left; of flat lists as large a share, from the middle of each list."""
    if index.vectors is not None:
        ids = index.left[::step].astype(np.uint32)
        for first in range(0, len(ids), _BLOCK):
            yield index.vectors.take(ids[first : first + _BLOCK])
        return
    with ListReader(index.files) as lists:
        for number in np.flatnonzero(lists.sizes).tolist():
            rows = lists.middle_rows(number, 1 / step).view(index.files.centroids.dtype)
            for first in range(0, len(rows), _BLOCK):
                yield rows[first : first + _BLOCK]
