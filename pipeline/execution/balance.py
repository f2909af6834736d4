"""Assignment of tasks to nodes of unlike speed so that the nodes finish together.

This is Equation 8 of the Batch Similarity Search paper ("I/O and Energy Efficient Large-scale Image Similarity
Search Using Computational Storage Devices", section 5.5) for tasks, which do not divide: each goes where it would be
*finished* first, given what every node still has to do and how fast it has been. (`pipeline.join.split` is the form for
work that divides.) Only the place of a task is chosen here, never its contents, so no choice reaches the bytes of an
index.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: Weight of the newest measurement in a node's rate, a geometric mean: a node that becomes slower and a first
#: task that took long to warm up are noticed as fast, within a few tasks.
_NEWEST = 0.5
_LEAST_SECONDS = 1e-6


def combined_rate(load: float, search: float) -> float:
    """Return the items a second of a worker that loads, then works: the T of Equation 8, for one item, inverted.

    Parameters
    ----------
    load, search : float
        Items a second, positive.
    """
    return 1 / (1 / load + 1 / search)


@dataclass
class Node:
    """A node that runs tasks.

    Attributes
    ----------
    lanes : int
        Tasks it runs at once.
    declared : float
        Speed of one lane relative to other nodes', until a measurement replaces it.
    measured : float or None
        Cost a second of one lane.
    """

    lanes: int
    declared: float = 1.0
    measured: float | None = None


@dataclass(frozen=True)
class _Running:
    node: str
    cost: float
    started: float


@dataclass
class Balancer:
    """Tasks to nodes by earliest completion time.

    It knows no clock: times are seconds of whatever clock the caller has. For n lanes, exact rates and greatest
    cost c, the last task ends no later than ``(total cost + (n - 1) * c) / sum of the lanes' rates``: within one
    task, on a lane of mean rate, of the least possible.

    Attributes
    ----------
    nodes : dict of str to Node
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    _running: dict[int, _Running] = field(default_factory=dict)

    def start(self, task: int, node: str, cost: float, now: float) -> None:
        """Record that `task` runs on `node`."""
        self._running[task] = _Running(node, cost, now)

    def finish(self, task: int, seconds: float) -> None:
        """Record that `task` took `seconds`, which corrects the rate of its node."""
        run = self._running.pop(task)
        node = self.nodes.get(run.node)
        if node is not None:
            rate = run.cost / max(seconds, _LEAST_SECONDS)
            before = rate if node.measured is None else node.measured
            node.measured = before ** (1 - _NEWEST) * rate**_NEWEST

    def lose(self, task: int) -> None:
        """Record that `task` ended without a result."""
        del self._running[task]

    def rates(self, now: float) -> dict[str, float]:
        """Return the cost a second of one lane of each node: measured, else declared in the measured nodes' scale."""
        ratios = [n.measured / n.declared for n in self.nodes.values() if n.measured is not None]
        if ratios:
            scale = sum(ratios) / len(ratios)
        else:  # nothing has ended: rates are no higher than what runs shows
            scale = min(
                (
                    run.cost / (now - run.started) / self.nodes[run.node].declared
                    for run in self._running.values()
                    if run.node in self.nodes and now > run.started
                ),
                default=1.0,
            )
        return {
            name: node.declared * scale if node.measured is None else node.measured
            for name, node in self.nodes.items()
        }

    def place(self, costs: Iterable[float], now: float) -> list[tuple[int, str]]:
        """Return what to start now of a queue of tasks.

        Every task, in order, goes to the lane where it would end first, until no lane is free. A lane
        stays free only when each task left would end earlier by waiting for another lane.

        Parameters
        ----------
        costs : iterable of float
            The queue, in any unit, positive.
        now : float
            Seconds.

        Returns
        -------
        list of (int, str)
            Positions in `costs` with the node for each. The caller reports each with `start`.
        """
        rates = self.rates(now)
        ready = self._ready(rates, now)
        free = sum(time <= now for times in ready.values() for time in times)
        starts: list[tuple[int, str]] = []
        for position, cost in enumerate(costs):
            if len(starts) == free:
                break
            name = min(ready, key=lambda n: (ready[n][0] + cost / rates[n], ready[n][0], n))
            if ready[name][0] <= now:
                starts.append((position, name))
            heapq.heapreplace(ready[name], ready[name][0] + cost / rates[name])
        return starts

    def _ready(self, rates: Mapping[str, float], now: float) -> dict[str, list[float]]:
        """Return when the lanes of each node become free, as a heap.

        A task that should have ended by now is taken to need as long again as it is late.
        """
        ends: dict[str, list[float]] = {name: [] for name in self.nodes}
        for run in self._running.values():
            if run.node in ends:
                late = now - (run.started + run.cost / rates[run.node])
                ends[run.node].append(now + max(abs(late), _LEAST_SECONDS))
        ready = {}
        for name, node in self.nodes.items():
            times = sorted(ends[name])[max(0, len(ends[name]) - node.lanes) :]
            ready[name] = [now] * (node.lanes - len(times)) + times
        return ready
