"""Choice of `tune`: graphs that go on to the next sample, the frontier, and the recommended setting."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.pipeline.tune.choice import Cost, frontier, recommended
from indexmill.pipeline.tune.graphs.choice import fewest_of_each_degree, kept_graphs, worthwhile_lists
from indexmill.pipeline.tune.graphs.space import GraphCandidate
from indexmill.pipeline.tune.growth import Outlook


def spread(mean: float, by: float = 0.0) -> np.ndarray:
    """Draws around a mean."""
    return mean + by * np.random.default_rng(3).normal(size=2000)


def at(reads: float, by: float = 0.0) -> Outlook:
    return Outlook(reads, spread(reads, by))


def cost(reads: float, memory: int = 1, index: int = 1, list_size: int = 1, degree: int = 1) -> Cost:
    return Cost(reads, memory, index, (memory, index, list_size, degree))


def test_the_slacks_with_the_fewest_reads_are_kept_for_each_degree() -> None:
    graphs = [GraphCandidate(r, 9, a) for r in (16, 32) for a in (1.0, 1.2, 1.4)]
    found = [at(reads) for reads in (30, 20, 25, 18, 19, np.inf)]
    assert fewest_of_each_degree(graphs, found, 1) == [graphs[1], graphs[3]]
    assert fewest_of_each_degree(graphs, found, 2) == [graphs[1], graphs[2], graphs[3], graphs[4]]


def test_small_degrees_go_on_where_reads_are_limited() -> None:
    graphs = [GraphCandidate(r, 9, 1.2) for r in (16, 24, 32, 48, 64)]
    found = [at(reads) for reads in (50, 38, 36, 20, 22)]
    assert kept_graphs(graphs, found, 3, None) == graphs[2:]
    assert kept_graphs(graphs, found, 3, 40) == graphs[1:4]
    assert kept_graphs(graphs, found, 3, 21) == graphs[2:]
    assert kept_graphs(graphs, found, 9, 40) == graphs


@pytest.mark.parametrize(("longer", "kept"), [(19.9, 0), (17.0, 1), (22.0, 0)])
def test_a_longer_build_list_is_kept_only_if_noise_does_not_make_it_better(longer: float, kept: int) -> None:
    graphs = [GraphCandidate(16, 9, 1.2), GraphCandidate(16, 18, 1.2)]
    rng = np.random.default_rng(5)
    found = [Outlook(reads, reads + 0.5 * rng.normal(size=2000)) for reads in (20, longer)]
    assert worthwhile_lists(graphs, found) == [graphs[kept]]


@pytest.mark.parametrize(("usual", "longer", "kept"), [(np.inf, 20, 1), (20, np.inf, 0), (np.inf, np.inf, 0)])
def test_a_longer_build_list_that_alone_reaches_the_recall_is_kept(
    usual: float, longer: float, kept: int
) -> None:
    graphs = [GraphCandidate(8, 19, 1.2), GraphCandidate(8, 38, 1.2)]
    assert worthwhile_lists(graphs, [at(usual, 0.5), at(longer, 0.5)]) == [graphs[kept]]


def test_what_reaches_the_recall_in_few_draws_is_not_like_what_always_does() -> None:
    draws = spread(20, 0.5)
    seldom = np.where(np.arange(2000) < 1960, np.inf, draws)
    costs = [cost(20, memory=8), cost(20, memory=4)]
    assert recommended(costs, [Outlook(20, draws), Outlook(20, seldom)], None) == 0


def test_the_frontier_is_what_nothing_beats() -> None:
    rng = np.random.default_rng(2)
    costs = [cost(float(r), *(int(x) for x in row)) for r, row in zip(
        rng.integers(1, 6, 60), rng.integers(1, 4, (60, 4)), strict=True
    )]  # fmt: skip
    costs.append(cost(np.inf, 0))

    def beaten(one: Cost) -> bool:
        mine = (one.reads, *one.price)
        return any(
            all(a <= b for a, b in zip((o.reads, *o.price), mine, strict=True))
            and (o.reads, *o.price) != mine
            for o in costs
        )

    assert frontier(costs) == [i for i, one in enumerate(costs[:-1]) if not beaten(one)]


def test_within_a_limit_of_reads_the_least_memory_is_taken() -> None:
    costs = [cost(20, memory=8), cost(30, memory=4, index=2), cost(31, memory=4, index=1), cost(50, memory=2)]
    draws = [at(one.reads) for one in costs]
    assert recommended(costs, draws, 40) == 2
    assert recommended(costs, draws, 60) == 3
    assert recommended(costs, draws, 30) == 1
    assert recommended(costs, draws, 19) is None


def test_without_a_limit_it_is_the_cheapest_of_those_that_noise_does_not_tell_apart() -> None:
    costs = [cost(20, memory=8), cost(20.5, memory=4), cost(30, memory=2), cost(np.inf, memory=1)]
    rng = np.random.default_rng(8)
    draws = [Outlook(r, r + rng.normal(size=2000)) for r in (20, 20.5, 30)]
    draws.append(Outlook(np.inf, np.full(2000, np.inf)))
    assert recommended(costs, draws, None) == 1
    assert recommended(costs[3:], draws[3:], None) is None
