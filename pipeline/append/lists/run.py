"""Append to inverted lists: a new generation that shares the batches of the old one's first vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import FileEntry, Manifest, seal_files
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME, writing_vectors
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, write_centroids
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.append.addition import deleted_after, with_deleted
from indexmill.pipeline.append.checked import opened_source
from indexmill.pipeline.append.lists.batches import Plan, coded, planned, write_batches
from indexmill.pipeline.append.lists.drift import drift_of
from indexmill.pipeline.append.lists.input import assigned, read_new
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.lists.scratch import copy_bytes, written_bytes
from indexmill.pipeline.append.taken_over import copied_bytes, take_over
from indexmill.pipeline.append.vectors import NewVectors
from indexmill.pipeline.generations.descent import changed_input, made_of
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, THREAD_BYTES, check_need
from indexmill.pipeline.mill.disk_space import check_free

#: Stages of an append.
STAGES = ("ingest", "assign", "lists", "emit")
#: Vectors copied at a time.
_BLOCK = 8192


def append_to_lists(
    run: GenerationRun,
    index: str | os.PathLike[str],
    open_more: Callable[[Sequence[str]], VectorSource],
    scratch: Path,
    replace: bool,
) -> dict[str, Any]:
    """Add vectors to inverted lists and publish the next generation; see `run_append`."""
    with OpenedLists(index) as lists:
        run.check_origins()
        source = opened_source(lists, open_more, replace)
        need = needed_bytes(lists, source.n_vectors, run.options.workers)
        check_need(f"{lists.n:,} vectors and {source.n_vectors:,} more take", need, run.options.memory)
        room = copy_bytes(lists, source.n_vectors) + written_bytes(lists, source.n_vectors, 0)
        check_free(scratch, room + _copied_bytes(lists, len(lists.files.batches), scratch), "append")
        run.check_room(scratch, lists.manifest, lists.n + source.n_vectors)
        run.expect(STAGES)
        with run.stage("ingest", source.n_vectors, "vectors"):
            (scratch / "input").mkdir()
            new, clipped = read_new(lists, source, scratch / "input", run.progress, replace)
        with run.stage("assign", len(new.stored), "vectors") as advance:
            shared, closure = lists.files.centroids, lists.parameters.closure
            labels = assigned(shared, closure, new.stored, run.options.workers, advance)
            plan = planned(lists, labels)
        anew = sum(entry.bytes for entry in lists.files.batches[plan.kept :])
        room = written_bytes(lists, len(labels), anew) + _copied_bytes(lists, plan.kept, scratch)
        check_free(scratch, room, "append")
        directory = scratch / "index"
        directory.mkdir()
        with run.stage("lists", lists.n + len(labels) - plan.bounds[0] + len(labels), "rows") as advance:
            rows = coded(shared, new.stored, labels, scratch, advance)
            written = write_batches(lists, rows, plan, directory, advance)
        with run.task("emit"):
            drift = drift_of(lists, rows, len(labels), clipped, plan.kept, written)
            taken_over = take_over(lists.path, lists.manifest, _names(lists, plan.kept), directory)
            _write_shared(lists, new, plan, directory)
            names = {path.name for path in directory.iterdir()} - {entry.name for entry in taken_over}
            build_id, files = seal_files(directory, names, taken_over)
            following = _manifest_of(lists, new, plan, drift, build_id, files)
            deleted = deleted_after(lists, new.user_ids, replace)
            if len(deleted):
                n = lists.n + len(labels)
                following = with_deleted(directory, following, lists.manifest.generation, n, deleted)
        return run.publish(directory, following, lists.manifest.build_id, {})


def _names(index: OpenedLists, kept: int) -> list[str]:
    """Return the names of the first `kept` batches."""
    return [entry.name for entry in index.files.batches[:kept]]


def _copied_bytes(index: OpenedLists, kept: int, scratch: Path) -> int:
    """Return the room of copies of the first `kept` batches, where they cannot have a second name."""
    return copied_bytes(index.path, index.manifest, _names(index, kept), scratch)


def needed_bytes(index: OpenedLists, added: int, workers: int) -> int:
    """Return the memory of an append; what is mapped does not count."""
    shared, n = index.files.centroids, index.n + added
    ids_bytes = index.ids_bytes * n // index.n
    need = FIXED_BYTES + 14 * n + 24 * len(index.deleted) + 3 * ids_bytes
    need += shared.n_lists * (20 * len(index.files.batches) + 8 * (len(index.files.batches) + 8))
    return need + coding_bytes(index, added, workers)


def coding_bytes(index: OpenedLists, added: int, workers: int) -> int:
    """Return the memory of assigning and coding `added` vectors."""
    shared = index.files.centroids
    need = 6 * shared.centroids.nbytes + added * shared.copies * 40 + _BLOCK * (40 * shared.dim + 512)
    need += 4 * shared.rotation_bytes + (24 << 20)
    return need + (workers - 1) * THREAD_BYTES


def _write_shared(index: OpenedLists, new: NewVectors, plan: Plan, directory: Path) -> None:
    """Write all files but batches."""
    shared, n = index.files.centroids, index.n + len(new.stored)
    n_batches = plan.kept + len(plan.bounds) - 1
    write_centroids(directory / CENTROIDS_NAME, replaced(shared, n_vectors=n, n_batches=n_batches))
    users = None
    if index.user_ids is not None and new.user_ids is not None:
        users = pa.concat_arrays([index.user_ids, new.user_ids.cast(index.user_ids.type)])
    write_ids(directory / "ids.imx", np.arange(n, dtype=np.uint32), users)
    if index.vectors is not None:
        form, norm = index.vectors.row_format, index.vectors.max_norm
        with writing_vectors(directory / VECTORS_NAME, form, n, shared.metric, norm) as file:
            for _, rows in index.vectors.blocks():
                file.write(rows)
            for first in range(0, len(new.stored), _BLOCK):
                file.write(np.asarray(new.stored[first : first + _BLOCK]))
    if index.metadata is not None and new.metadata is not None:
        write_metadata(directory / METADATA_NAME, [index.metadata, new.metadata])


def write_metadata(path: Path, tables: Sequence[pq.ParquetFile]) -> None:
    """Join tables in their order, a batch at a time, in the types of the first."""
    schema = pa.schema([pa.field(f.name, f.type) for f in tables[0].schema_arrow])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            for batch in table.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))


def _manifest_of(
    index: OpenedLists, new: NewVectors, plan: Plan, drift: dict[str, Any], build_id: str,
    files: tuple[FileEntry, ...],
) -> Manifest:  # fmt: skip
    old, n = index.manifest, index.n + len(new.stored)
    sizes = [*index.files.batch_sizes()[: plan.kept], *np.diff(plan.bounds).tolist()]
    made = made_of([old], changed_input(old, n, new.fingerprint), build_id, files)
    return replaced(made, ivf={**old.ivf, "batches": sizes, "drift": drift})
