"""Indexes of every kind, opened and checked for an export, with their ids and metadata."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, CorruptFile
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.lists import ExportedLists
from indexmill.formats.exports.rows import ExportedIndex, Ids
from indexmill.formats.exports.tables import ExportedTables
from indexmill.formats.exports.target import Target
from indexmill.formats.exports.targets import TARGETS
from indexmill.formats.index.deleted import read_deleted
from indexmill.formats.index.manifest import Manifest, check_size, parse_manifest
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.together import read_together
from indexmill.formats.index.vectors import VECTORS_NAME, VectorsFile
from indexmill.formats.ivf.index import IvfFiles, vectors_problems
from indexmill.formats.ivf.lists import ListReader
from indexmill.formats.lsh.index import LshFiles
from indexmill.formats.pagefile.frame import corrupt
from indexmill.pipeline.export.metadata import MappedMetadata
from indexmill.pipeline.generations.opened import OpenedIndex, check_there, open_metadata

#: Opens an index: what a target sees, with metadata of no columns, and the file of its metadata.
_Opener = Callable[[ExitStack, Path, Manifest, Ids], tuple[ExportedIndex, pq.ParquetFile | None]]


@dataclass(frozen=True)
class OpenedExport:
    """An index of some kind as a target sees it, and the file of its metadata."""

    _bare: ExportedIndex
    _metadata: pq.ParquetFile | None
    _by_row: bool

    @property
    def n_deleted(self) -> int:
        """Number of deleted vectors."""
        return 0 if self._bare.deleted is None else int(self._bare.deleted.sum())

    @property
    def needs_compaction(self) -> bool:
        """Whether vectors were deleted, and the target holds a whole graph, all lists or all tables."""
        return self._bare.deleted is not None and not self._by_row

    def described(self) -> ExportedIndex:
        """Return the index with metadata of no rows: what a target needs to tell whether it can hold what is left."""
        schema = pa.schema([]) if self._metadata is None else self._metadata.schema_arrow
        return replace(self._bare.without_deleted(), metadata_of=lambda ids: schema.empty_table())

    @contextmanager
    def view(self, scratch: Path) -> Iterator[ExportedIndex]:
        """Yield the index; its metadata lie in the file `scratch` meanwhile."""
        seen = self._bare.by_row() if self._by_row else self._bare
        if self._metadata is None:
            yield seen
            return
        rows = MappedMetadata(self._metadata, scratch)
        try:
            yield replace(seen, metadata_of=rows.take)
        finally:
            rows.close()
            scratch.unlink()


@contextmanager
def open_exported(index: str | os.PathLike[str], target: Target[Any], ids: Ids) -> Iterator[OpenedExport]:
    """Open an index of the kind that `target` holds.

    Raises
    ------
    ConfigError
        If it is of another kind, its graph has vertices that no path leads to, or all vectors were deleted.
    InputError
        If there is no index.
    FormatError
        If a part is damaged.
    """
    path = Path(index)
    check_there(path)
    opened, files = read_together(path, lambda: _open(path, target, ids))
    with files:
        yield opened


def _open(path: Path, target: Target[Any], ids: Ids) -> tuple[OpenedExport, ExitStack]:
    """Open an index and return what closes its files, too."""
    manifest = parse_manifest(path)
    if manifest.kind not in target.kinds:
        fitting = ", ".join(name for name, one in TARGETS.items() if manifest.kind in one.kinds)
        raise ConfigError(
            f"to: {target.name} holds indexes of kind {' or '.join(target.kinds)}, but {path} is of kind "
            f"{manifest.kind}; export it to one of {fitting}"
        )
    will_be_linked = manifest.deleted is not None and not target.by_row  # by the compaction
    if target.keeps["graph"] != "no" and not will_be_linked:
        _check_reachable(path, manifest)
    _check_left(path, manifest, target)
    with ExitStack() as stack:
        bare, metadata = _OPENERS[manifest.kind](stack, path, manifest, ids)
        bare = replace(bare, generation=manifest.generation)
        if manifest.deleted is not None:
            deleted = np.zeros(bare.n, np.bool_)
            deleted[read_deleted(path, manifest, bare.n)] = True
            bare = replace(bare, deleted=deleted)
        files = stack.pop_all()
    return OpenedExport(bare, metadata, target.by_row), files


def _check_reachable(path: Path, manifest: Manifest) -> None:
    """Refuse a graph with vertices that no path leads to."""
    imported = manifest.input.get("imported") or {}
    if imported.get("unreachable") and not imported.get("repaired"):
        raise ConfigError(
            f"{path}: {imported['unreachable']:,} vertices cannot be reached, since the graph was imported "
            "with --no-repair; engines would find too few vectors or none: import it with --repair, or delete one of "
            "its vectors and run `indexmill compact`, which links all others"
        )


def _check_left(path: Path, manifest: Manifest, target: Target[Any]) -> None:
    """Refuse an index of which every vector was deleted."""
    if manifest.deleted is not None and manifest.n_deleted == manifest.input["n_vectors"]:
        raise ConfigError(
            f"to: {target.name}: all vectors of {path} were deleted; there is nothing to export"
        )


def _open_graph(
    stack: ExitStack, path: Path, manifest: Manifest, ids: Ids
) -> tuple[ExportedGraph, pq.ParquetFile | None]:
    opened = stack.enter_context(OpenedIndex(path))
    seen = ExportedGraph(
        vector_ids=opened.vector_ids, user_ids=opened.user_ids, metadata_of=_none, build_id=manifest.build_id,
        ids=ids, graph=opened.graph, codes=opened.codes, entries=opened.entries, exact=opened.vectors,
    )  # fmt: skip
    return seen, opened.metadata


def _open_lists(
    stack: ExitStack, path: Path, manifest: Manifest, ids: Ids
) -> tuple[ExportedLists, pq.ParquetFile | None]:
    index = IvfFiles(path)
    for entry in manifest.files:
        check_size(path, entry)
    seen = ExportedLists(
        vector_ids=np.arange(index.centroids.n_vectors, dtype=np.uint32), user_ids=index.user_ids(),
        metadata_of=_none, build_id=manifest.build_id, ids=ids, shared=index.centroids,
        lists=stack.enter_context(ListReader(index)), exact=_open_exact(stack, index),
    )  # fmt: skip
    return seen, _open_metadata(stack, path, manifest, seen.n)


def _open_exact(stack: ExitStack, index: IvfFiles) -> VectorsFile | None:
    """Open the exact vectors beside lists of codes, if they were kept."""
    if not any(entry.name == VECTORS_NAME for entry in index.manifest.files):
        return None
    for problem in vectors_problems(index):
        raise CorruptFile(problem)
    return stack.enter_context(VectorsFile(index.path / VECTORS_NAME, index.identity))


def _open_tables(
    stack: ExitStack, path: Path, manifest: Manifest, ids: Ids
) -> tuple[ExportedTables, pq.ParquetFile | None]:
    files = stack.enter_context(LshFiles(path))
    seen = ExportedTables(
        vector_ids=np.arange(files.shape.n_vectors, dtype=np.uint32), user_ids=files.user_ids, metadata_of=_none,
        build_id=manifest.build_id, ids=ids, files=files,
    )  # fmt: skip
    return seen, _open_metadata(stack, path, manifest, seen.n)


_OPENERS: dict[str, _Opener] = {
    ExportedGraph.KIND: _open_graph, ExportedTables.KIND: _open_tables, ExportedLists.KIND: _open_lists
}  # fmt: skip


def _none(vector_ids: NDArray[np.uint32]) -> pa.Table:
    """Return the metadata of an index without any."""
    return pa.table({})


def _open_metadata(stack: ExitStack, path: Path, manifest: Manifest, n: int) -> pq.ParquetFile | None:
    """Open the metadata of `n` vectors, if there are any."""
    file = open_metadata(stack, path, manifest)
    if file is not None and file.metadata.num_rows != n:
        raise corrupt(path / METADATA_NAME, "rows", n, file.metadata.num_rows)
    return file
