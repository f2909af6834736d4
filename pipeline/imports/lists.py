"""Import of another program's inverted lists: the same lists, centroids and codes, in batches.

Vectors are numbered by what the program calls them, ascending: from 0 on without a gap these are vector ids, and
else user ids. A name that stands in several lists is one vector.
Everything is read through maps, list by list, and written from front to back, once for each batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.builders.cluster.closure import NO_CELL
from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.imports.lists import ImportedLists
from indexmill.formats.imports.mapped import damaged
from indexmill.formats.index.ids import write_ids
from indexmill.formats.ivf.batch import batch_name, longest_first, write_batch
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, MAX_COPIES, Centroids, write_centroids
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.imports.graph import ImportOptions, check_times, fingerprints, times_of
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need
from indexmill.pipeline.kinds.common.record import emitted_manifest, seal
from indexmill.pipeline.kinds.ivf.certify import certify
from indexmill.pipeline.kinds.ivf.parameters import IvfParameters
from indexmill.pipeline.kinds.ivf.shape import IvfShape, with_batches
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.spec import DEFAULT_MEMORY

#: Bytes a row of the lists while vectors are numbered: names twice, their order, and ids; and of a list of a vector.
_NAME_BYTES, _CELL_BYTES = 28, 4
#: Rows handled at a time.
_STEP = 8192


@dataclass(frozen=True)
class _Names:
    """Names of the vectors of lists.

    Attributes
    ----------
    ids : uint32 array, shape (n_rows,)
        Vector ids, list after list.
    n, copies : int
        Vectors, and lists that one of them stands in at most.
    starts : int64 array, shape (n_lists + 1,)
        Where each list begins in `ids`.
    user_ids : pyarrow.Array or None
        By vector id.
    """

    ids: NDArray[np.uint32]
    n: int
    copies: int
    starts: NDArray[np.int64]
    user_ids: pa.Array | None

    def of(self, number: int) -> NDArray[np.uint32]:
        """Return the vector ids of a list."""
        return self.ids[self.starts[number] : self.starts[number + 1]]


def run_import_lists(
    index: ImportedLists, options: ImportOptions, progress: Progress | None = None
) -> dict[str, Any]:
    """Write and publish an index made of `index`.

    Memory: 28 bytes a row of the lists, 16 dim^2 bytes for a rotation, and blocks; the certificate of flat lists takes
    as much as that of a build.

    Returns
    -------
    dict
        The manifest, as published (docs/formats/manifest.md).

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change; nothing is left behind.
    """
    hold_little()
    _check_options(index, options)
    memory = options.memory or DEFAULT_MEMORY
    limits = RunOptions(options.out, memory, options.workers, options.force)
    run = GenerationRun(index.files[0], limits, progress)
    n_rows = int(index.sizes.sum())
    _check_memory(index, options, 4 * n_rows)
    before = times_of(index.files)
    with run.working() as scratch:
        check_free(scratch, 2 * n_rows * (index.shared.row_bytes + 4))
        with run.stage("check", n_rows, "rows") as advance:
            files = fingerprints(index.files)
            names = names_of(index, options)
            if index.shared.codec == "flat":
                _check_memory(index, options, names.n * names.copies)
            shared = replace(_with_norm(index, advance), n_vectors=names.n, copies=names.copies)
        shape = shape_of(shared, memory)
        emitted = scratch / "emit"
        emitted.mkdir()
        writing = ListsWriter(index, shared, names, shape)
        with run.stage("lists", n_rows, "rows") as advance:
            writing.emit(emitted, advance)
        with run.stage("certify", shape.n, "vectors"):
            certificate = writing.certify(scratch, options.workers)
        manifest = emitted_manifest(shape.parameters, _summary(shared, files, names), emitted)
        kept = {"from": index.kind, "files": files}
        manifest = replace(manifest, input={**manifest.input, "imported": kept}, certificate=certificate)
        check_times(index.files, before)
        return run.publish(emitted, manifest, "", {})


def _check_options(index: ImportedLists, options: ImportOptions) -> None:
    """Refuse what only graphs have, and another metric.

    Raises
    ------
    ConfigError
    """
    given = {"order": options.order != "identity", "pq_bytes": options.pq_bytes is not None}
    for name, wrong in given.items():
        if wrong:
            raise ConfigError(f"{name}: {index.files[0]} holds inverted lists, which have none; leave it out")
    if options.metric not in (None, index.shared.metric):
        raise ConfigError(
            f"metric: {options.metric}, but {index.files[0]} was built for {index.shared.metric}; leave it out"
        )


def _check_memory(index: ImportedLists, options: ImportOptions, n_cells: int) -> None:
    """Refuse a budget that names, centroids and a rotation do not fit, with room for so many lists of vectors.

    Raises
    ------
    BudgetError
    """
    n_rows, shared = int(index.sizes.sum()), index.shared
    matrices = shared.centroids.nbytes + shared.rotation_bytes
    need = _NAME_BYTES * n_rows + _CELL_BYTES * n_cells + 4 * matrices + FIXED_BYTES
    if options.memory is not None:
        check_need(f"importing {n_rows:,} rows takes", need, options.memory, ", or leave it out")


def shape_of(shared: Centroids, memory: int) -> IvfShape:
    """Return the shape of the index to write: batches are as large as those of a build with the same memory."""
    how: dict[str, Any] = {"codec": shared.codec}
    if shared.codebook is not None:
        rotation = "none" if shared.rotation is None else "opq"
        how = {"codec": "pq", "pq_bytes": shared.row_bytes, "pq_rotation": rotation}
    if shared.rabitq is not None:
        how["code_bits"] = shared.rabitq.bits
    parameters = IvfParameters(lists=shared.n_lists, metric=shared.metric, copies=shared.copies, **how)
    shape = IvfShape(shared.n_vectors, shared.dim, np.dtype(shared.dtype), 8.0, parameters)
    return with_batches(shape, memory)


def names_of(index: ImportedLists, options: ImportOptions) -> _Names:
    """Number the vectors by what the program calls them, ascending.

    Raises
    ------
    CorruptFile
        If a name stands twice in a list, or is negative.
    InputError
        If other ids were given, and not one for each vector.
    """
    starts = np.concatenate([[0], np.cumsum(index.sizes)])
    n_rows = int(starts[-1])
    found = np.empty(n_rows, np.int64)
    for number in np.flatnonzero(index.sizes).tolist():
        found[starts[number] : starts[number + 1]] = index.names(number)
        if len(np.unique(index.names(number))) < index.sizes[number]:
            raise damaged(index.files[0], f"ids of list {number}", "different ones", "one twice")
    order = np.argsort(found, kind="stable")
    ascending = found[order]
    del found
    if ascending[0] < 0:
        raise damaged(index.files[0], "ids of the lists", "numbers from 0 on", f"{ascending[0]:,}")
    is_first = np.concatenate([[True], ascending[1:] != ascending[:-1]])
    numbers = np.cumsum(is_first, dtype=np.uint32)
    numbers -= 1
    ids = np.empty(n_rows, np.uint32)
    ids[order] = numbers
    del order, numbers
    copies = 1  # the longest run of one name
    while copies <= MAX_COPIES and (ascending[copies:] == ascending[:-copies]).any():
        copies += 1
    if copies > MAX_COPIES:
        raise damaged(
            index.files[0], "ids of the lists", f"each in at most {MAX_COPIES} lists", "one in more"
        )
    ascending = ascending[is_first]
    n = len(ascending)
    plain = int(ascending[-1]) == n - 1
    user_ids = options.ids
    if user_ids is None and not plain:
        user_ids = pa.array(ascending)
    if user_ids is not None and len(user_ids) != n:
        raise InputError(f"{index.files[0]}: {len(user_ids):,} ids for {n:,} vectors; expected one for each")
    return _Names(ids, n, copies, starts, user_ids)


def _with_norm(index: ImportedLists, advance: Callable[[int], None]) -> Centroids:
    """Go through all rows: floats must be finite; returns `shared` with the largest norm, which ip has.

    Raises
    ------
    CorruptFile
        Naming the list.
    """
    shared, most = index.shared, 0.0
    floats = shared.codec == "flat" and np.dtype(shared.dtype).kind == "f"
    for number in np.flatnonzero(index.sizes).tolist():
        for first in range(0, int(index.sizes[number]) if floats else 0, _STEP):
            rows = index.rows(number, np.arange(first, min(first + _STEP, int(index.sizes[number]))))
            values = rows.view(shared.dtype)
            if not np.isfinite(values).all():
                raise damaged(
                    index.files[0], f"vectors of list {number}", "finite numbers", "NaN or infinity"
                )
            if shared.metric == "ip":
                user = values[:, :-1]
                most = max(most, float(np.einsum("ij,ij->i", user, user, dtype=np.float64).max()))
        advance(int(index.sizes[number]))
    return replace(shared, max_norm=float(np.sqrt(most)))


@dataclass(frozen=True)
class ListsWriter:
    """The index that is written from lists of another program; `shared` has what all its batches share."""

    index: ImportedLists
    shared: Centroids
    names: _Names
    shape: IvfShape

    def emit(self, folder: Path, advance: Callable[[int], None]) -> None:
        """Write the files of the index except its manifest, stamped."""
        shared, bounds = self.shared, list(pairwise(self.shape.batches))
        for number, (first, last) in enumerate(bounds):
            sizes = np.zeros(shared.n_lists, np.int64)
            for one in np.flatnonzero(self.index.sizes).tolist():
                ids = self.names.of(one)
                sizes[one] = np.count_nonzero((ids >= first) & (ids < last))
            pieces = self._pieces(longest_first(sizes)[: np.count_nonzero(sizes)], first, last, advance)
            n_vectors = last - first if shared.copies > 1 else None
            write_batch(
                folder / batch_name(number), number, first, sizes, shared.row_bytes, pieces, n_vectors
            )
        write_centroids(folder / CENTROIDS_NAME, replace(shared, n_batches=len(bounds)))
        write_ids(folder / "ids.imx", np.arange(self.shape.n, dtype=np.uint32), self.names.user_ids)
        facts = {
            "lists": shared.n_lists,
            "codec": shared.codec,
            "row_bytes": shared.row_bytes,
            "batches": [last - first for first, last in bounds],
        }
        seal(folder, {"ivf": facts})

    def _pieces(
        self, lists: NDArray[np.uint32], first: int, last: int, advance: Callable[[int], None]
    ) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint8]]]:
        """Yield ids and rows of some lists, of the vectors `first` to `last`, ids ascending in each list."""
        for number in lists.tolist():
            ids = self.names.of(number)
            mine = np.flatnonzero((ids >= first) & (ids < last))
            mine = mine[np.argsort(ids[mine])]
            for at in range(0, len(mine), _STEP):
                some = mine[at : at + _STEP]
                yield ids[some], self.index.rows(number, some)
                advance(len(some))

    def certify(self, scratch: Path, threads: int) -> dict[str, Any] | None:
        """Return the certificate of flat lists; None of codes, whose vectors are not there."""
        index, shared, names, n = self.index, self.index.shared, self.names, self.shape.n
        if shared.codec != "flat":
            return None
        vectors = create_npy(scratch / "vectors.npy", np.dtype(shared.dtype), (n, shared.dim))
        cells = np.full((n, names.copies), NO_CELL, np.uint32)
        filled = np.zeros(n, np.uint8)
        for number in np.flatnonzero(index.sizes).tolist():
            ids = names.of(number)
            cells[ids, filled[ids]] = number
            filled[ids] += 1
            for at in range(0, len(ids), _STEP):
                places = np.arange(at, min(at + _STEP, len(ids)))
                vectors[ids[places]] = index.rows(number, places).view(shared.dtype)
        return certify(vectors, cells, shared.centroids, self.shape.parameters.seed, threads)


def _summary(shared: Centroids, files: list[dict[str, Any]], names: _Names) -> InputSummary:
    """Return what the manifest says of the input; its fingerprint is that of the files."""
    digest = hashlib.sha256("".join(file["sha256"] for file in files).encode()).hexdigest()
    dim = shared.dim - (shared.metric == "ip")
    id_type = "none" if names.user_ids is None else str(names.user_ids.type)
    return InputSummary(shared.n_vectors, dim, shared.dtype, digest, shared.max_norm, [], [], [], id_type)
