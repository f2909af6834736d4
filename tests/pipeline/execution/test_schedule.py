"""Schedules of a cluster: bounds that hold for all of them, and what binds."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.pipeline.execution.schedule import (
    PART_BYTES,
    PIECE_BYTES,
    PIECES_AT_ONCE,
    PUSH_REQUESTS,
    STAGE_REQUESTS,
    Cluster,
    Link,
    Step,
    Work,
    list_schedule,
    play,
    published_by_command,
)

GIB = 1 << 30
FAST = Link(1e18, 0.0)
TASKS, LANES, NODES = st.integers(1, 60), st.integers(1, 8), st.integers(1, 9)
SECONDS = st.floats(0.01, 100)


@given(TASKS, SECONDS, NODES, LANES, st.floats(0, 100))
def test_no_schedule_is_faster_than_all_lanes_nor_slower_than_one(
    tasks: int, seconds: float, nodes: int, lanes: int, fetching: float
) -> None:
    ends = list_schedule(tasks, seconds, [fetching] * nodes, lanes)
    assert sum(ends.tasks) == tasks
    work = tasks * seconds
    assert fetching + work / (nodes * lanes) <= ends.seconds * (1 + 1e-9)
    assert ends.seconds <= (fetching + work) * (1 + 1e-9)
    assert ends.tasks[ends.last] == max(ends.tasks)


@given(TASKS, SECONDS, NODES, LANES, st.floats(0, 100))
def test_a_node_more_that_fetches_as_fast_delays_nothing(
    tasks: int, seconds: float, nodes: int, lanes: int, fetching: float
) -> None:
    few, more = (list_schedule(tasks, seconds, [fetching] * n, lanes) for n in (nodes, nodes + 1))
    assert more.seconds <= few.seconds * (1 + 1e-9)


@given(TASKS, SECONDS, st.lists(st.floats(0, 100), min_size=1, max_size=6), LANES)
def test_a_schedule_ends_when_a_lane_played_out_ends(
    tasks: int, seconds: float, fetching: list[float], lanes: int
) -> None:
    free = [[0.0] * lanes for _ in fetching]
    for _ in range(tasks):
        node = min(range(len(free)), key=lambda n: min(free[n]))
        lane = free[node].index(min(free[node]))
        free[node][lane] = max(free[node][lane], fetching[node]) + seconds
    expected = max(max(lanes) for lanes in free)
    assert list_schedule(tasks, seconds, fetching, lanes).seconds == pytest.approx(expected)


def test_a_few_tasks_on_a_large_cluster_take_little_memory() -> None:
    tracemalloc.start()
    ends = list_schedule(5, 1.0, [0.0] * 1000, 1024)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (ends.seconds, sum(ends.tasks)) == (1.0, 5)
    assert peak < 1 << 20


def one(work: Work, nodes: int = 4, cores: int = 8, link: Link = FAST, size: int = 0) -> Step:
    works = {"before": Work(1.0, task_bytes=GIB), "it": work}
    inputs: dict[str, tuple[str, ...]] = {"before": (), "it": ("before",)}
    return play(works, inputs, {"before": size, "it": size}, Cluster(nodes, cores, 8 * GIB, link))[0]["it"]


def test_narrow_tasks_fill_the_cores_of_all_nodes() -> None:
    step = one(Work(320.0, 32, wide=False, task_bytes=GIB))
    assert (step.lanes, step.nodes, step.binds) == (8, 4, "cores")
    assert step.seconds == pytest.approx(10)


def test_memory_binds_where_it_holds_fewer_tasks_than_there_are_cores() -> None:
    step = one(Work(320.0, 32, wide=False, task_bytes=2 * GIB))
    assert (step.lanes, step.binds) == (4, "memory")
    assert step.seconds == pytest.approx(20)
    assert one(Work(320.0, 32, wide=False, task_bytes=GIB, at_once=3)).binds == "memory"


def test_a_wide_task_has_a_node_to_itself_and_one_task_is_serial() -> None:
    assert one(Work(40.0, 8, task_bytes=8 * GIB)).seconds == pytest.approx(10)
    serial = one(Work(40.0, task_bytes=8 * GIB))
    assert (serial.seconds, serial.nodes, serial.binds) == (pytest.approx(40), 1, "serial")


def test_tasks_fewer_than_lanes_are_few() -> None:
    step = one(Work(40.0, 2, task_bytes=8 * GIB))
    assert (step.seconds, step.binds) == (pytest.approx(20), "few tasks")


def test_each_node_fetches_once_what_it_does_not_have() -> None:
    step = one(Work(40.0, 8, task_bytes=8 * GIB), link=Link(1e9, 0.0), size=10**10)
    assert step.read_bytes == 3 * 10**10  # the first node made it
    assert step.written_bytes == 10**10
    assert step.seconds == pytest.approx(10 + 10 + 2.5)
    assert step.binds == "storage"


def test_stages_of_the_command_use_no_node_and_are_pushed() -> None:
    work = Work(4.0, is_remote=False)
    step = one(work, link=Link(1e9, 0.0), size=10**9)
    assert (step.seconds, step.nodes, step.read_bytes, step.binds) == (pytest.approx(5), 0, 0, "serial")


def test_every_request_takes_its_time() -> None:
    link, size = Link(1e9, 0.5), 4 * PIECES_AT_ONCE * PIECE_BYTES
    assert link.fetching(size) == pytest.approx(6 * 0.5 + size / 1e9)
    assert link.pushing(size) == pytest.approx((26 + 4) * 0.5 + size / 1e9)
    assert link.fetching(0) == link.pushing(0) == 0


def test_an_index_at_a_url_is_fetched_and_pushed() -> None:
    here, there = (published_by_command(10**9, Link(1e9, 0.0), at_url) for at_url in (False, True))
    assert (here.seconds, here.read_bytes, here.written_bytes) == (pytest.approx(1), 10**9, 0)
    assert (there.seconds, there.read_bytes, there.written_bytes) == (pytest.approx(2), 10**9, 10**9)


def test_tasks_beside_each_other_share_bytes_a_second_but_wait_for_requests_at_once() -> None:
    work = {"a": Work(0.0, 8, wide=False, task_bytes=GIB)}
    files = {"a": 8 * 2 * PART_BYTES}
    cluster = Cluster(1, 8, 8 * GIB, Link(PART_BYTES, 0.5))
    step = play(work, {"a": ()}, files, cluster)[0]["a"]
    assert step.seconds == pytest.approx(STAGE_REQUESTS * 0.5 + 16 + (2 + PUSH_REQUESTS) * 0.5)


def test_tasks_beside_each_other_share_the_disk_of_their_node() -> None:
    work = Work(320.0, 32, wide=False, task_bytes=GIB, writing=32.0)
    assert one(work).seconds == pytest.approx(10 + 32 / 4)
    assert one(work, nodes=1).seconds == pytest.approx(40 + 32)


def test_the_fullest_mirror_is_counted() -> None:
    works = {"a": Work(1.0), "b": Work(2.0, 2, task_bytes=GIB)}
    inputs: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",)}
    _, mirror = play(works, inputs, {"a": 100, "b": 50}, Cluster(2, 1, GIB, FAST))
    assert mirror == 125


def test_tasks_fetch_their_own_share_of_files_and_links_take_no_disk() -> None:
    works = {
        "a": Work(8.0, 8, wide=False),
        "b": Work(8.0, 8, wide=False, by_share=("a",)),
        "c": Work(1.0, linked_bytes=800),
    }
    sizes = {"a": 800, "b": 800, "c": 900}
    inputs = {"a": (), "b": ("a",), "c": ("b",)}
    alone, disk = play(works, inputs, sizes, Cluster(1, 8, 1 << 40, Link(1e9, 0.0)))
    assert [step.read_bytes for step in alone.values()] == [0, 0, 0]
    assert disk == 800 + 800 + 100
    apart, _ = play(works, inputs, sizes, Cluster(4, 2, 1 << 40, Link(1e9, 0.0)))
    assert apart["b"].nodes == 4
    assert apart["b"].read_bytes == 600  # a node made a quarter of them itself


def test_tasks_that_one_node_takes_share_its_disk_and_link_however_many_nodes_there_are() -> None:
    works = {"a": Work(16.0, 16, wide=False, writing=32.0)}
    link = Link(1e9, 0.0)
    one, many = (
        play(works, {"a": ()}, {"a": 10**11}, Cluster(n, 16, 1 << 40, link))[0]["a"] for n in (1, 16)
    )
    assert many.nodes == 1
    assert many.seconds == one.seconds
