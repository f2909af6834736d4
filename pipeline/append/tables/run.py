"""Append to hash tables: new vectors are hashed, and their entries go to added tables, or into the chains there are.

The functions, and all parameters, stay those of the build. While few vectors were appended since the tables were
written, `added` writes the entries of those alone. Else each table is read once and written once, front to back.
Nothing is sorted but the entries of the new vectors.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import FileEntry, Manifest, seal_files
from indexmill.formats.lsh.names import BASE
from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.append.addition import check_replace, deleted_after, with_deleted
from indexmill.pipeline.append.checked import check_source
from indexmill.pipeline.append.tables.added import AddedTables, shape_beside
from indexmill.pipeline.append.tables.drift import Origin, drift_of
from indexmill.pipeline.append.taken_over import copied_bytes, take_over
from indexmill.pipeline.append.vectors import NewVectors, StoredForm, read_vectors
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.generations.tables.memory import added_bytes, check_memory, needed_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import added_scratch_bytes, scratch_bytes
from indexmill.pipeline.generations.tables.written import Arrived, NewTables, Written, of_size
from indexmill.pipeline.kinds.common.ingest import MAX_VECTORS
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.store import software_versions


def append_to_tables(
    run: GenerationRun,
    index: str | os.PathLike[str],
    open_more: Callable[[Sequence[str]], VectorSource],
    scratch: Path,
    replace: bool,
) -> dict[str, Any]:
    """Add vectors to hash tables and publish the next generation; see `run_append`."""
    with OpenedTables(index) as tables:
        if replace:
            check_replace(tables)
        source = open_more([] if tables.metadata is None else tables.metadata.schema_arrow.names)
        check_source(tables, source)
        n = tables.n + source.n_vectors
        if n > MAX_VECTORS:
            raise InputError(
                f"{tables.name}: {tables.n:,} vectors and {source.n_vectors:,} more; one index holds at most "
                f"{MAX_VECTORS:,}; keep the two apart, and search both"
            )
        beside = shape_beside(tables.files.pairs[0].shape, n)
        _check_room(tables, beside, source.n_vectors, run.options.memory, scratch)
        with run.stage("ingest", source.n_vectors, "vectors"):
            (scratch / "input").mkdir()
            vectors = tables.files.vectors
            form = StoredForm(vectors.metric, vectors.max_norm, vectors.row_format.dim)
            new = read_vectors(tables, form, source, scratch / "input", run.progress, replace)
        directory = scratch / "index"
        directory.mkdir()
        arrived = Arrived(new.stored, new.user_ids, new.metadata, new.place_of)
        following: NewTables | AddedTables = (
            NewTables([tables], [np.arange(tables.n)], arrived)
            if beside is None
            else AddedTables(tables, beside, arrived)
        )
        with run.stage("tables", following.shape.n_entries, "entries") as advance:
            written = following.write(directory, scratch, advance)
        with run.task("seal"):
            names = [path.name for path in directory.iterdir()]
            taken_over = take_over(tables.path, tables.manifest, following.stay, directory)
            build_id, files = seal_files(directory, names, taken_over)
        manifest = _manifest_of(tables, new, written, n, build_id, files)
        deleted = deleted_after(tables, new.user_ids, replace)
        if len(deleted):
            manifest = with_deleted(directory, manifest, tables.manifest.generation, n, deleted)
        return run.publish(directory, manifest, tables.manifest.build_id, {})


def _check_room(index: OpenedTables, beside: LshShape | None, added: int, memory: int, scratch: Path) -> None:
    """Refuse an append that does not fit memory or the disk.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    if beside is None:
        need, room = needed_bytes([index], [index.n], added), scratch_bytes([index], [index.n], added)
    else:
        need, room = added_bytes([index], beside, added), added_scratch_bytes(index, beside, added)
        room += copied_bytes(index.path, index.manifest, BASE, scratch)
    check_memory(of_size(index.files.shape, index.n + added), need, memory)
    check_free(scratch, room, "append")


def _manifest_of(
    index: OpenedTables, new: NewVectors, written: Written, n: int, build_id: str, files: tuple[FileEntry, ...]
) -> Manifest:  # fmt: skip
    old = index.manifest
    joined = f"{index.fingerprint}\n{new.fingerprint}\n"
    drift = drift_of(Origin.of(index, written.chain_blocks_before[0]), written, n)
    return replaced(
        old,
        build_id=build_id,
        generation=old.generation + 1,
        parents=(old.build_id,),
        ancestors=tuple(sorted(old.lineage - {old.build_id})),
        deleted=None,
        input={**old.input, "n_vectors": n, "fingerprint": hashlib.sha256(joined.encode()).hexdigest()},
        software=software_versions(),
        lsh=written.lsh(old.lsh, drift),
        files=files,
    )
