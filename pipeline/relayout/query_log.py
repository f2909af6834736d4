"""`--query-log`: an order weighed by recorded searches, kept if later searches then read fewer pages.

The earlier part of a log is recorded, and the order gets bundles for queries that repeat (`layout.bundles`). The later
part judges: it is searched with bundles and without, and page reads are compared at equal recall. A log whose queries
lie far from the vectors is used all the same, with a warning (`pipeline.relayout.nearness`).

Searches are recorded under the policy `beam`, which measures only the vertices that it chooses. What a query wants
therefore does not depend on the present layout. The list of candidates is longer than recall 0.95 takes, so that a
bundle holds the true neighbours: a search for a repeated query finds them in its few reads, at a higher recall.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.layout.bundles import BUNDLE_VERTICES, NOBODY, Bundled, bundle_size, bundled, leaders_of
from indexmill.layout.order import Given, Work
from indexmill.layout.portfolio import ORDERS
from indexmill.layout.units.order import InUnits
from indexmill.pipeline.bootstrap import same_rows
from indexmill.pipeline.relayout.comparison import compared
from indexmill.pipeline.relayout.fitting import Fitted
from indexmill.pipeline.relayout.nearness import LIST_SIZE, nearness, warning_of
from indexmill.pipeline.relayout.tuning import GivenQueries, K
from indexmill.pipeline.relayout.unpacked import UnpackedIndex, map_array
from indexmill.pipeline.relayout.written import Writing

if TYPE_CHECKING:
    from indexmill.reader.index import Index, SearchResult

#: Queries of a log at least: a few do not tell one order from another.
LEAST_QUERIES = 50
#: One in this number of queries, the last of the log, judges.
_JUDGING = 5
#: Distinct queries that judge, at least: what repeats tells nothing more, and draws of fewer no interval.
LEAST_DISTINCT = 10
#: Nearest vertices that a query wants; those on the way to them come after.
_NEAREST = BUNDLE_VERTICES // 2
#: Queries that are recorded at a time: about 4 MB of events.
_BATCH = 256
#: Names of the two indexes that are judged.
_UNWEIGHTED, _WEIGHTED = "unweighted", "weighted"


@dataclass(frozen=True)
class QueryLog:
    """Queries of a log, in the order in which they were asked.

    Attributes
    ----------
    vectors : array, shape (q, dim)
        In the type the index takes.
    name : str
        What the log was given as, in messages.

    Raises
    ------
    InputError
        If there are too few to tune with some and judge by others.
    """

    vectors: NDArray[Any]
    name: str = "query_log"

    def __post_init__(self) -> None:
        if len(self.vectors) < LEAST_QUERIES:
            raise InputError(
                f"{self.name}: expected at least {LEAST_QUERIES} queries, the last fifth of which judges, got "
                f"{len(self.vectors)}; give a longer log, or leave it out"
            )

    @property
    def tuning(self) -> NDArray[Any]:
        """The earlier queries, which are recorded."""
        return self.vectors[: len(self.vectors) - len(self.vectors) // _JUDGING]

    @property
    def judging(self) -> NDArray[Any]:
        """The later queries, which judge."""
        return self.vectors[len(self.tuning) :]

    def judged(self, most: int) -> NDArray[Any]:
        """Return the queries that judge, at most `most`, evenly spaced.

        Raises
        ------
        InputError
            If too few of them are distinct.
        """
        judging = self.judging
        chosen = judging[np.linspace(0, len(judging) - 1, min(most, len(judging))).astype(np.int64)]
        distinct = int(same_rows(chosen).max()) + 1
        if distinct < LEAST_DISTINCT:
            raise InputError(
                f"{self.name}: expected at least {LEAST_DISTINCT} distinct queries among the {len(chosen)} of the last "
                f"fifth that judge, got {distinct}; give a longer log, or leave it out"
            )
        return chosen


def log_bytes(n_queries: int, nodes_per_page: int) -> int:
    """Return the memory of a recorded log, in bytes: six numbers for each vertex that a query wants."""
    return 48 * n_queries * bundle_size(nodes_per_page)


def weighed(writing: Writing, unpacked: UnpackedIndex, fitted: Fitted, log: QueryLog, most: int) -> Fitted:
    """Return `fitted` with bundles for queries of `log` that repeat, or without where these do not pay.

    Parameters
    ----------
    unpacked : UnpackedIndex
        With points.
    most : int
        Queries that judge, at most.

    Raises
    ------
    IndexReplaced
        If another index has taken the place of this one before it was searched.
    """
    run, opened = writing.run, writing.opened
    per_page = opened.graph.node_format.nodes_per_page
    points, threads = unpacked.points, run.options.workers
    assert points is not None
    with run.stage("record", len(log.vectors), "queries") as advance:
        view = run.searched(opened.path)
        wanted = wanted_by(view, log.vectors, unpacked.vector_ids, per_page, threads, advance)
        near = nearness(opened, view, points, log.vectors, threads)
        del view  # and its codes
    with run.task("bundle"):
        n_tuning, leaders = len(log.tuning), leaders_of(wanted)
        units = None
        if isinstance(ORDERS.get(fitted.name), InUnits):
            scratch = partial(scratch_array, writing.scratch)
            units = Given(unpacked.graph, None, per_page, opened.parameters.seed, 1, Work(), scratch)
        found = bundled(fitted.order, wanted[:n_tuning], leaders[:n_tuning], per_page, units)
    facts: dict[str, Any] = {
        "chosen": _UNWEIGHTED,
        "tuning_queries": n_tuning,
        "tuning_repeats": _share(leaders[:n_tuning] != np.arange(n_tuning)),
        "judged_repeats": _share(leaders[n_tuning:] < n_tuning),
        "bundles": len(found.sizes),
        "bundled_vectors": int(found.sizes.sum()),
        **near,
    }
    warning = warning_of(near, opened.graph.metric)
    if warning is not None:
        facts["warning"] = warning
    if len(found.sizes):
        facts |= _judged(writing, unpacked, fitted, found, log.judged(most), most)
    if facts["chosen"] == _UNWEIGHTED:
        return replace(fitted, query_log=facts | _earlier(fitted.query_log))
    order = map_array(writing.scratch / "weighted-order.npy", found.order)
    return replace(fitted, order=order, query_log=facts)


def _earlier(log: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return key ``earlier``: the log whose bundles the order has, by what is recorded of the last one."""
    if log is None or (log["chosen"] == _UNWEIGHTED and "earlier" not in log):
        return {}
    return {"earlier": log.get("earlier", log)}


def _share(mask: NDArray[np.bool_]) -> float:
    return round(float(mask.mean()), 6)


def wanted_by(
    view: Index, queries: NDArray[Any], vector_ids: NDArray[np.uint32], nodes_per_page: int, threads: int,
    advance: Callable[[int], None],
) -> NDArray[np.int64]:  # fmt: skip
    """Search `view`, and return the vector ids that each of `queries` wants, most wanted first.

    Wanted are the nearest vertices that a search measured, and then those that it expanded, in turn.

    Parameters
    ----------
    vector_ids : uint32 array, shape (n,)
        Vector id in each slot.

    Returns
    -------
    int64 array, shape (q, `bundle_size`)
        `NOBODY` behind the last.
    """
    wanted = np.empty((len(queries), bundle_size(nodes_per_page)), np.int64)
    for first in range(0, len(queries), _BATCH):
        batch = queries[first : first + _BATCH]
        found = view.search(
            batch, min(K, len(view)), L=min(LIST_SIZE, len(view)), policy="beam", threads=threads,
            deterministic=True, trace=True,
        )  # fmt: skip
        slots = wanted[first : first + _BATCH]
        slots[:] = wanted_slots(found, slots.shape[1])
        there = slots != NOBODY
        slots[there] = vector_ids[slots[there]]
        advance(len(batch))
    return wanted


def wanted_slots(found: SearchResult, width: int) -> NDArray[np.int64]:
    """Return the slots that each query of a traced search wants, int64 (q, width); see `wanted_by`."""
    assert found.trace is not None
    kinds = found.trace["kind"].to_numpy()
    measured, expanded = (np.flatnonzero(kinds == kind) for kind in ("measure", "expand"))
    query = found.trace["query"].to_numpy().astype(np.int64)
    slot_of = found.trace["vertex"].take
    distance = found.trace["distance"].take(measured).to_numpy()
    near = np.lexsort((slot_of(measured).to_numpy(), distance, query[measured]))
    near = measured[near[_turns(query[measured[near]]) < _NEAREST]]
    events = np.concatenate([near, expanded])
    queries, slots = query[events], slot_of(events).to_numpy().astype(np.int64)
    pairs = queries * (slots.max() + 1) + slots
    kept = np.sort(np.unique(pairs, return_index=True)[1])  # of a pair the first: near, or else expanded
    kept = kept[np.argsort(queries[kept], kind="stable")]
    turns = _turns(queries[kept])
    kept, turns = kept[turns < width], turns[turns < width]
    wanted = np.full((len(found.slots), width), NOBODY)
    wanted[queries[kept], turns] = slots[kept]
    return wanted


def _turns(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each element among the equal ones; `groups` ascend."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


def _judged(
    writing: Writing, unpacked: UnpackedIndex, fitted: Fitted, found: Bundled, judging: NDArray[Any], most: int
) -> dict[str, Any]:  # fmt: skip
    """Write the index with bundles and without; return page reads of both at equal recall, and which is chosen."""
    assert unpacked.points is not None
    run, opened = writing.run, writing.opened
    before = writing.beside(fitted, _UNWEIGHTED)
    after = writing.beside(replace(fitted, order=found.order), _WEIGHTED)
    with run.stage("judge", 2, "orders") as advance:
        comparison = compared(
            opened, unpacked.points, GivenQueries(judging), most, (before, after), run, advance
        )
    for name in (_UNWEIGHTED, _WEIGHTED):
        shutil.rmtree(writing.scratch / name, ignore_errors=True)
    return {
        "chosen": _WEIGHTED if comparison.is_better else _UNWEIGHTED,
        "judged_queries": comparison.queries,
        "judged_distinct": comparison.distinct,
        **comparison.facts("pages_read_unweighted", "pages_read_weighted", "more_than_unweighted"),
    }
