"""Part *judge*: both builders on sets that builders find hard, and the price of the edges that link distant clusters.

Vectors are drawn from a seed: inner product with skewed norms, very many copies, and clusters far from each other.
Every graph is built saturated, as by default, and searched in memory from one vertex, the medoid.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition import build as partition
from indexmill.builders.vamana.entries import medoid
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.dataset import Dataset, first_rows, read_bin, write_bin, write_truth
from indexmill.jobs.bench.common.parameters import ALPHA, SEED, THREADS
from indexmill.jobs.bench.partition import builds
from indexmill.jobs.bench.partition.builds import BUILDERS, SHAPES, Builds, quality
from indexmill.jobs.bench.programs import graph_quality
from indexmill.jobs.bench.programs.diskann import Graph
from indexmill.pipeline.kinds.common.metric import as_asked, as_stored

Draw = Callable[[np.random.Generator, int, int], NDArray[Any]]
_DIM, _QUERIES = 32, 500
#: List size at which recall from one vertex is told: that of the builds.
SIZE = SHAPES[0][1]
#: Sets without distant clusters whose graphs are built with and without the linking edges; vectors, from the beginning.
LINKED = {"sift1m": 100_000, "text40k": None, "embed768": None}
#: Seeds of these builds: a ratio at recall 0.99 moves by several percent from one to the next.
LINK_SEEDS = (SEED, SEED + 1, SEED + 2)


@dataclass(frozen=True)
class Hard:
    """A set that is drawn.

    Attributes
    ----------
    n : int
        Vectors.
    draw : function
        Given a generator, a number of queries and one of vectors, returns both, one after the other.
    metric : {"l2", "ip"}
    recall : float, optional
        That searches from one vertex are to reach.
    """

    n: int
    draw: Draw
    metric: str = "l2"
    recall: float | None = None


def skewed(rng: np.random.Generator, queries: int, n: int) -> NDArray[Any]:
    """Return vectors whose norms are lognormal."""
    directions = rng.normal(size=(queries + n, _DIM))
    vectors: NDArray[Any] = directions * rng.lognormal(sigma=1.0, size=(len(directions), 1))
    return vectors


def copied(times: int) -> Draw:
    """Return what draws vectors of which each has so many copies."""

    def draw(rng: np.random.Generator, queries: int, n: int) -> NDArray[Any]:
        different = rng.normal(size=(queries + n // times, _DIM))
        return np.concatenate([different[:queries], np.repeat(different[queries:], times, axis=0)])

    return draw


def clustered(clusters: int, apart: float) -> Draw:
    """Return what draws clusters whose centres lie so many times farther from each other than their members."""

    def draw(rng: np.random.Generator, queries: int, n: int) -> NDArray[Any]:
        centres = apart * rng.normal(size=(clusters, _DIM))
        members = np.concatenate([rng.integers(clusters, size=queries), np.arange(n) % clusters])
        vectors: NDArray[Any] = centres[members] + rng.normal(size=(queries + n, _DIM))
        return vectors

    return draw


SETS = {
    "inner product, lognormal norms": Hard(30_000, skewed, "ip"),
    "20 copies of each vector": Hard(100_000, copied(20)),
    "50 clusters, 10 times as far": Hard(20_000, clustered(50, 10), recall=0.99),
    "200 clusters, 100 times as far": Hard(20_000, clustered(200, 100), recall=0.99),
    "1,000 clusters of 20, 100 times as far": Hard(20_000, clustered(1000, 100), recall=0.99),
}


def measure(space: Builds) -> dict[str, Any]:
    """Build each set with both builders, once; costs, distances, and recall from one vertex."""
    rows = [_row(space, number, name) for number, name in enumerate(SETS)]
    links = [_linked(space, name, few) for name, few in LINKED.items() if name in space.sets]
    return {"rows": rows, "links": links}


def _row(space: Builds, number: int, name: str) -> dict[str, Any]:
    hard = SETS[name]
    n = min(hard.n, space.rows or hard.n)
    drawn = hard.draw(np.random.default_rng([SEED, number]), _QUERIES, n).astype(np.float32)
    queries, vectors = drawn[:_QUERIES], drawn[_QUERIES:]
    given, compared = (Dataset(space.out / f"judge-{what}") for what in ("given", "compared"))
    _write(given, vectors, queries)
    _write(compared, as_stored(vectors, hard.metric), as_asked(queries, hard.metric))
    write_truth(compared, THREADS)
    builds.warm_up(space, given)
    row: dict[str, Any] = {"set": name, "n": len(vectors), "dim": _DIM, "metric": hard.metric, "size": SIZE}
    for builder in BUILDERS:
        cost = builds.build(space, given.base, builder, *SHAPES[0], metric=hard.metric)
        row[builder] = {what: cost[what] for what in ("graph_s", "cpu_s", "edges_added")}
        row[builder] |= found_by(compared, graph_quality.read_ours(space.index(builder)))
    row["unlinked"] = found_by(compared, _plain(np.array(read_bin(compared.base))))["recall"]
    row["ratio"] = {
        at: ratio(value, row["vamana"]["distances"][at])
        for at, value in row["partition"]["distances"].items()
    }
    space.remove()
    for data in (given, compared):
        shutil.rmtree(data.folder)
    return row


def _write(data: Dataset, vectors: NDArray[Any], queries: NDArray[Any]) -> None:
    data.folder.mkdir(exist_ok=True)
    write_bin(data.folder / "base.fbin", vectors)
    write_bin(data.folder / "query.fbin", queries)


def found_by(data: Dataset, graph: Graph) -> dict[str, Any]:
    """Return the distances of `quality`, the recall of its shortest list, and recall and distances of one list size."""
    found, of_builds = quality(data, graph), graph_quality.curve(data, graph, (SIZE,))[0]
    return {
        "distances": found["distances"],
        "least_recall": found["rows"][0]["recall"],
        "recall": of_builds["recall"],
        "of": of_builds["distances"],
    }


def _linked(space: Builds, name: str, few: int | None) -> dict[str, Any]:
    """Build the graph of a set in this process, with and without the edges that link clusters; ratios of distances.

    ``ratios`` has one for each of `LINK_SEEDS`, and ``ratio`` their mean.
    """
    whole = space.sets[name]
    rows = min(few or whole.shape()[0], whole.shape()[0])
    data = first_rows(whole, rows, space.out / f"{name}-{rows}")
    vectors = np.array(read_bin(data.base))
    linked, plain = (
        [quality(data, graph(vectors, seed))["distances"] for seed in LINK_SEEDS]
        for graph in (_graph, _plain)
    )
    ratios = {
        at: list(map(ratio, (one[at] for one in linked), (one[at] for one in plain))) for at in plain[0]
    }
    return {"set": name, "n": rows, "ratios": ratios, "ratio": {at: _mean(of) for at, of in ratios.items()}}


def _mean(ratios: list[float | None]) -> float | None:
    """Return the mean of ratios; None if one could not be measured."""
    there = [one for one in ratios if one is not None]
    return fmean(there) if len(there) == len(ratios) else None


def _graph(vectors: NDArray[Any], seed: int = SEED) -> Graph:
    entry = medoid(vectors, vectors.mean(axis=0, dtype=np.float64))
    rule = VamanaParameters(*SHAPES[0], ALPHA)
    made = partition.build_partitioned(vectors, entry, rule, seed=seed, threads=THREADS)
    return Graph(made.neighbours, made.degrees, made.entry)


def _plain(vectors: NDArray[Any], seed: int = SEED) -> Graph:
    """Return the graph without the edges that link distant clusters, which no job can ask for."""
    with mock.patch.object(partition, "link_clusters"):
        return _graph(vectors, seed)
