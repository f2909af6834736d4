"""Compaction of hash tables: chains without the entries of deleted vectors.

Entries of added tables find their places in the chains. The certificate is measured again.
"""

from __future__ import annotations

import os
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.append.tables.drift import Origin, drift_of
from indexmill.pipeline.compact.certify import tables_certificate
from indexmill.pipeline.compact.copied import published_copy
from indexmill.pipeline.compact.empty import check_not_empty
from indexmill.pipeline.compact.record import rewritten_manifest
from indexmill.pipeline.compact.rewriting import Rewriting
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.generations.tables.memory import certified_bytes, check_memory, needed_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import scratch_bytes
from indexmill.pipeline.generations.tables.written import NewTables
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.stages import Mill

#: Stages of a compaction.
STAGES = ("tables", "seal", "certify")


def compact_tables(
    run: GenerationRun, mill: Mill, index: str | os.PathLike[str], certified: bool = True
) -> tuple[int, dict[str, Any] | None, int]:
    """Publish hash tables without deleted vectors and added tables; return the values of a `CompactResult`.

    Where there is neither, another output gets a copy, and nothing is written in place: the manifest is None then.

    Parameters
    ----------
    certified : bool
        Whether the result is measured.
    """
    with OpenedTables(index) as tables:
        run.check_origins()
        removed, folded = len(tables.deleted), tables.n - tables.n_in_tables
        if not removed and not folded:
            return 0, published_copy(run, tables.path, tables.manifest), 0
        check_not_empty(tables, removed)
        left, threads, store = tables.left, run.options.workers, mill.store
        following, old = NewTables([tables], [left], None), tables.manifest
        need, room = needed_bytes([tables], [len(left)], 0), scratch_bytes([tables], [len(left)])
        if certified:
            need = max(need, certified_bytes(tables, len(left), threads))
            room += len(left) * tables.files.vectors.row_format.vector_bytes
        check_memory(following.shape, need, run.options.memory)
        check_free(store.root, room - store.used_bytes(), "compaction")
        run.check_room(store.root, old, len(left))

        def facts(directory: Path) -> dict[str, Any]:
            written, built = following.written(directory), tables.of_build.without(tables.deleted)
            origin = Origin.of(tables, written.chain_blocks_before[0], built, removed)
            return written.lsh(old.lsh, drift_of(origin, written, len(left)))

        counts = (following.shape.n_entries, "entries")
        rewriting = Rewriting(mill, STAGES[0], counts, [old], following.outputs, facts)

        def manifest() -> Manifest:
            sealed = rewriting.sealed
            made = rewritten_manifest(old, len(left), tables.deleted, sealed.build_id, sealed.files)
            return replaced(made, lsh=sealed.facts)

        def measure(scratch: Path) -> dict[str, Any] | None:
            return tables_certificate(tables, left, rewriting.directory, manifest(), scratch, threads)

        if certified:
            rewriting.certify(measure)
        run.make(mill, rewriting.last)
        made = replaced(manifest(), certificate=rewriting.certificate if certified else None)
        return removed, run.publish(rewriting.directory, made, old.build_id, {}), folded
