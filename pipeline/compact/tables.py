"""Compaction of hash tables: chains without the entries of deleted vectors, in one pass; a killed run starts over.

Entries of added tables find their places in the chains. The certificate is measured again.
"""

from __future__ import annotations

import os
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import seal_files
from indexmill.pipeline.append.tables.drift import Origin, drift_of
from indexmill.pipeline.compact.certify import tables_certificate
from indexmill.pipeline.compact.copied import published_copy
from indexmill.pipeline.compact.empty import check_not_empty
from indexmill.pipeline.compact.record import manifest_in_one_pass
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.generations.tables.memory import certified_bytes, check_memory, needed_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import scratch_bytes
from indexmill.pipeline.generations.tables.written import NewTables
from indexmill.pipeline.mill.disk_space import check_free

#: Stages of a compaction.
STAGES = ("tables", "seal", "certify")


def compact_tables(
    run: GenerationRun, index: str | os.PathLike[str], scratch: Path, certified: bool = True
) -> tuple[int, dict[str, Any] | None, int]:
    """Publish hash tables without deleted vectors and added tables; return the values of a `CompactResult`.

    Where there is neither, another output gets a copy, and nothing is written in place: the manifest is None then.

    Parameters
    ----------
    certified : bool
        Whether the result is measured.
    """
    with OpenedTables(index) as tables:
        removed, folded = len(tables.deleted), tables.n - tables.n_in_tables
        if not removed and not folded:
            return 0, published_copy(run, tables.path, tables.manifest), 0
        check_not_empty(tables, removed)
        left, threads = tables.left, run.options.workers
        following, old = NewTables([tables], [left], None), tables.manifest
        need, room = needed_bytes([tables], [len(left)], 0), scratch_bytes([tables], [len(left)])
        if certified:
            need = max(need, certified_bytes(tables, len(left), threads))
            room += len(left) * tables.files.vectors.row_format.vector_bytes
        check_memory(following.shape, need, run.options.memory)
        check_free(scratch, room, "compaction")
        directory = scratch / "index"
        directory.mkdir()
        run.expect(STAGES if certified else STAGES[:-1])
        with run.stage("tables", following.shape.n_entries, "entries") as advance:
            written = following.write(directory, scratch, advance)
        with run.task("seal"):
            build_id, files = seal_files(directory, [path.name for path in directory.iterdir()])
        built = tables.of_build.without(tables.deleted)
        origin = Origin.of(tables, written.chain_blocks_before[0], built, removed)
        made = manifest_in_one_pass(old, len(left), tables.deleted, build_id, files)
        manifest = replaced(made, lsh=written.lsh(old.lsh, drift_of(origin, written, len(left))))
        certificate = None
        if certified:
            with run.task("certify"):
                certificate = tables_certificate(tables, left, directory, manifest, scratch, threads)
        manifest = replaced(manifest, certificate=certificate)
        return removed, run.publish(directory, manifest, old.build_id, {}), folded
