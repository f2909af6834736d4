"""Merge of inverted lists without deleted vectors: list by list, or assigned to the lists of the largest build.

Rows are taken as they are where an index has those lists and that codec. Vectors of all others are assigned and coded
anew, if the index holds them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.errors import InputError
from indexmill.pipeline.append.addition import check_alike
from indexmill.pipeline.append.lists.drift import drift_without
from indexmill.pipeline.append.lists.held import holds_vectors
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.lists.rewritten import RewrittenLists
from indexmill.pipeline.compact.rewriting import Rewriting, stage_key
from indexmill.pipeline.generations.run import COMPACT_KIND, GenerationRun
from indexmill.pipeline.merge.addition import AGAIN, input_facts
from indexmill.pipeline.merge.assigned import (
    ListsForm,
    assigned_anew,
    check_memory,
    scratch_bytes,
)
from indexmill.pipeline.merge.record import checked_left, largest, largest_build, manifest_of
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.stages import Stage


def merge_lists(run: GenerationRun, indexes: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """Publish the vectors of all `indexes` that are left, one index after the other; see `run_merge`."""
    with run.locked(), run.mill(COMPACT_KIND) as mill, ExitStack() as stack:
        given = [stack.enter_context(OpenedLists(index)) for index in indexes]
        left = checked_left(given, run.options.force, _check_mergeable)
        base, built = largest_build(given, left)
        form, store, origins = ListsForm.common(given, base), mill.store, [index.manifest for index in given]
        anew = _assigned(form, given)
        check_memory(form, given, anew, run.options)
        room = scratch_bytes(form, given, [len(slots) for slots in left], anew)
        check_free(store.root, room - store.used_bytes(), "merge")

        def assigning(at: int) -> Stage:
            def assign(directory: Path) -> None:
                threads, advance = run.options.workers, mill.progress.advance
                assigned_anew(form, given[at], left[at], directory, threads, advance)

            key = stage_key(mill, "assign", origins, at=at)
            path = store.path("assign", key)
            return Stage("assign", key, path, (), assign, steps=len(left[at]), unit="vectors")

        stages, opened = {at: assigning(at) for at in anew}, stack.enter_context(ExitStack())

        def taken() -> tuple[list[OpenedLists], RewrittenLists]:
            """Return the indexes whose rows are taken, those that were assigned among them, and their merge."""
            of, stay = list(given), list(left)
            opened.close()
            for at, stage in stages.items():
                of[at] = opened.enter_context(OpenedLists(stage.path))
                stay[at] = np.arange(of[at].n)
            return of, RewrittenLists(of, stay, given[base].most_vectors)

        def facts(directory: Path) -> dict[str, Any]:
            of, following = taken()
            others = [(of[at], len(left[at])) for at in range(len(given)) if at != base]
            counts, sizes = (following.n, len(given[base].deleted)), following.list_sizes(directory)
            drift = drift_without(given[base], built, counts, others, sizes)
            return {"batches": following.sizes, "drift": drift}

        rewriting = Rewriting(
            mill, "lists", (sum(map(len, left)), "rows"), origins,
            lambda files, scratch: taken()[1].outputs(), facts, list(stages.values()),
        )  # fmt: skip
        run.make(mill, rewriting.last)
        sealed = rewriting.sealed
        made = manifest_of(given, left, base, sealed.build_id, sealed.files)
        manifest = replaced(made, ivf={**given[base].manifest.ivf, **sealed.facts})
        return run.publish(rewriting.directory, manifest, origins[0].build_id, {})


def check_lists(given: Sequence[OpenedLists], force: bool) -> None:
    """Refuse lists that do not go together, as `merge_lists` does.

    Raises
    ------
    InputError
    """
    checked_left(given, force, _check_mergeable)
    _assigned(ListsForm.common(given, largest(given)), given)


def _check_mergeable(first: OpenedLists, index: OpenedLists) -> None:
    """Refuse an index of another metric, shape or type of vectors, or with other ids or metadata than `first`.

    Raises
    ------
    InputError
        Naming the index and the first difference.
    """
    facts: list[tuple[str, object, object, str]] = [
        ("metric", first.files.centroids.metric, index.files.centroids.metric, AGAIN),
        *input_facts(first, index),
        ("exact vectors", _exact(first), _exact(index), AGAIN),
    ]
    check_alike(first, str(index.name), facts)


def _exact(index: OpenedLists) -> str:
    return index.files.centroids.dtype if holds_vectors(index) else "none"


def _assigned(form: ListsForm, given: Sequence[OpenedLists]) -> list[int]:
    """Return the places of the indexes that are assigned anew.

    Raises
    ------
    InputError
        If one of them does not hold its vectors, naming it and the first difference.
    """
    differences = [form.difference(index) for index in given]
    for index, difference in zip(given, differences, strict=True):
        if difference is not None and not holds_vectors(index):
            raise InputError(
                f"{index.name}: {difference} {form.base.name}, and no exact vectors that could be assigned anew; build "
                "one of them again with the --centroids of the other, or both with --keep-vectors, or append the "
                "vectors of one to the other"
            )
    return [at for at, difference in enumerate(differences) if difference is not None]
