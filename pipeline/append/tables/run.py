"""Append to hash tables: new vectors are hashed, and their entries go to added tables, or into the chains there are.

The functions, and all parameters, stay those of the build. While few vectors were appended since the tables were
written, `added` writes the entries of those alone. Else each table is read once and written once, front to back.
Nothing is sorted but the entries of the new vectors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.index.manifest import FileEntry, Manifest, seal_files, write_manifest
from indexmill.formats.lsh.names import BASE
from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.append.addition import deleted_after, with_deleted
from indexmill.pipeline.append.checked import opened_source
from indexmill.pipeline.append.tables.added import AddedTables, shape_beside
from indexmill.pipeline.append.tables.drift import Origin, Reads, drift_of, with_reads
from indexmill.pipeline.append.taken_over import copied_bytes, take_over
from indexmill.pipeline.append.vectors import NewVectors, StoredForm, read_vectors
from indexmill.pipeline.draws import CERTIFICATE, drawn_rows
from indexmill.pipeline.generations.descent import changed_input, made_of
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.generations.tables.form import of_size
from indexmill.pipeline.generations.tables.memory import added_bytes, check_memory, needed_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import added_scratch_bytes, scratch_bytes
from indexmill.pipeline.generations.tables.written import Arrived, NewTables, Written
from indexmill.pipeline.kinds.lsh.certify import mean_reads
from indexmill.pipeline.mill.disk_space import check_free

#: Vectors that are searched for to measure what added tables cost, from the first append since the tables were written.
MEASURED = 25
#: Stages of an append that leaves the tables as they are; one that writes them anew measures nothing.
STAGES = ("ingest", "tables", "seal", "measure")


def append_to_tables(
    run: GenerationRun,
    index: str | os.PathLike[str],
    open_more: Callable[[Sequence[str]], VectorSource],
    scratch: Path,
    replace: bool,
) -> dict[str, Any]:
    """Add vectors to hash tables and publish the next generation; see `run_append`."""
    with OpenedTables(index) as tables:
        run.check_origins()
        source = opened_source(tables, open_more, replace)
        n = tables.n + source.n_vectors
        beside = shape_beside(tables.files.pairs[0].shape, n)
        _check_room(tables, beside, source.n_vectors, run.options.memory, scratch)
        run.check_room(scratch, tables.manifest, n)
        run.expect(STAGES if beside is not None else STAGES[:-1])
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
        if beside is not None:
            with run.task("measure"):
                manifest = _measured(run, tables, directory, manifest)
        return run.publish(directory, manifest, tables.manifest.build_id, {})


def _measured(run: GenerationRun, index: OpenedTables, directory: Path, manifest: Manifest) -> Manifest:
    """Return the manifest of added tables in `directory` with the reads of searches, which tell when to compact.

    The first append since the tables were written measures what searches read of these alone. All later ones measure
    searches for the same vectors.

    Raises
    ------
    IndexReplaced
        If it measured another generation of `index`.
    """
    threads = run.options.workers
    drift: Mapping[str, Any] = index.drift or {}
    has_added = index.n > index.n_in_tables
    if has_added and "reads_vectors" not in drift:
        return manifest  # an older version appended, and told no reads, or not of how many searches
    wanted = drift["reads_vectors"] if has_added else MEASURED
    slots = drawn_rows(index.parameters.seed, CERTIFICATE, index.n_in_tables, wanted)
    rows = index.files.vectors.take(slots.astype(np.uint32))[:, : index.dim]
    alone = drift["reads_tables"] if has_added else mean_reads(str(index.path), rows, threads)
    if not has_added:
        run.check_origins()
    write_manifest(directory, manifest)
    reads = Reads(len(slots), float(alone), mean_reads(str(directory), rows, threads))
    return replaced(manifest, lsh={**manifest.lsh, "drift": with_reads(manifest.lsh["drift"], reads)})


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
    drift = drift_of(Origin.of(index, written.chain_blocks_before[0]), written, n)
    made = made_of([old], changed_input(old, n, new.fingerprint), build_id, files)
    return replaced(made, lsh=written.lsh(old.lsh, drift))
