"""Indexes of other lists than those of a merge: their vectors are assigned to its lists and coded by its codec.

Each becomes an index in the folder of a stage, whose rows the merge then takes as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.scalar import Scale, fit_scale
from indexmill.formats.errors import InputError
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import seal_files, write_manifest
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME, write_vectors
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, Centroids, write_centroids
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.append.lists.batches import Plan, coded, write_rows
from indexmill.pipeline.append.lists.held import read_cells, read_held
from indexmill.pipeline.append.lists.input import assigned, outside, range_of
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.lists.rewritten import needed_bytes as rewriting_bytes
from indexmill.pipeline.append.lists.run import coding_bytes
from indexmill.pipeline.generations.descent import made_of
from indexmill.pipeline.generations.kept import kept_user_ids, write_kept_metadata
from indexmill.pipeline.generations.node_space import SCALE_SLACK
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.generations.scratch import emptied
from indexmill.pipeline.kinds.common.memory import check_need
from indexmill.pipeline.kinds.common.metric import with_added_component

#: Rows put into their form at a time.
_BLOCK = 8192
#: Bytes that a reader of lists holds for each list of a batch, at most.
_BATCH_LIST_BYTES = 32


@dataclass(frozen=True)
class ListsForm:
    """The form of merged lists.

    Attributes
    ----------
    base : OpenedLists
        The index whose lists and codec the result has.
    shared : Centroids
        Those of `base`, for vectors up to the longest of all indexes.
    """

    base: OpenedLists
    shared: Centroids

    def coded_by(self, codebook: Codebook) -> ListsForm:
        """Return this form with another codebook."""
        return ListsForm(self.base, replaced(self.shared, codebook=codebook))

    def has_lists_of(self, index: OpenedLists) -> bool:
        """Tell whether vectors of `index` lie in the lists of this form already."""
        a, b = self.shared, index.files.centroids
        alike = (a.copies, a.max_norm) == (b.copies, b.max_norm)
        if a.copies > 1:
            alike &= index.parameters.closure == self.base.parameters.closure
        return alike and np.array_equal(a.centroids, b.centroids)

    @staticmethod
    def common(indexes: Sequence[OpenedLists], base: int) -> ListsForm:
        """Return the form that vectors of all `indexes` can take, with the lists of the one in place `base`."""
        longest = max(index.files.centroids.max_norm for index in indexes)
        return ListsForm(indexes[base], raised(indexes[base].files.centroids, longest))

    def difference(self, index: OpenedLists) -> str | None:
        """Return what keeps rows of `index` from being rows of this form; None if nothing does."""
        a, b = self.shared, index.files.centroids
        for what, expected, got in (
            ("codec", a.codec, b.codec),
            ("lists", a.n_lists, b.n_lists),
            ("most lists of a vector", a.copies, b.copies),
            ("bytes of a row", a.row_bytes, b.row_bytes),
            ("largest norm", a.max_norm, b.max_norm),
        ):
            if got != expected:
                return f"{what} {got}; expected {expected} as"
        of_index = _arrays(b)
        for what, array in _arrays(a).items():
            if not np.array_equal(array, of_index[what]):
                return f"other {what} than"
        return None

    def unlike(self, indexes: Sequence[OpenedLists]) -> list[int]:
        """Return the places of the indexes whose rows are not rows of this form."""
        return [at for at, index in enumerate(indexes) if self.difference(index) is not None]

    def stored(self, index: OpenedLists, rows: NDArray[Any]) -> NDArray[Any]:
        """Return vectors (m, dim), as `index` stores them, as this form does."""
        if index.files.centroids.max_norm == self.shared.max_norm:
            return rows
        return with_added_component(rows[:, :-1], self.shared.max_norm)


def raised(shared: Centroids, max_norm: float) -> Centroids:
    """Return centroids for vectors up to another, larger norm M' under inner product.

    A vector with the added component a gets ``sqrt(M'^2 - M^2 + a^2)``, and so do centroids. The range of sq8 becomes
    all that an added component may be. Codebooks and rotations stay.
    """
    if max_norm == shared.max_norm:
        return shared
    centroids = shared.restored(shared.centroids).copy()
    more = max_norm**2 - shared.max_norm**2
    centroids[:, -1] = np.sqrt(more + centroids[:, -1].astype(np.float64) ** 2)
    centroids = shared.compared(centroids)
    scale = shared.scale
    if scale is not None:
        whole = fit_scale(np.array([0.0]), np.array([max_norm]), 8)
        scale = scale.copy()
        scale[:, -1] = whole.minimum[0], whole.step[0]
    return replaced(shared, centroids=centroids, scale=scale, max_norm=max_norm)


def assigned_anew(
    form: ListsForm, index: OpenedLists, left: NDArray[np.int64], directory: Path, threads: int,
    advance: Callable[[int], None],
) -> None:  # fmt: skip
    """Write an index of the vectors `left` of `index`, which holds vectors, to an empty `directory` in this form.

    Raises
    ------
    InputError
        If the range of sq8 does not reach a component of a vector.
    """
    shared, base = form.shared, form.base
    scratch = directory / "scratch"
    with emptied(scratch):
        vectors = _vectors_of(form, index, left, scratch / "stored.npy")
        if form.has_lists_of(index):
            labels = np.empty((len(left), shared.copies), np.uint32)
            read_cells(index, left, labels)
            advance(len(left))
        else:
            labels = assigned(shared, base.parameters.closure, vectors, threads, advance)
        new = coded(shared, vectors, labels, scratch, lambda rows: None)
        plan = Plan(0, [*range(0, len(left), base.most_vectors), len(left)])
        write_rows(shared, new, plan, directory, lambda rows: None)
        sizes = np.diff(plan.bounds).tolist()
        write_centroids(
            directory / CENTROIDS_NAME, replaced(shared, n_vectors=len(left), n_batches=len(sizes))
        )
        write_ids(
            directory / "ids.imx", np.arange(len(left), dtype=np.uint32), kept_user_ids([index], [left])
        )
        write_kept_metadata(directory / METADATA_NAME, [index], [left])
        if base.vectors is not None:
            row, norm = base.vectors.row_format, shared.max_norm
            write_vectors(directory / VECTORS_NAME, row, len(left), shared.metric, vectors, norm)
    build_id, files = seal_files(directory, [path.name for path in directory.iterdir()])
    made = made_of([index.manifest], {**index.manifest.input, "n_vectors": len(left)}, build_id, files)
    of_base = base.manifest
    ivf = {key: value for key, value in of_base.ivf.items() if key != "drift"} | {"batches": sizes}
    write_manifest(directory, replaced(made, parameters=of_base.parameters, certificate=None, ivf=ivf))


def _vectors_of(form: ListsForm, index: OpenedLists, left: NDArray[np.int64], path: Path) -> NDArray[Any]:
    """Return the vectors `left` of `index` as `form` stores them, in a mapped file."""
    shared = form.shared
    vectors = create_npy(path, np.dtype(shared.dtype), (len(left), shared.dim))
    read_held(index, left, vectors, lambda rows: form.stored(index, rows))
    if shared.scale is not None:
        _check_range(form, index, vectors)
    return vectors


def _check_range(form: ListsForm, index: OpenedLists, vectors: NDArray[Any]) -> None:
    assert form.shared.scale is not None
    scale = Scale(form.shared.scale[0], form.shared.scale[1], 8)
    for first in range(0, len(vectors), _BLOCK):
        rows = vectors[first : first + _BLOCK]
        bad = np.argwhere(outside(scale, rows, SCALE_SLACK))
        if len(bad):
            row, j = bad[0]
            raise InputError(
                f"{index.name}: component {j} of a vector is {rows[row, j]:g}; sq8 lists of {form.base.name} hold "
                f"{range_of(scale, int(j))}; build one index of both inputs"
            )


def _arrays(shared: Centroids) -> dict[str, NDArray[Any]]:
    """Return what rows of lists stand for, by its name in errors."""
    found: dict[str, NDArray[Any]] = {"centroids": shared.centroids}
    if shared.scale is not None:
        found["scale of sq8"] = shared.scale
    if shared.codebook is not None:
        found |= {"pivots of pq": shared.codebook.pivots, "chunks of pq": shared.codebook.offsets}
    if shared.rotation is not None:
        found[f"rotation of {shared.codec}"] = shared.rotation
    return found


def needed_bytes(
    indexes: Sequence[OpenedLists], base: OpenedLists, anew: Sequence[OpenedLists], workers: int,
    training: int = 0,
) -> int:  # fmt: skip
    """Return the memory of a merge of `indexes` into the lists of `base`, of which those `anew` are assigned.

    Parameters
    ----------
    training : int
        Bytes that the choice of the codebook takes, or another one.
    """
    need = rewriting_bytes([base, *(index for index in indexes if index is not base)])
    if not anew:
        return need + training
    held = sum(8 * index.n + 3 * index.ids_bytes for index in anew)
    more = sum(max(0, -(-index.n // base.most_vectors) - len(index.files.batches)) for index in anew)
    held += _BATCH_LIST_BYTES * base.files.centroids.n_lists * more  # of the batches that they become
    return need + held + max(training, *(coding_bytes(base, index.n, workers) for index in anew))


def check_memory(
    form: ListsForm, indexes: Sequence[OpenedLists], anew: Sequence[int], options: RunOptions, training: int,
    hint: str,
) -> None:  # fmt: skip
    """Refuse a merge of `indexes`, of which those in the places `anew` are assigned, that does not fit the memory.

    Parameters
    ----------
    training
        As of `needed_bytes`.
    hint
        As of `check_need`.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    need = needed_bytes(indexes, form.base, [indexes[at] for at in anew], options.workers, training)
    n = sum(index.n for index in indexes)
    check_need(f"{n:,} vectors in {form.shared.n_lists:,} lists take", need, options.memory, hint)


def scratch_bytes(
    form: ListsForm, indexes: Sequence[OpenedLists], left: Sequence[int], anew: Sequence[int]
) -> int:
    """Return the room of a merge of `left` vectors of each index: its result, and indexes that are assigned anew."""
    result = sum(entry.bytes for index in indexes for entry in index.manifest.files)
    if anew:  # rows of the base have other sizes than those of others
        base = form.base
        result = max(result, sum(entry.bytes for entry in base.manifest.files) * sum(left) // base.n)
    return result + sum(assigned_bytes(form, indexes[at], left[at]) for at in anew)


def assigned_bytes(form: ListsForm, index: OpenedLists, n: int) -> int:
    """Return the room of `index`, of which `n` vectors stay, while it is assigned anew and then."""
    shared, keeps = form.shared, form.base.vectors is not None
    vector = shared.dim * np.dtype(shared.dtype).itemsize
    batches = -(-n // form.base.most_vectors)
    lists = n * shared.copies * (2 * shared.row_bytes + 4) + batches * shared.n_lists * PAGE_BYTES
    others = sum(entry.bytes for entry in index.manifest.files if entry.name in ("ids.imx", METADATA_NAME))
    return n * vector * (1 + keeps) + lists + others + shared.centroids.nbytes
