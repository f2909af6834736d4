"""The tasks of one stage on several nodes: which wait, which run where, and which must run again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from itertools import repeat
from typing import Any, NamedTuple

from indexmill.formats.errors import BudgetError, first_line
from indexmill.pipeline.execution.balance import Balancer, Node

#: Times a task may die. Each halves the tasks that run beside it, so that the last of 16 runs alone.
_DEATHS = 5
#: Times a task may lose its node. Nodes fail on their own, but a task that takes node after node down must end.
_LOSSES = 5


class _Flight(NamedTuple):
    node: str
    #: Slots of the node when the task was sent.
    lanes: int


class Dispatch:
    """Tasks 0 to `n_tasks` - 1, all taken to cost the same until measured.

    It knows no clock and starts nothing: the executor asks `start` what to send, and reports what became of it.

    Parameters
    ----------
    name : str
        The tasks', for errors.
    n_tasks : int

    Attributes
    ----------
    done : dict of int to anything
        Results, which the executor takes out.
    """

    def __init__(self, name: str, n_tasks: int) -> None:
        self.name = name
        self.n_tasks = n_tasks
        self.done: dict[int, Any] = {}
        self.balancer = Balancer()
        self._queue = deque(range(n_tasks))
        self._flights: dict[int, _Flight] = {}
        self._deaths: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()

    def follow(self, nodes: Mapping[str, Node]) -> None:
        """Use `nodes` from now on; one known before keeps its measured rate and its lanes."""
        known = self.balancer.nodes
        for name in known.keys() - nodes.keys():
            del known[name]
        for name, node in nodes.items():
            known.setdefault(name, node)

    def start(self, now: float) -> list[tuple[int, str]]:
        """Return the tasks to send now, with their nodes, as started."""
        places = self.balancer.place(repeat(1.0, len(self._queue)), now)
        starts = [(self._queue[position], node) for position, node in places]
        for index, node in starts:
            self._queue.remove(index)
            self._flights[index] = _Flight(node, self.balancer.nodes[node].lanes)
            self.balancer.start(index, node, 1.0, now)
        return starts

    def finished(self, index: int, seconds: float, result: Any) -> None:
        """Take the result of a task that ran for `seconds`."""
        del self._flights[index]
        self.balancer.finish(index, seconds)
        self.done[index] = result

    def died(self, index: int, error: Exception) -> None:
        """Run a task again that probably ran out of memory, with half as many beside it on its node.

        Several that die together halve once: what counts is how many could run when they were sent.

        Raises
        ------
        BudgetError
            If it died too often.
        """
        flight = self._flights[index]
        node = self.balancer.nodes.get(flight.node)
        if node is not None:
            node.lanes = min(node.lanes, max(1, flight.lanes // 2))
        self._again(index, error, self._deaths, _DEATHS)

    def lost(self, index: int, error: Exception) -> None:
        """Run a task again whose node has gone.

        Raises
        ------
        BudgetError
            If it lost too many nodes.
        """
        self.balancer.nodes.pop(self._flights[index].node, None)
        self._again(index, error, self._losses, _LOSSES)

    def _again(self, index: int, error: Exception, counts: Counter[int], most: int) -> None:
        del self._flights[index]
        self.balancer.lose(index)
        counts[index] += 1
        if counts[index] >= most:
            reason = first_line(error)
            raise BudgetError(
                f"{self.name}: task {index} of {self.n_tasks} died {most} times, probably for lack of memory "
                f"({type(error).__name__}: {reason}); lower --memory, so that tasks are smaller, or use larger nodes, "
                "and run again: finished work is kept"
            ) from None
        self._queue.appendleft(index)
