"""Compaction of inverted lists: batches without their deleted vectors; rows keep their bytes.

The certificate is measured again where the lists hold their vectors; else it stays that of the build.
"""

from __future__ import annotations

import os
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

from indexmill.pipeline.append.lists.drift import drift_without
from indexmill.pipeline.append.lists.held import holds_vectors
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.lists.rewritten import RewrittenLists
from indexmill.pipeline.append.lists.rewritten import needed_bytes as rewriting_bytes
from indexmill.pipeline.compact.certify import lists_bytes, lists_certificate, lists_scratch_bytes
from indexmill.pipeline.compact.copied import published_copy
from indexmill.pipeline.compact.empty import check_not_empty
from indexmill.pipeline.compact.record import rewritten_manifest
from indexmill.pipeline.compact.rewriting import Rewriting
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.kinds.common.memory import check_need
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.stages import Mill
from indexmill.pipeline.mill.store import StageStore

#: Stages of a compaction; one of codes without vectors certifies nothing.
STAGES = ("lists", "seal", "certify")


def compact_lists(
    run: GenerationRun, mill: Mill, index: str | os.PathLike[str], certified: bool = True
) -> tuple[int, dict[str, Any] | None, int]:
    """Publish inverted lists without their deleted vectors; return the values of a `CompactResult`.

    If no vector was deleted, another output gets a copy, and nothing is written in place: the manifest is None then.

    Parameters
    ----------
    certified : bool
        Whether the result is measured.
    """
    with OpenedLists(index) as lists:
        run.check_origins()
        removed = len(lists.deleted)
        if not removed:
            return 0, published_copy(run, lists.path, lists.manifest), 0
        check_not_empty(lists, removed)
        old, left, threads = lists.manifest, lists.left, run.options.workers
        measurable = holds_vectors(lists)
        certified = certified and measurable
        _check_room(run, lists, len(left), mill.store, certified)
        following = RewrittenLists([lists], [left], lists.most_vectors)

        def facts(directory: Path) -> dict[str, Any]:
            built, sizes = lists.of_build.without(lists.deleted), following.list_sizes(directory)
            drift = drift_without(lists, built, (len(left), removed), [], sizes)
            return {"batches": following.sizes, "drift": drift}

        rewriting = Rewriting(
            mill, STAGES[0], (len(left), "rows"), [old], lambda files, scratch: following.outputs(), facts
        )
        if certified:
            rewriting.certify(lambda scratch: lists_certificate(lists, left, scratch, threads))
        run.make(mill, rewriting.last)
        sealed = rewriting.sealed
        made = rewritten_manifest(old, len(left), lists.deleted, sealed.build_id, sealed.files)
        certificate = rewriting.certificate if certified else None if measurable else old.certificate
        manifest = replaced(made, ivf={**old.ivf, **sealed.facts}, certificate=certificate)
        return removed, run.publish(rewriting.directory, manifest, old.build_id, {}), 0


def _check_room(run: GenerationRun, lists: OpenedLists, n: int, store: StageStore, certified: bool) -> None:
    """Refuse a compaction that does not fit memory or the disk.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    need, room = rewriting_bytes([lists]), sum(entry.bytes for entry in lists.manifest.files)
    if certified:
        need += lists_bytes(lists, n, run.options.workers)
        room += lists_scratch_bytes(lists, n)
    what = f"{lists.n:,} vectors in {lists.files.centroids.n_lists:,} lists take"
    check_need(what, need, run.options.memory)
    check_free(store.root, room - store.used_bytes(), "compaction")
    run.check_room(store.root, lists.manifest, n)
