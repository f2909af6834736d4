"""Merge of inverted lists without deleted vectors: list by list, or assigned to the lists of the largest build.

Rows are taken as they are where an index has those lists and that codec. Vectors of all others are assigned and coded
anew, if the index holds them; and so are all vectors where the codebook is trained anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.generations.scratch import COMPACT_KIND
from indexmill.pipeline.kinds.common.encode import load_codebook
from indexmill.pipeline.merge.addition import AGAIN, input_facts
from indexmill.pipeline.merge.assigned import (
    ListsForm,
    assigned_anew,
    check_memory,
    scratch_bytes,
)
from indexmill.pipeline.merge.codebook import anew_of, can_be_trained, choice_bytes, train
from indexmill.pipeline.merge.record import checked_left, largest, largest_build, manifest_of
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.stages import Mill, Stage


def merge_lists(run: GenerationRun, indexes: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """Publish the vectors of all `indexes` that are left, one index after the other; see `run_merge`."""
    with run.locked(), run.mill(COMPACT_KIND) as mill, ExitStack() as stack:
        given = [stack.enter_context(OpenedLists(index)) for index in indexes]
        run.check_origins()
        return _Merge(run, mill, given, stack.enter_context(ExitStack())).published()


class _Merge:
    """The stages of one merge of the indexes `given`; `opened` is for indexes that its stages make."""

    def __init__(
        self, run: GenerationRun, mill: Mill, given: Sequence[OpenedLists], opened: ExitStack
    ) -> None:
        self._run, self._mill, self._given, self._opened = run, mill, given, opened
        self._origins = [index.manifest for index in given]
        self._left = checked_left(given, run.options.force, _check_mergeable)
        self._base, self._built = largest_build(given, self._left)
        self._form = ListsForm.common(given, self._base)
        _check_held(self._form, given)
        more = ", or more if a codebook is trained" if can_be_trained(self._form) else ""
        self._check_memory(self._form.unlike(given), False, more)  # before the trial reads
        anew = anew_of(self._form, given)
        self._check_memory(anew.places, anew.trains)
        self._check_disk(anew.places)
        self._trained = [self._stage("train", self._train)] if anew.trains else []
        self._assigned = {at: self._assigning(at) for at in anew.places}
        self._rewriting = Rewriting(
            mill, "lists", (sum(map(len, self._left)), "rows"), self._origins,
            lambda files, scratch: self._taken()[1].outputs(), self._facts, list(self._assigned.values()),
        )  # fmt: skip

    def published(self) -> dict[str, Any]:
        """Make all stages, and publish."""
        rewriting, given, base = self._rewriting, self._given, self._base
        self._run.make(self._mill, rewriting.last)
        sealed = rewriting.sealed
        made = manifest_of(given, self._left, base, sealed.build_id, sealed.files)
        manifest = replaced(made, ivf={**given[base].manifest.ivf, **sealed.facts})
        return self._run.publish(rewriting.directory, manifest, self._origins[0].build_id, {})

    def _check_memory(self, places: Sequence[int], trains: bool, hint: str = "") -> None:
        """Refuse a merge that assigns the indexes in these places and does not fit the memory.

        Raises
        ------
        BudgetError
            Naming what is needed.
        """
        form, given, options = self._form, self._given, self._run.options
        choice = choice_bytes(form, given, trains, options.workers)
        check_memory(form, given, places, options, choice, hint)

    def _check_disk(self, places: Sequence[int]) -> None:
        """Refuse a merge that assigns the indexes in these places and does not fit the disk.

        Raises
        ------
        BudgetError
            Naming what is needed.
        """
        store = self._mill.store
        room = scratch_bytes(self._form, self._given, [len(slots) for slots in self._left], places)
        check_free(store.root, room - store.used_bytes(), "merge")
        self._run.check_room(store.root, self._given[self._base].manifest, sum(map(len, self._left)))

    def _stage(
        self, name: str, run: Callable[[Path], None], inputs: Sequence[Stage] = (),
        counts: tuple[int, str] = (1, "tasks"), **parameters: int,
    ) -> Stage:  # fmt: skip
        key = stage_key(self._mill, name, self._origins, inputs, **parameters)
        return Stage(
            name, key, self._mill.store.path(name, key), inputs, run, steps=counts[0], unit=counts[1]
        )

    def _train(self, directory: Path) -> None:
        train(self._form, self._given, directory, self._run.options.workers)

    def _assigning(self, at: int) -> Stage:
        """Return the stage that assigns the vectors of the index in place `at`."""
        left = self._left[at]

        def assign(directory: Path) -> None:
            form, threads, advance = self._form, self._run.options.workers, self._mill.progress.advance
            for stage in self._trained:
                form = form.coded_by(load_codebook(stage.path))
            assigned_anew(form, self._given[at], left, directory, threads, advance)

        return self._stage("assign", assign, self._trained, (len(left), "vectors"), at=at)

    def _taken(self) -> tuple[list[OpenedLists], RewrittenLists]:
        """Return the indexes whose rows are taken, those that stages made among them, and their merge."""
        taken, stay = list(self._given), list(self._left)
        self._opened.close()
        for at, stage in self._assigned.items():
            taken[at] = self._opened.enter_context(OpenedLists(stage.path))
            stay[at] = np.arange(taken[at].n)
        return taken, RewrittenLists(taken, stay, self._given[self._base].most_vectors)

    def _facts(self, directory: Path) -> dict[str, Any]:
        """Return what the manifest says of the lists in `directory`."""
        (taken, following), base = self._taken(), self._given[self._base]
        others = [(taken[at], len(left)) for at, left in enumerate(self._left) if at != self._base]
        counts, sizes = (following.n, len(base.deleted)), following.list_sizes(directory)
        return {
            "batches": following.sizes,
            "drift": drift_without(base, self._built, counts, others, sizes),
        }


def check_lists(given: Sequence[OpenedLists], force: bool) -> None:
    """Refuse lists that do not go together, as `merge_lists` does.

    Raises
    ------
    InputError
    """
    checked_left(given, force, _check_mergeable)
    _check_held(ListsForm.common(given, largest(given)), given)


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


def _check_held(form: ListsForm, given: Sequence[OpenedLists]) -> None:
    """Refuse an index whose vectors have to be assigned anew and which does not hold them.

    Raises
    ------
    InputError
        Naming it and the first difference.
    """
    for index in given:
        difference = form.difference(index)
        if difference is not None and not holds_vectors(index):
            raise InputError(
                f"{index.name}: {difference} {form.base.name}, and no exact vectors that could be assigned anew; build "
                "one of them again with the --centroids of the other, or both with --keep-vectors, or append the "
                "vectors of one to the other"
            )
