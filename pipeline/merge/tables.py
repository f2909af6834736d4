"""Merge of hash tables without deleted vectors: bucket by bucket, or hashed by the functions of the largest build.

Chains are read where an index has those functions. The vectors of all others are hashed, since hash tables keep them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

from indexmill.pipeline.append.addition import check_alike
from indexmill.pipeline.append.tables.drift import Origin, drift_of
from indexmill.pipeline.compact.rewriting import Rewriting
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.generations.scratch import COMPACT_KIND
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.memory import check_memory, needed_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import scratch_bytes
from indexmill.pipeline.generations.tables.written import NewTables
from indexmill.pipeline.merge.addition import AGAIN, input_facts
from indexmill.pipeline.merge.record import checked_left, largest_build, manifest_of
from indexmill.pipeline.mill.disk_space import check_free


def merge_tables(run: GenerationRun, indexes: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """Publish the vectors of all `indexes` that are left, one index after the other; see `run_merge`."""
    with run.locked(), run.mill(COMPACT_KIND) as mill, ExitStack() as stack:
        given = [stack.enter_context(OpenedTables(index)) for index in indexes]
        run.check_origins()
        left = checked_left(given, run.options.force, _check_mergeable)
        base, built = largest_build(given, left)
        numbers, form, store = [len(slots) for slots in left], TablesForm.common(given, base), mill.store
        following = NewTables(given, left, None, form)
        check_memory(following.shape, needed_bytes(given, numbers, 0, form=form), run.options.memory)
        check_free(store.root, scratch_bytes(given, numbers, form=form) - store.used_bytes(), "merge")
        run.check_room(store.root, given[base].manifest, sum(numbers))

        def facts(directory: Path) -> dict[str, Any]:
            written, removed = following.written(directory), len(given[base].deleted)
            origin = Origin.of(given[base], written.chain_blocks_before[base], built, removed)
            return written.lsh(given[base].manifest.lsh, drift_of(origin, written, following.shape.n_vectors))

        origins, counts = [index.manifest for index in given], (following.shape.n_entries, "entries")
        rewriting = Rewriting(mill, "tables", counts, origins, following.outputs, facts)
        run.make(mill, rewriting.last)
        sealed = rewriting.sealed
        made = manifest_of(given, left, base, sealed.build_id, sealed.files)
        return run.publish(rewriting.directory, replaced(made, lsh=sealed.facts), origins[0].build_id, {})


def check_tables(given: Sequence[OpenedTables], force: bool) -> None:
    """Refuse tables that do not go together, as `merge_tables` does.

    Raises
    ------
    InputError
    """
    checked_left(given, force, _check_mergeable)


def _check_mergeable(first: OpenedTables, index: OpenedTables) -> None:
    """Refuse an index of another metric, shape or type of vectors, or with other ids or metadata than `first`.

    Raises
    ------
    InputError
        Naming the index and the first difference.
    """
    check_alike(
        first, str(index.name), [("metric", first.metric, index.metric, AGAIN), *input_facts(first, index)]
    )
