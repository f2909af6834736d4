"""Part *grow*: appends of a hundredth to inverted lists and to hash tables, beside builds.

Tables get eleven appends in a row, of which the last one writes all tables anew; reads of searches are told after each,
and recall before the first and after the last.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import NDArray

import indexmill
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.dataset import K, count_hits
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.live.living import WARM_UP_ROWS, Living, repeated, timed
from indexmill.jobs.bench.programs import ours

#: Share of the vectors that an append adds.
GROWN_SHARE = 0.01
#: Appends to tables in a row: with the last one, added vectors pass a tenth of those in the tables.
CHAIN = 11
#: Queries whose reads are told after each append.
_QUERIES = 1000


def grow(space: Living, name: str) -> dict[str, Any]:
    """Append a hundredth to inverted lists, and a chain of hundredths to hash tables, beside builds."""
    return {"n": len(space.vectors(name)), "ivf": _lists(space, name), "lsh": _tables(space, name)}


def _lists(space: Living, name: str) -> dict[str, Any]:
    """Append to lists; times are medians."""
    vectors = space.vectors(name)
    added = max(1, round(GROWN_SHARE * len(vectors)))
    _warm_up(space, name, "ivf")
    _build(space, name, "ivf", vectors[:-added])
    appended = _first_append(space, name, "ivf", vectors[-added:])
    rebuilt = repeated(lambda: _build(space, name, "ivf", vectors))
    times = {"time": ratio(appended["seconds"], rebuilt["seconds"])}
    return {"added": added, **appended, "rebuilt": rebuilt, "ratio": times}


def _tables(space: Living, name: str) -> dict[str, Any]:
    """Append to tables; the first append is beside the build of those that it finds."""
    vectors, index = space.vectors(name), space.out / f"{name}-lsh"
    added = len(vectors) // (round(1 / GROWN_SHARE) + CHAIN)
    at = len(vectors) - CHAIN * added
    _warm_up(space, name, "lsh")
    built = timed(lambda: _build(space, name, "lsh", vectors[:at]))
    rows, before = [{"added": 0, "reads": _reads(space, name)}], _recall(space, name, at)
    first = _first_append(space, name, "lsh", vectors[at : at + added])
    for number in range(CHAIN):
        more = vectors[at + number * added : at + (number + 1) * added]
        appended = timed(partial(indexmill.append, index, more, workers=THREADS))
        rows.append({"added": (number + 1) * added, "reads": _reads(space, name), **appended})
    recall = _recall(space, name, len(vectors))
    rebuilt = timed(lambda: _build(space, name, "lsh", vectors))
    whole = {**rebuilt, "reads": _reads(space, name), "recall": _recall(space, name, len(vectors))}
    return {
        "added": added,
        **first,
        "rebuilt": built,
        "ratio": {"time": ratio(first["seconds"], built["seconds"])},
        "chain": {"rows": rows, "recall_before": before, "recall": recall, "rebuilt": whole},
    }


def _build(space: Living, name: str, kind: str, vectors: NDArray[Any]) -> None:
    index = space.out / f"{name}-{kind}"
    indexmill.build(vectors, index, kind=kind, seed=SEED, workers=THREADS, force=True)


def _warm_up(space: Living, name: str, kind: str) -> None:
    vectors = space.vectors(name)
    _build(space, name, kind, vectors[:WARM_UP_ROWS])
    indexmill.append(space.out / f"{name}-{kind}", vectors[:10], workers=THREADS)


def _first_append(space: Living, name: str, kind: str, more: NDArray[Any]) -> dict[str, Any]:
    """Append to the index of a kind, which stays; return the median seconds, and those of opening the result alone."""
    index, out = space.out / f"{name}-{kind}", space.out / f"{name}-{kind}-grown"
    times = repeated(lambda: indexmill.append(index, more, out=out, workers=THREADS, force=True))
    opening = repeated(lambda: indexmill.open(out))
    return {**times, "stages": ours.run_facts(out)["seconds"], "opening": opening["seconds"]}


def _reads(space: Living, name: str) -> float:
    """Return the mean reads of tables and buckets of a query."""
    counters = _searched(space, name).counters
    return round(float((counters["table_reads"].astype(int) + counters["block_reads"]).mean()), 2)


def _recall(space: Living, name: str, n: int) -> float:
    """Return the recall of tables of the first `n` vectors."""
    vectors, queries = space.vectors(name)[:n], space.queries(name)[:_QUERIES]
    truth = exact_neighbours(vectors, queries, K, THREADS)[1]
    found = _searched(space, name).vector_ids
    return round(float(count_hits(found, vectors, queries, truth).mean()) / K, 5)


def _searched(space: Living, name: str) -> Any:
    opened: Any = indexmill.open(space.out / f"{name}-lsh")
    return opened.search(space.queries(name)[:_QUERIES], K, threads=THREADS)
