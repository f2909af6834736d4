"""`merge`: any number of indexes in one run, as the next generation of the first.

Vertices of all but the largest are inserted into the largest, with their own neighbours among the candidates; or one
graph is built of all vectors, where these are more than it has. Indexes with deletions are compacted first, in the
scratch directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.index.manifest import read_manifest, write_manifest
from indexmill.pipeline.append.addition import check_size
from indexmill.pipeline.append.memory import check_memory
from indexmill.pipeline.append.run import AFTER_LISTS, ExtendRun, Inserting
from indexmill.pipeline.compact.empty import check_not_empty
from indexmill.pipeline.compact.memory import check_memory as check_compaction
from indexmill.pipeline.compact.memory import scratch_bytes
from indexmill.pipeline.compact.recipe import STAGES, CompactRecipe, Limits
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.generations.opened import OpenedIndex, check_there
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.merge.addition import check_all_mergeable, merged_addition
from indexmill.pipeline.merge.anew import compacting_orders, growth_of, is_built_anew, largest_of
from indexmill.pipeline.merge.ids import check_ids_apart
from indexmill.pipeline.merge.lists import check_lists, merge_lists
from indexmill.pipeline.merge.tables import check_tables, merge_tables
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Prefixed, Progress
from indexmill.pipeline.mill.stages import Mill
from indexmill.pipeline.mill.store import StageStore

#: What stages of a compaction in the scratch directory are called after.
_COMPACTION = "compact"


def run_merge(
    indexes: Sequence[str | os.PathLike[str]], options: RunOptions, progress: Progress | None = None
) -> dict[str, Any]:
    """Join indexes without their deleted vectors and publish the result, by default in place of the first.

    Vertices of all other graphs are inserted into the largest (the first of those, if they are alike), whose
    parameters and centroids the result has; or `merge.anew` builds one graph of all. The codebook is trained anew where
    all are laid out anew and it errs too much. Inverted lists with equal centroids are merged list by list, and hash
    tables with equal functions bucket by bucket; vectors of others are assigned or hashed anew. All vectors of lists
    are coded anew where their codebook errs too much. Vector ids follow each other in the order of `indexes`. After a
    kill, a merge of lists or tables resumes; one of graphs starts over.

    Returns
    -------
    dict
        The manifest, as published.

    Raises
    ------
    InputError
        If they do not go together, or every vector of one was deleted.
    IndexmillError
        Of the kind that tells what to change; all indexes are then as they were.
    """
    if len(indexes) < 2:
        raise ConfigError(f"merge: expected at least two indexes, got {len(indexes)}")
    _check_different(indexes)
    run = ExtendRun(indexes[0], options, progress, indexes[1:])
    return _MERGES[_kind_of(indexes)](run, indexes)


def check_merge(given: Sequence[Any], force: bool) -> None:
    """Refuse opened indexes of one kind that `run_merge` would refuse, except for their memory and its room.

    Raises
    ------
    InputError
    """
    _check_different([index.path for index in given])
    _CHECKS[given[0].manifest.kind](given, force)


def _check_different(indexes: Sequence[str | os.PathLike[str]]) -> None:
    for first, second in combinations(indexes, 2):
        if os.path.realpath(first) == os.path.realpath(second):
            raise InputError(f"{second}: the same index twice; expected different ones")


def _kind_of(indexes: Sequence[str | os.PathLike[str]]) -> str:
    """Return the kind of all indexes.

    Raises
    ------
    InputError
        If two are of different kinds.
    """
    for index in indexes:
        check_there(Path(index))
    kinds = [read_manifest(Path(index), _MERGES).kind for index in indexes]
    for index, kind in zip(indexes, kinds, strict=True):
        if kind != kinds[0]:
            raise InputError(
                f"{index}: an index of kind {kind}; expected {kinds[0]} as {indexes[0]}; build one of them again"
            )
    return kinds[0]


def _merge_graphs(run: ExtendRun, indexes: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """Insert the vertices of all others into the largest graph, or build one of all."""
    options = run.options
    with run.working() as scratch, ExitStack() as stack:
        given = [stack.enter_context(OpenedIndex(index)) for index in indexes]
        run.check_origins()
        _check_graphs(given, options.force)
        at, growth = largest_of(given), growth_of(given)
        orders = compacting_orders(given, growth)
        check_memory(options.memory, given[at], growth)
        for index, order in zip(given, orders, strict=True):
            if order is not None:
                held = growth.ids_bytes - index.ids_bytes
                check_compaction(index, order, options.memory, certified=False, held=held)
        check_free(scratch, _compacting_bytes(given), "merge")
        run.check_room(scratch, given[at].manifest, growth.n)
        built = is_built_anew(given[at], growth, options.memory)
        run.expect(_stages(given, built))
        left = [
            stack.enter_context(_remaining(run, index, scratch / f"left-{i}", order))
            for i, (index, order) in enumerate(zip(given, orders, strict=True))
        ]
        larger, others = left[at], [*left[:at], *left[at + 1 :]]
        addition = merged_addition(larger, others)
        parents = tuple(index.manifest for index in given)
        how = Inserting(parents, given[at].order, at, growth.laid_out == 0, built)
        return run.extend(larger, addition, how, scratch)


def _stages(given: Sequence[OpenedIndex], built: bool) -> list[str]:
    """Return the stages of a merge of graphs, which are perhaps `built` anew."""
    compacted = sum(index.manifest.deleted is not None for index in given)
    first = [f"{_COMPACTION} {stage}" for stage in STAGES[:-1]] * compacted
    return [*first, "unpack", "encode", "build" if built else "insert", *AFTER_LISTS]


#: How indexes of each kind are merged.
_MERGES: dict[str, Callable[..., dict[str, Any]]] = {
    "graph": _merge_graphs,
    "ivf": merge_lists,
    "lsh": merge_tables,
}


def _check_graphs(given: Sequence[OpenedIndex], force: bool) -> None:
    """Refuse graphs that do not go together, are empty or have too many vectors, before any work.

    Raises
    ------
    InputError
    """
    for index in given:
        check_not_empty(index, index.manifest.n_deleted)
    at = largest_of(given)
    check_all_mergeable(given[at], [*given[:at], *given[at + 1 :]], force)
    check_size(given[at], growth_of(given).n - given[at].n)
    check_ids_apart(given)


#: What refuses indexes of each kind that do not go together.
_CHECKS: dict[str, Callable[..., None]] = {"graph": _check_graphs, "ivf": check_lists, "lsh": check_tables}


def _compacting_bytes(given: Sequence[OpenedIndex]) -> int:
    """Return the room that all compactions fill: their results stay to the end, and each has the scratch of one."""
    deleted = [index for index in given if index.manifest.deleted is not None]
    results = sum(entry.bytes for index in deleted for entry in index.manifest.files)
    return results + max(map(scratch_bytes, deleted), default=0)


def _remaining(
    run: ExtendRun, index: OpenedIndex, directory: Path, order: str | None
) -> AbstractContextManager[OpenedIndex]:
    """Return a context of `index` itself if `order` is None, else of its vectors that are left, in `directory`."""
    if order is None:
        return nullcontext(index)
    store = StageStore(directory)
    executor = LocalExecutor(run.options.workers)
    try:
        mill = Mill(
            store, executor, Prefixed(run.progress, _COMPACTION), keep=False, whole=run.whole, resumes=False
        )
        limits = Limits(run.options.memory, run.options.workers)
        recipe = CompactRecipe(mill, index, index.deleted, order, limits, certified=False)
        mill.make(recipe.last)
        write_manifest(recipe.directory, recipe.manifest())
    finally:
        executor.close()
        store.close()
    index.release_ids()
    for name, seconds in mill.seconds.items():
        run.seconds[name] = run.seconds.get(name, 0.0) + seconds
    return OpenedIndex(recipe.directory, index.path)
