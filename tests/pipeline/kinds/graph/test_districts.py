"""Builds whose order is made in districts: the order of a whole graph with vectors, whatever the tasks."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.builds import assert_sound, build, clustered, data_files
from tests.support.indexes.layout import SmallDistricts
from tests.support.progress import Stages

import indexmill
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk
from indexmill.formats.errors import BudgetError
from indexmill.formats.sources.source import array_source
from indexmill.layout.districts import order as districts_order
from indexmill.layout.portfolio import ORDERS
from indexmill.layout.star import StarOrder
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.graph.default_order import order_scratch
from indexmill.pipeline.kinds.graph.districts import tasks
from indexmill.pipeline.kinds.graph.districts.plan import (
    district_files,
    district_scratch,
    most_left_over,
    n_districts,
)
from indexmill.pipeline.kinds.graph.memory import check_memory, fit_shards, narrow_stages, stage_bytes
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.regions.recipe import graph_recipe
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import scratch_bound, stage_files
from indexmill.pipeline.kinds.scratch import SideColumns, played
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.spec import BuildSpec

GIB = 1 << 30
STAGES = {"borders", "settle", "districts", "rests"}


@pytest.fixture(autouse=True)
def small_districts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ORDERS, "star", SmallDistricts(StarOrder()))


def pages(index: Path) -> dict[str, bytes]:
    return {name: data for name, data in data_files(index).items() if name != "manifest.json"}


def assert_as_laid_out(index: Path, vectors: np.ndarray) -> None:
    """Assert that an index has the pages of a layout of the whole graph of `vectors`."""
    plain, laid = index.with_name("plain"), index.with_name("laid")
    build(plain, vectors, order="identity")
    indexmill.lay_out(plain, "star", out=laid, workers=2)
    assert pages(index) == pages(laid)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
def test_a_build_has_the_order_of_a_layout_of_the_whole_graph(tmp_path: Path, dtype: str) -> None:
    vectors = clustered(1500, 8, dtype)
    stages = Stages()
    index = build(tmp_path / "built", vectors, order="star", progress=stages)
    assert set(stages.made) >= STAGES
    assert_sound(index)
    assert_as_laid_out(index, vectors)


def test_neither_workers_nor_tasks_nor_memory_reach_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(1500, 8, "uint8")
    one = build(tmp_path / "one", vectors, order="star", memory=GIB)
    monkeypatch.setattr(common_memory, "LEAST_ROWS", 200)
    monkeypatch.setattr(common_memory, "MOST_SORT_BUFFERS", 256 << 10)
    two = build(tmp_path / "two", vectors, order="star", memory=4 * GIB, workers=3)
    assert data_files(one) == data_files(two)


def test_vectors_that_are_equal_are_ordered_in_parts(tmp_path: Path) -> None:
    vectors = clustered(1000, 8, "uint8")
    vectors[:900] = vectors[0]
    index = build(tmp_path / "built", vectors, order="star")
    assert_sound(index)
    assert_as_laid_out(index, vectors)


def test_what_equal_vectors_leave_over_is_ordered_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(districts_order, "TOGETHER", 1)
    vectors = clustered(1500, 1000, "uint8")
    vectors[:1400] = vectors[0]
    index = build(tmp_path / "built", vectors, order="star")
    assert_as_laid_out(index, vectors)


def peak(task: Callable[..., None], *arguments: Any) -> int:
    tracemalloc.start()
    try:
        task(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_a_task_does_not_grow_with_the_number_of_equal_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmallDistricts, "vertices", 2000)
    monkeypatch.setattr(districts_order, "TOGETHER", 2)
    kind, degree, buffer = SmallDistricts(StarOrder(), (16,)), 32, 256 << 10
    chunk, packed, rest = (str(tmp_path / name) for name in ("chunk", "npz", "npy"))
    for n in (1000, 60_000):
        neighbours = np.random.default_rng(n).integers(0, n, (n, degree), np.uint32)
        records = Records(np.zeros(n, np.uint32), np.arange(n, dtype=np.uint32), neighbours)
        write_chunk(chunk, records, [0, 1], batch_bytes=16 << 10)
        first = peak(tasks.district_task, [chunk], 0, kind, n, degree, 4, buffer, packed)
        second = peak(tasks.rests_task, [packed], kind, n, degree, 4, rest)
    assert len(np.load(rest)) > 20_000
    assert sorted(tasks.joined_order([packed], [rest], kind.unit_pages, 4).tolist()) == list(range(n))
    assert first < kind.most * (12 * degree + 48) + buffer + 12 * n // 64 + (512 << 10)
    assert second < 2 * kind.vertices * 48 + kind.most * 4 * degree + 12 * n // 64 + (512 << 10)


def test_a_plan_counts_the_mean_district_and_a_budget_the_largest_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmallDistricts, "vertices", 40_000)
    monkeypatch.setattr(common_memory, "MOST_SORT_BUFFERS", 512 << 10)
    n, degree, per_page = 40_000, 32, 16
    stage, chunk = narrow_stages(shape(2 * n, R=degree), GIB)["districts"], str(tmp_path / "chunk")
    neighbours = np.random.default_rng(1).integers(0, n, (n, degree), np.uint32)
    records = Records(np.zeros(n, np.uint32), np.arange(n, dtype=np.uint32), neighbours)
    write_chunk(chunk, records, [0, 1], batch_bytes=16 << 10)
    arguments = (SmallDistricts(StarOrder()), 2 * n, degree, per_page, 256 << 10)
    taken = peak(tasks.district_task, [chunk], 0, *arguments, str(tmp_path / "npz"))
    assert stage.tasks == 2
    assert stage.expected is not None
    assert 0.85 * stage.expected < taken < stage.expected < 0.75 * stage.bytes
    assert stage.peak(GIB, 2, 0) == 2 * stage.bytes
    assert stage.peak(GIB, 2, 0, expected=True) == 2 * stage.expected


def test_a_small_graph_has_no_district_and_other_orders_have_none(tmp_path: Path) -> None:
    for name, n, order in (("small", 440, "star"), ("other", 1000, "identity")):
        stages = Stages()
        build(tmp_path / name, clustered(n, 8, "uint8"), order=order, progress=stages)
        assert not STAGES & set(stages.made)


def shape(n: int, **parameters: object) -> GraphShape:
    return GraphShape(
        n, 128, np.dtype("uint8"), 0.0, Parameters.model_validate({"order": "star", **parameters})
    )


def test_a_plan_has_the_stages_of_the_build(tmp_path: Path) -> None:
    spec = BuildSpec(
        input=["<array>"],
        out=str(tmp_path / "ix"),
        parameters=Parameters(R=12, L=30, pq_bytes=8, order="star"),
    )
    plan = make_plan(spec, array_source(clustered(1500, 8, "uint8")))
    assert set(plan.stages) >= STAGES
    assert plan.stages["settle"].scratch_bytes >= 1500 * 4 * 12


def test_memory_grows_with_a_district_and_scratch_with_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (narrow_stages(shape(n), GIB)["districts"] for n in (3000, 300_000))
    assert many.tasks == 100 * few.tasks == n_districts(shape(300_000))
    assert many.bytes - few.bytes < 300_000
    assert order_scratch(shape(3000)) == 0 < order_scratch(shape(300))
    assert stage_bytes(shape(300_000), GIB, 1)["order"] < 300_000 * 24
    monkeypatch.setattr(SmallDistricts, "vertices", 1 << 20)
    large, memory = shape(10**7, builder="vamana"), 300 << 20
    with pytest.raises(BudgetError, match=re.escape("stage districts needs")):
        check_memory(fit_shards(large, memory, "local", 1), memory, "local", 1)


def played_bytes(divided: GraphShape, left: float) -> int:
    """The most bytes that files of districts take in a build of which nothing else takes space."""
    files = dict.fromkeys(stage_files(divided, SideColumns(), GIB), 0) | district_files(divided, left)

    def last(mill: Mill, first: Stage, summary: InputSummary) -> Stage:
        return graph_recipe(mill, first, summary, divided, GIB).certify

    return played(last, files, divided, False, district_scratch(divided, left))[0]


# Few stars of lists of 16 fill a page of 20 nodes, and those of 64 may fill one of 10; a large node has its own page.
@pytest.mark.parametrize(
    ("dtype", "degree", "most"), [("uint8", 16, 0), ("uint8", 64, 1), ("float32", 512, 0)]
)
def test_scratch_is_bounded_by_what_files_of_districts_take_at_the_same_time(
    dtype: str, degree: int, most: int
) -> None:
    divided, other = (
        GraphShape(300_000, 128, np.dtype(dtype), 0.0, Parameters(R=degree, order=order, builder="vamana"))
        for order in ("star", "identity")
    )
    assert most_left_over(divided) == most
    beside = scratch_bound(divided) - (scratch_bound(other) - order_scratch(other))
    assert beside == played_bytes(divided, most)
    for left in (0, most / 2):
        assert played_bytes(divided, left) <= beside


def test_vectors_of_many_dimensions_are_settled_a_few_at_a_time() -> None:
    def settled(dim: int) -> int:
        large = GraphShape(10**6, dim, np.dtype("float32"), 0.0, Parameters.model_validate({"order": "star"}))
        return narrow_stages(large, GIB)["settle"].bytes

    assert settled(1536) == settled(128) < 200 << 20


def test_star_packing_is_offered_where_its_districts_take_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallDistricts, "vertices", 1 << 18)
    large, memory = shape(45 * 10**6, order="agglomerative", builder="vamana", pq_bytes=28), 3 << 29
    with pytest.raises(BudgetError, match=r"stage order needs .* take --order star"):
        check_memory(fit_shards(large, memory, "local", 16), memory, "local", 16)
