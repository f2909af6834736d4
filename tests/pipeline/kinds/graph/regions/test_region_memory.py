"""Peak memory of builds in regions and in shards: rows at hand, edges, and the plan that a budget leads to."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.builds import REGION_STAGES

from indexmill.builders.cluster.shards import plan_shards
from indexmill.builders.partition.carve import copies_of
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_chunk
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.graph import memory as needs
from indexmill.pipeline.kinds.graph.regions.graph import ranges
from indexmill.pipeline.kinds.graph.regions.memory import Allowance, leaves_bytes, more_memory, region_bytes
from indexmill.pipeline.kinds.graph.regions.plan import expected_cut, in_regions
from indexmill.pipeline.kinds.graph.regions.rows import RegionRows, spans
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import needed_scratch, scratch_bound
from indexmill.pipeline.kinds.scratch import SideColumns
from indexmill.pipeline.spec import Parameters

MIB = 1 << 20


def test_vectors_that_a_region_lacks_come_and_go(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).integers(0, 255, (500, 7), dtype=np.uint8)
    np.save(tmp_path / "v.npy", vectors)
    members = np.arange(0, 500, 3, dtype=np.uint32)
    records = Records(np.full(len(members), 4, np.uint32), members, vectors[members])
    write_chunk(tmp_path / "a.chunk", records, (0, 9))
    held = RegionRows(str(tmp_path / "v.npy"), [str(tmp_path / "a.chunk")], 4, len(members), 3, 1 << 20)
    for others in ([1, 2], [2, 7, 8, 499], [4]):  # there is no room for all of the second
        with held.holding(np.array(others, np.uint32)):
            at = np.flatnonzero(held.rows != 0xFFFFFFFF)
            assert sorted([*members.tolist(), *others]) == at.tolist()
            assert (held.vectors[held.rows[at]] == vectors[at]).all()
            assert (held.names[held.rows[at]] == at).all()
    assert np.array_equal(np.flatnonzero(held.rows != 0xFFFFFFFF), members)


def test_spans_have_no_more_than_is_allowed_except_for_one_vertex() -> None:
    starts = np.array([0, 0, 3, 4, 11, 11, 12])
    assert list(spans(starts, 5)) == [(0, 3), (3, 4), (4, 6)]
    assert list(spans(np.zeros(4, np.int64), 5)) == [(0, 3)]


@pytest.mark.memory
def test_more_vectors_than_there_is_room_for_are_no_second_copy_of_the_rest(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).integers(0, 255, (60_000, 32), dtype=np.uint8)
    np.save(tmp_path / "v.npy", vectors)
    members = np.arange(50_000, dtype=np.uint32)
    write_chunk(
        tmp_path / "a.chunk",
        Records(np.zeros(50_000, np.uint32), members, vectors[:50_000]),
        (0, 1),
    )
    others = np.arange(50_000, 60_000, dtype=np.uint32)
    tracemalloc.start()
    held = RegionRows(str(tmp_path / "v.npy"), [str(tmp_path / "a.chunk")], 0, 50_000, 10, 32 << 20)
    tracemalloc.reset_peak()
    with held.holding(others):
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (held.vectors[held.rows] == vectors).all()
    assert len(held.vectors) == 50_010
    assert (held.vectors[:50_000] == vectors[:50_000]).all()
    assert taken < 1.5 * vectors.nbytes


def test_edges_are_cut_into_ranges_of_vertices_that_fit_except_one(tmp_path: Path) -> None:
    of_key = np.array([3, 40, 0, 2, 9, 9, 9, 1, 0, 25, 1])
    keys = np.repeat(np.arange(11, dtype=np.uint32), of_key)
    for name, mine in (("a", keys[::2]), ("b", keys[1::2])):
        records = Records(mine, np.zeros(len(mine), np.uint32), np.zeros((len(mine), 8), np.uint32))
        write_chunk(tmp_path / name, records, (0, 11), batch_bytes=200)
    found = list(ranges([str(tmp_path / "a"), str(tmp_path / "b")], 1, 10, 20))
    assert [first for first, _, _ in found] == [1, *(last for _, last, _ in found[:-1])]
    assert found[-1][1] == 10
    for first, last, n in found:
        assert n == of_key[first:last].sum()
        assert last - first == 1 or n <= 20
    assert len(found) < 9


# Budgets


def test_regions_never_need_more_than_the_budget_nor_files_more_than_the_bound() -> None:
    for n, dim, dtype in (
        (1_000_000, 128, "uint8"),
        (10_000_000, 96, "float32"),
        (2_000_000, 768, "float32"),
        (1_000_000_000, 128, "uint8"),
    ):
        for degree in (16, 64):
            shape = GraphShape(n, dim, np.dtype(dtype), 0, Parameters(R=degree, builder="partition"))
            least = needs.least_memory(shape, "local", 2)
            assert least < 0.5 * needs.least_memory(
                replace(shape, parameters=Parameters(R=degree, builder="partition", shard_vectors=n)),
                "local",
                2,
            )
            for memory in (least, int(1.5 * least)):
                fitted = needs.fit_shards(shape, memory, "local", 2)
                assert fitted.region_bytes is not None
                stages = needs.check_memory(fitted, memory, "local", 2)
                assert set(REGION_STAGES) <= set(stages)
                predicted, _ = needed_scratch(fitted, SideColumns(), memory, keep=False)
                assert predicted <= scratch_bound(fitted)


@pytest.mark.parametrize(("regions", "times"), [(21, 7.84), (11, 6.53)])
def test_regions_of_sentences_overlap_about_as_they_were_found_to(regions: int, times: float) -> None:
    shape = GraphShape(200_000, 768, np.dtype(np.float32), 0, Parameters(builder="partition"))
    cuts = [
        expected_cut(needs.fit_shards(shape, memory, "local", 2), memory)
        for memory in range(600 * MIB, 850 * MIB, 10 * MIB)
    ]
    found = [cut.times for cut in cuts if cut is not None and cut.regions == regions]
    assert found
    assert found == pytest.approx([times] * len(found), rel=0.04)


@pytest.mark.parametrize(("n", "memory"), [(3_000_000, 1 << 30), (10_000_000, 4 << 30)])
def test_a_plan_expects_few_strays_and_never_more_than_a_budget_counts(n: int, memory: int) -> None:
    shape = GraphShape(n, 128, np.dtype(np.uint8), 0, Parameters(builder="partition", order="star"))
    fitted = needs.fit_shards(shape, memory, "local", 2)
    bound, planned = (needs.stage_bytes(fitted, memory, 2, expected=expected) for expected in (False, True))
    assert set(planned) == set(bound)
    assert all(planned[stage] <= bound[stage] for stage in bound)
    for stage in ("choose", "unite"):
        assert 0.4 * bound[stage] < planned[stage] < 0.97 * bound[stage]
    assert planned["leaves"] == bound["leaves"]


def test_worker_processes_leave_less_for_one_piece() -> None:
    shape = GraphShape(1_000_000, 128, np.dtype(np.uint8), 0, Parameters(builder="partition"))
    memory = 1536 * MIB
    assert needs.fit_shards(shape, memory, "local", 4).region_bytes is None
    fitted = needs.fit_shards(shape, memory, "ray", 4)
    assert fitted.region_bytes is not None
    assert needs.check_memory(fitted, memory, "ray", 4, shape)


def test_a_few_workers_more_do_not_cut_other_regions() -> None:
    shape = GraphShape(10_000_000, 96, np.dtype(np.float32), 0, Parameters(builder="partition"))
    rooms = [needs.fit_shards(shape, 4 << 30, "local", workers).region_bytes for workers in (1, 2, 8)]
    assert len({*rooms, needs.fit_shards(shape, 4 << 30, "ray", 1).region_bytes}) == 1
    assert (rooms[0] or 0) > 0.85 * ((4 << 30) - common_memory.FIXED_BYTES)
    assert needs.fit_shards(shape, 4 << 30, "ray", 8).region_bytes != rooms[0]


@pytest.mark.parametrize("memory", [900 * MIB, 2000 * MIB, 5000 * MIB])
def test_a_cell_that_does_not_fit_is_told_how_much_more_it_needs(memory: int) -> None:
    shape = GraphShape(60_000_000, 64, np.dtype(np.uint8), 0, Parameters(builder="partition"))

    def room(memory: int) -> Allowance:
        fitted = in_regions(shape, memory, 0, 4)
        assert fitted is not None
        return fitted.allowance(memory)

    def need(members: int, room: Allowance) -> int:
        copies = copies_of([members], shape.n, room.fanouts)
        return max(leaves_bytes(members, members, copies, room, 6), region_bytes(shape.n, members, room))

    first = room(memory)
    least = next(m for m in range(1000, shape.n, 10_000) if need(m, first) > first.bytes)
    for members in (least, 2 * least):
        more = more_memory(need(members, first), first)
        assert more < 2 * (need(members, first) - first.bytes) + memory // 8
        second = room(memory + more)
        assert need(members, second) <= second.bytes


@pytest.mark.parametrize("shard_vectors", [10_000, 2500])
def test_shards_are_planned_within_the_memory_that_is_foretold(shard_vectors: int) -> None:
    n, dim = 20_000, 192
    sample = np.random.default_rng(1).random((n, dim), np.float32)
    plan_shards(sample[:2000], 2000, 500, 0.25, 1)  # compiles
    tracemalloc.start()
    try:
        plan_shards(sample, n, shard_vectors, 0.25, 1, threads=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    p = Parameters(builder="vamana", shard_vectors=shard_vectors, overlap=0.25)
    planned = needs.stage_bytes(GraphShape(n, dim, sample.dtype, 0.0, p), 1 << 30, 2)["cluster"]
    assert 0.7 < peak / planned <= 1.01
