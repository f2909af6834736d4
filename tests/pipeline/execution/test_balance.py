"""Tasks on nodes of different speeds, in a simulation: the balancer and the dispatch of a stage know no clock."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.formats.errors import BudgetError
from indexmill.pipeline.execution.balance import Balancer, Node
from indexmill.pipeline.execution.capacity import capacity
from indexmill.pipeline.execution.dispatch import Dispatch

NODES = st.lists(st.tuples(st.integers(1, 4), st.floats(0.05, 8)), min_size=1, max_size=5)
COSTS = st.lists(st.floats(0.1, 10), min_size=1, max_size=60)


def simulate(
    balancer: Balancer, costs: list[float], rate: Callable[[str, float], float]
) -> tuple[float, Counter[str]]:
    """Run tasks to the end; `rate` says how fast a lane of a node really is at a time. Return the end and counts."""
    queue = list(range(len(costs)))
    events: list[tuple[float, int, float]] = []
    now, ran = 0.0, Counter[str]()
    while queue or events:
        starts = balancer.place([costs[i] for i in queue], now)
        assert starts or events, "nothing runs and nothing starts"
        for position, node in starts:
            seconds = costs[queue[position]] / rate(node, now)
            balancer.start(queue[position], node, costs[queue[position]], now)
            heapq.heappush(events, (now + seconds, queue[position], seconds))
            ran[node] += 1
        for position, _ in sorted(starts, reverse=True):
            del queue[position]
        now, task, seconds = heapq.heappop(events)
        balancer.finish(task, seconds)
    return now, ran


def named(nodes: list[tuple[int, float]]) -> dict[str, Node]:
    return {f"n{i}": Node(lanes, rate) for i, (lanes, rate) in enumerate(nodes)}


@given(NODES, COSTS)
@settings(max_examples=200, deadline=None)
def test_the_last_task_ends_within_one_task_of_the_bound(
    nodes: list[tuple[int, float]], costs: list[float]
) -> None:
    rates = {f"n{i}": rate for i, (_, rate) in enumerate(nodes)}
    end, _ = simulate(Balancer(named(nodes)), costs, lambda node, _: rates[node])
    lanes = sum(n for n, _ in nodes)
    speed = sum(n * rate for n, rate in nodes)
    assert end <= (sum(costs) + (lanes - 1) * max(costs)) / speed * 1.001
    assert end >= sum(costs) / speed * 0.999


@given(NODES, COSTS)
def test_a_lane_stays_free_only_when_waiting_is_better(
    nodes: list[tuple[int, float]], costs: list[float]
) -> None:
    starts = Balancer(named(nodes)).place(costs, 0.0)
    lanes = [(f"n{i}", rate) for i, (n, rate) in enumerate(nodes) for _ in range(n)]
    busy = [0.0] * len(lanes)
    expected = []
    for position, cost in enumerate(costs):  # every task, lane by lane
        ends = [(busy[s] + cost / rate, busy[s], name, s) for s, (name, rate) in enumerate(lanes)]
        _, begins, name, s = min(ends)
        if begins == 0 and busy[s] == 0:
            expected.append((position, name))
        busy[s] += cost / lanes[s][1]
    assert starts == expected


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), COSTS)
def test_equal_nodes_never_idle_while_work_waits(lanes: list[int], costs: list[float]) -> None:
    starts = Balancer(named([(n, 1.0) for n in lanes])).place(costs, 0.0)
    assert len(starts) == min(len(costs), sum(lanes))


def test_a_node_that_lags_gets_fewer_tasks() -> None:
    balancer = Balancer({"good": Node(1), "bad": Node(1)})

    def rate(node: str, now: float) -> float:
        return 0.05 if node == "bad" and now >= 50 else 1.0

    end, ran = simulate(balancer, [1.0] * 200, rate)
    assert ran["bad"] <= 51 + (end - 50) / 20  # half at first, a twentieth of the rest later
    assert end <= 50 + 100 / 1.05 + 4  # nobody waits twenty seconds for its last task


def test_rates_that_were_declared_wrongly_are_measured() -> None:
    balancer = Balancer({"said-slow": Node(1, 0.1), "said-fast": Node(1, 1.0)})
    end, ran = simulate(balancer, [1.0] * 100, lambda node, _: 2.0 if node == "said-slow" else 1.0)
    assert ran["said-slow"] >= 55  # two thirds, less the tasks it did not get at first
    assert end <= 40


def test_a_task_that_is_late_does_not_hold_the_queue_up() -> None:
    balancer = Balancer({"fast": Node(1, 1.0), "slow": Node(1, 0.2)})
    balancer.start(0, "fast", 1.0, 0.0)
    balancer.finish(0, 1.0)
    balancer.start(1, "fast", 1.0, 1.0)
    assert balancer.place([1.0], 1.5) == []  # fast is done in a moment
    assert balancer.place([1.0], 7.0) == [(0, "slow")]  # five seconds late: probably not done in four


def test_tasks_that_die_together_halve_once_and_alone_halve_again() -> None:
    dispatch = Dispatch("merge_task", 16)
    dispatch.follow({"n": Node(8)})
    assert len(dispatch.start(0.0)) == 8
    for index in (0, 1, 2):
        dispatch.died(index, MemoryError())
    assert dispatch.balancer.nodes["n"].lanes == 4
    assert dispatch.start(1.0) == []  # five of eight still run
    for index in (3, 4, 5, 6, 7):
        dispatch.finished(index, 1.0, None)
    assert sorted(index for index, _ in dispatch.start(2.0)) == [0, 1, 2, 8]  # what died comes first
    dispatch.died(0, MemoryError())
    assert dispatch.balancer.nodes["n"].lanes == 2


def test_a_task_that_keeps_dying_runs_alone_before_the_build_ends() -> None:
    dispatch = Dispatch("merge_task", 100)
    dispatch.follow({"n": Node(16)})
    running: set[int] = set()
    beside = []
    for _ in range(5):
        running |= {index for index, _ in dispatch.start(0.0)}
        while 0 not in running:
            dispatch.finished(running.pop(), 1.0, None)
            running |= {index for index, _ in dispatch.start(0.0)}
        beside.append(len(running))
        if len(beside) < 5:
            dispatch.died(0, MemoryError())
            running.discard(0)
    with pytest.raises(BudgetError, match="merge_task: task 0 of 100 died 5 times"):
        dispatch.died(0, MemoryError())
    assert beside == [16, 8, 4, 2, 1]


def test_tasks_of_a_lost_node_run_elsewhere_and_a_node_that_joins_is_used() -> None:
    dispatch = Dispatch("task", 6)
    dispatch.follow({"a": Node(1), "b": Node(1)})
    assert [node for _, node in dispatch.start(0.0)] == ["a", "b"]
    dispatch.follow({"a": Node(1), "c": Node(2)})
    dispatch.lost(1, RuntimeError("node b"))
    assert dispatch.start(0.1) == [(1, "c"), (2, "c")]
    for _ in range(3):
        dispatch.lost(1, RuntimeError("node c"))
        dispatch.follow({"a": Node(1), "c": Node(2)})
        assert (1, "c") in dispatch.start(0.2)
    with pytest.raises(BudgetError, match="died 5 times"):
        dispatch.lost(1, RuntimeError("node c"))


@pytest.mark.parametrize(
    ("resources", "wide", "task_bytes", "expected"),
    [
        ({"CPU": 8, "memory": 100}, False, 0, (1, 4, 60, 1.0)),  # four workers, a budget of 60 bytes
        ({"CPU": 2, "memory": 40}, False, 0, (1, 2, 40, 1.0)),
        ({"CPU": 8, "memory": 100}, False, 25, (1, 2, 60, 1.0)),
        ({"CPU": 8, "memory": 100}, False, 61, (1, 0, 60, 1.0)),
        ({"CPU": 8, "memory": 100}, True, 25, (4, 1, 60, 1.0)),
        ({"CPU": 0, "memory": 100}, True, 0, (0, 0, 60, 1.0)),
        ({"CPU": 1, "memory": 60, "indexmill_rate": 25}, False, 0, (1, 1, 60, 0.25)),
        ({"CPU": 1, "memory": 60, "indexmill_storage": 300}, False, 0, (1, 1, 60, 1.5)),
        (
            {"CPU": 1, "memory": 60, "indexmill_rate": 10, "indexmill_storage": 400},
            False,
            0,
            (1, 1, 60, 2 / 10.25),
        ),
    ],
)
def test_a_node_offers_what_it_declares_within_workers_and_budget(
    resources: dict[str, float], wide: bool, task_bytes: int, expected: tuple[float, ...]
) -> None:
    assert capacity(resources, 4, 60, wide, task_bytes) == pytest.approx(expected)
