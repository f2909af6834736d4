"""Predicted seconds: of workers that narrow tasks cannot use, no kind expects anything."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.support.rates import graph_rates

from indexmill.builders.distances import as_bits
from indexmill.builders.lsh.solve import Solved
from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.kinds.common import seconds as common
from indexmill.pipeline.kinds.common.memory import lanes
from indexmill.pipeline.kinds.graph import seconds as graph
from indexmill.pipeline.kinds.graph.memory import narrow_stages
from indexmill.pipeline.kinds.graph.regions.plan import in_regions
from indexmill.pipeline.kinds.graph.seconds_insertion import (
    Insertions,
    read_seconds,
    stalling_seconds,
    timed_insertions,
)
from indexmill.pipeline.kinds.graph.seconds_partition import PartitionRates
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.ivf import seconds as ivf
from indexmill.pipeline.kinds.ivf.shape import IvfShape
from indexmill.pipeline.kinds.lsh import seconds as lsh
from indexmill.pipeline.kinds.lsh.shape import SolvedShape, groups, parts
from indexmill.pipeline.spec import IvfParameters, LshParameters, Parameters

MEMORY = 1 << 30
FLOAT = np.dtype(np.float32)


def ivf_seconds(n: int, workers: int) -> dict[str, float]:
    files = dict.fromkeys(("assign", "pack", "lists", "emit", "certify"), 0)
    shape = IvfShape(n, 128, FLOAT, 0, IvfParameters(batch_vectors=n // 16))
    return ivf.stage_seconds(ivf.Rates(*[1e-6] * 8), shape, MEMORY, workers, files)


def lsh_shape(n: int, hash_bits: int = 16) -> SolvedShape:
    solved = Solved(12, 64, 400, hash_bits, (1.0, 2.0, 4.0), 0.8, 0.5, 0.3, 0.1, 0.9)
    return SolvedShape(n, 128, FLOAT, 0, LshParameters(), solved)


def lsh_seconds(shape: SolvedShape, workers: int) -> dict[str, float]:
    files = dict.fromkeys(("sample", "hash", "chain", "emit", "certify"), 0)
    return lsh.stage_seconds(lsh.Rates(*[1e-6] * 7), shape, MEMORY, workers, files)


def graph_seconds(shape: GraphShape, workers: int) -> dict[str, float]:
    rates = graph_rates(workers, partition=PartitionRates(workers, 4000, 1e-5, 1e-6, 1e-5, 320))
    narrow = {name: stage.lanes(MEMORY, workers, 0) for name, stage in narrow_stages(shape, MEMORY).items()}
    files = dict.fromkeys(("carve", "assign", "leaves", "build", "unite", "pack", "emit", "certify"), 1 << 20)
    return graph.stage_seconds(rates, shape, files, narrow)


def sharded() -> GraphShape:
    return GraphShape(3_000_000, 32, FLOAT, 0, Parameters(builder="vamana", shard_vectors=100_000))


def in_pieces() -> GraphShape:
    shape = in_regions(GraphShape(3_000_000, 32, FLOAT, 0, Parameters(builder="partition")), MEMORY, 0, 8)
    assert shape is not None
    return shape


@pytest.mark.parametrize(
    ("seconds", "narrow", "wide"),
    [
        (lambda workers: ivf_seconds(10_000_000, workers), ("assign", "pack", "lists"), "certify"),
        (lambda workers: lsh_seconds(lsh_shape(10_000_000), workers), ("hash", "chain"), "certify"),
        (lambda workers: graph_seconds(sharded(), workers), ("assign", "unite", "pack"), "build"),
        (lambda workers: graph_seconds(in_pieces(), workers), ("carve", "pack"), "leaves"),
    ],
    ids=["ivf", "lsh", "graph in shards", "graph in regions"],
)
def test_more_workers_than_narrow_tasks_shorten_the_other_stages_alone(
    seconds: Callable[[int], dict[str, float]], narrow: tuple[str, ...], wide: str
) -> None:
    few, most, more = seconds(1), seconds(MOST_NARROW), seconds(32)
    for name in narrow:
        assert few[name] > most[name]
        assert more[name] >= most[name]  # the work space of more threads may leave room for fewer tasks
    assert more[wide] < most[wide] < few[wide]


def test_a_stage_of_few_tasks_is_no_shorter_with_more_workers() -> None:
    """10,000 vectors are one task of each batch, and of *hash*."""
    hashed = lsh_shape(10_000)
    assert ivf_seconds(10_000, 32)["assign"] == ivf_seconds(10_000, MOST_NARROW)["assign"]
    assert lsh_seconds(hashed, 32)["hash"] == lsh_seconds(hashed, 1)["hash"]
    assert lanes(32, 3) == 3


def test_groups_of_tables_are_chained_one_after_the_other() -> None:
    """Tables with many buckets make many groups of few parts: workers share the parts of a group alone."""
    shape = lsh_shape(10_000_000, hash_bits=30)
    chains = [parts(shape.tables, group, MEMORY) for group in groups(shape.tables)]
    assert len(chains) > MOST_NARROW
    assert max(map(len, chains)) < MOST_NARROW
    assert lsh_seconds(shape, 32)["chain"] == lsh_seconds(shape, 4)["chain"]


def test_single_reads_of_an_insertion_take_longer_in_a_graph_that_no_cache_holds() -> None:
    deadline = time.perf_counter() + 20
    small, large = (read_seconds(n_bytes, deadline) for n_bytes in (1 << 14, 1 << 28))
    assert 0 < small < large < 1e-5


def test_a_search_waits_for_each_vertex_and_an_insertion_for_each_neighbour() -> None:
    shape = GraphShape(10_000_000, 128, np.dtype(np.uint8), 0, Parameters(builder="vamana", R=32, L=75))
    longer = replace(shape, parameters=Parameters(builder="vamana", R=64, L=150))
    deadline = time.perf_counter() + 20
    assert stalling_seconds(shape, 10_000_000, deadline) == 0
    assert 0 < stalling_seconds(shape, 4096, deadline) < stalling_seconds(longer, 4096, deadline)
    rates = graph_rates(2, stalling=2e-5)
    assert graph.insertion_seconds(rates, 8192) == pytest.approx((1e-4 + 1500 * 1e-8 + 2e-5) / 2)


def test_the_distances_of_an_insertion_grow_by_less_with_each_doubling() -> None:
    fewer, equal = (Insertions(4096, 1e-4, 800.0, more=100.0, decline=share) for share in (0.5, 1.0))
    assert [fewer.distances_at(4096 << i) for i in range(4)] == pytest.approx([800, 850, 875, 887.5])
    assert [equal.distances_at(4096 << i) for i in range(4)] == pytest.approx([800, 900, 1000, 1100])
    for told in (fewer, equal):
        assert told.distances_at(1024) == 600
        assert told.distances_at(1) == 200
    assert fewer.seconds_at(8192, waiting=1e-8, stalling=1e-6) == pytest.approx(
        850 * (1e-4 / 800 + 1e-8) + 1e-6
    )


@pytest.mark.parametrize("dim", [4, 64])
def test_a_small_graph_tells_the_distances_of_insertions_into_a_large_one(dim: int) -> None:
    """Counts, which no load of the machine changes: those of a graph of 2,048 foretell one of 8,192."""
    rows = as_bits(np.random.default_rng(5).normal(size=(8192, dim)).astype(np.float32))
    p = Parameters(builder="vamana", R=16, L=40)
    told, known = (timed_insertions(rows[:n], None, p, math.inf) for n in (2048, 8192))
    assert told.distances_at(known.vertices) == pytest.approx(known.distances, rel=0.05)
    linear = replace(told, decline=1.0).distances_at(known.vertices)
    assert abs(told.distances_at(known.vertices) - known.distances) <= abs(linear - known.distances)


def test_a_start_takes_as_much_longer_as_the_machine_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    took = common.starting_seconds(2.0)
    assert 0 < took < 100
    monkeypatch.setattr(common, "fastest", lambda run, deadline, times: 2 * common.CLASSES_SECONDS)
    assert common.starting_seconds(1.5) == 3


def test_codes_chosen_by_queries_and_shards_cost_what_was_timed() -> None:
    shape = GraphShape(100_000, 32, FLOAT, 0, Parameters(builder="vamana"))
    asked = replace(shape, n_asked=1000)
    rates = graph_rates(2, choosing=1e-4, clustering=1e-3)
    files = dict.fromkeys(("encode", "cluster"), 0)
    plain, chosen = (graph.stage_seconds(rates, each, files, {}) for each in (shape, asked))
    assert chosen["encode"] - plain["encode"] == pytest.approx(100_000 * 1e-4 / 2)
    assert plain["cluster"] == 0
    shards = replace(
        shape, parameters=Parameters(builder="vamana", shard_vectors=30_000, sample_vectors=5000)
    )
    assert graph.stage_seconds(rates, shards, files, {})["cluster"] == pytest.approx(5)


def test_labels_cost_as_much_as_their_vectors_are_many() -> None:
    """Edges within a label: insertions into a graph of the vectors of one, for as many edges as it has."""
    shape = GraphShape(1_000_000, 32, FLOAT, 0, Parameters(builder="vamana"), label_column="colour")
    rates, files = graph_rates(2), {"labels": 0}
    few, many = (
        graph.stage_seconds(rates, replace(shape, label_share=share), files, {})["labels"]
        for share in (1e-4, 0.5)
    )
    assert 0 < few < many / 2


def test_equal_vectors_and_a_single_one_are_timed() -> None:
    for n in (1, 3000):
        told = timed_insertions(as_bits(np.ones((n, 8), np.float32)), None, Parameters(R=8, L=20), math.inf)
        assert 0 <= told.seconds_at(10_000_000, 1e-8, 0.0) < 1
