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
from indexmill.pipeline.merge.anew import growth_of, is_built_anew, largest_of
from indexmill.pipeline.merge.ids import check_ids_apart
from indexmill.pipeline.merge.lists import merge_lists
from indexmill.pipeline.merge.tables import merge_tables
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Prefixed, Progress
from indexmill.pipeline.mill.stages import Mill
from indexmill.pipeline.mill.store import StageStore

#: Order of an index whose slots nobody will see.
_ANY_ORDER = "identity"
#: What stages of a compaction in the scratch directory are called after.
_COMPACTION = "compact"


def run_merge(
    indexes: Sequence[str | os.PathLike[str]], options: RunOptions, progress: Progress | None = None
) -> dict[str, Any]:
    """Join indexes without their deleted vectors and publish the result, by default in place of the first.

    Vertices of all other graphs are inserted into the largest (the first of those, if they are alike), whose
    parameters and centroids the result has; or `merge.anew` builds one graph of all. The codebook is trained anew where
    all are laid out anew and it errs too much. Inverted lists with equal centroids are merged list by list, and hash
    tables with equal functions bucket by bucket; vectors of others are assigned or hashed anew. Vector ids follow each
    other in the order of `indexes`.

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
    for first, second in combinations(indexes, 2):
        if os.path.realpath(first) == os.path.realpath(second):
            raise InputError(f"{second}: the same index twice; expected different ones")
    run = ExtendRun(indexes[0], options, progress)
    run.origins = [Path(os.path.realpath(index)) for index in indexes]
    merge = _MERGES[_kind_of(indexes)]
    with run.working() as scratch:
        return merge(run, indexes, scratch)


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


def _merge_graphs(run: ExtendRun, indexes: Sequence[str | os.PathLike[str]], scratch: Path) -> dict[str, Any]:
    """Insert the vertices of all others into the largest graph, or build one of all."""
    options = run.options
    with ExitStack() as stack:
        given = [stack.enter_context(OpenedIndex(index)) for index in indexes]
        at, growth = largest_of(given), growth_of(given)
        anew = growth.laid_out == 0
        orders = [index.order if i == at and not anew else _ANY_ORDER for i, index in enumerate(given)]
        _check(given, at, orders, options)
        check_free(scratch, _compacting_bytes(given), "merge")
        check_ids_apart(given)
        built = is_built_anew(given[at], growth, options.memory)
        run.expect(_stages(given, built))
        left = [
            stack.enter_context(_remaining(run, index, scratch / f"left-{i}", order))
            for i, (index, order) in enumerate(zip(given, orders, strict=True))
        ]
        larger, others = left[at], [*left[:at], *left[at + 1 :]]
        addition = merged_addition(larger, others)
        parents = tuple(index.manifest for index in given)
        how = Inserting(parents, given[at].order, at, anew, built)
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


def _check(given: Sequence[OpenedIndex], at: int, orders: Sequence[str], options: RunOptions) -> None:
    """Refuse indexes that do not go together, are empty, too many vectors or too much for memory, before any work.

    Parameters
    ----------
    orders : sequence of str
        By which those with deletions are compacted.
    """
    for index in given:
        check_not_empty(index, index.manifest.n_deleted)
    check_all_mergeable(given[at], [*given[:at], *given[at + 1 :]], options.force)
    growth = growth_of(given)
    check_size(given[at], growth.n - given[at].n)
    check_memory(options.memory, given[at], growth)
    ids_bytes = sum(index.ids_bytes for index in given)
    for index, order in zip(given, orders, strict=True):
        if index.manifest.deleted is not None:
            held = ids_bytes - index.ids_bytes
            check_compaction(index, order, options.memory, certified=False, held=held)


def _compacting_bytes(given: Sequence[OpenedIndex]) -> int:
    """Return the room that all compactions fill: their results stay to the end, and each has the scratch of one."""
    deleted = [index for index in given if index.manifest.deleted is not None]
    results = sum(entry.bytes for index in deleted for entry in index.manifest.files)
    return results + max(map(scratch_bytes, deleted), default=0)


def _remaining(
    run: ExtendRun, index: OpenedIndex, directory: Path, order: str
) -> AbstractContextManager[OpenedIndex]:
    """Return a context of `index` itself, or of an index in `directory` without its deleted vectors."""
    if index.manifest.deleted is None:
        return nullcontext(index)
    store = StageStore(directory)
    executor = LocalExecutor(run.options.workers)
    try:
        mill = Mill(store, executor, Prefixed(run.progress, _COMPACTION), keep=False)
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
