"""The schedule of a build on equal nodes that share nothing but object storage, played through without a clock.

It follows what the executor on Ray and its storage do: a stage begins when the one before it has ended, a task goes to
the lane that is free first, and before its first task of a stage a node fetches the files of all stages that this one
reads, except those that lie in its mirror already. What a task wrote is in the mirror of its node and on storage. The
executor does not foresee transfers, so that a build may take longer on more nodes, and the schedule shows it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from indexmill.pipeline.execution.capacity import capacity

#: Bytes of one request that fetches, and such requests of a file at once.
PIECE_BYTES, PIECES_AT_ONCE = 16 << 20, 4
#: Bytes of one request that pushes: the parts of an upload by pyarrow.
PART_BYTES = 10 << 20
#: Requests of a file beside those, as counted by an S3 server: a look and the opening before it is fetched; begin, end,
#: a look and the note of its bytes as it is pushed.
FETCH_REQUESTS, PUSH_REQUESTS = 2, 4
#: Requests of a stage beside those of its files, one after the other: marks, a lease, looks for what is there.
STAGE_REQUESTS = 30

Binds = Literal["cores", "memory", "storage", "few tasks", "serial"]


@dataclass(frozen=True)
class Work:
    """The work of a stage, apart from transfers.

    Attributes
    ----------
    seconds : float
        Of all tasks, one after the other: of wide ones with all cores of a node, of narrow ones on one core.
    tasks : int
    wide : bool
        Whether a task takes all cores of a node.
    task_bytes : int
        Memory that a task asks its node for.
    at_once : int, optional
        Narrow tasks that fit a node beside each other, where that may be fewer than it has cores.
    writing : float
        Seconds in which the disk of one node would write the files of all narrow tasks; tasks beside each other share
        it. Those of wide tasks are part of `seconds`.
    is_remote : bool
        Whether nodes do it; else the command itself does, before or after them.
    by_share : tuple of str
        Stages of which each task reads no more than the files that are its own, as many as other tasks; of others, a
        node fetches all files.
    linked_bytes : int
        Of the files that the stage leaves, those that are links to files that it read.
    """

    seconds: float
    tasks: int = 1
    wide: bool = True
    task_bytes: int = 0
    at_once: int | None = None
    writing: float = 0.0
    is_remote: bool = True
    by_share: tuple[str, ...] = ()
    linked_bytes: int = 0


class Link(NamedTuple):
    """The way between a node and storage.

    Attributes
    ----------
    bytes_per_s : float
        Of all transfers of a node together.
    request_s : float
        Seconds that each request takes beside its bytes. Those that push a file are made one after the other.
    """

    bytes_per_s: float
    request_s: float

    def fetching(self, size: float, beside: float = 1) -> float:
        """Return the seconds of fetching files of `size` bytes as one; those that are there cost nothing.

        Parameters
        ----------
        beside : float
            Transfers of the node at once, which share the bytes a second.
        """
        requests = -(-size // (PIECE_BYTES * PIECES_AT_ONCE)) + FETCH_REQUESTS
        return size * beside / self.bytes_per_s + requests * self.request_s if size else 0.0

    def pushing(self, size: float, beside: float = 1) -> float:
        """Return the seconds of pushing a file of `size` bytes; `beside` is as of `fetching`."""
        requests = -(-size // PART_BYTES) + PUSH_REQUESTS
        return size * beside / self.bytes_per_s + requests * self.request_s if size else 0.0


class Cluster(NamedTuple):
    """Equal nodes: how many, cores and bytes of memory of each, and the link of each to storage."""

    nodes: int
    cores: int
    memory: int
    link: Link


@dataclass(frozen=True)
class Step:
    """One stage of a schedule.

    Attributes
    ----------
    seconds : float
        From the end of the stage before.
    tasks, lanes : int
        Tasks, and how many of them a node runs at once.
    nodes : int
        Nodes that run any.
    read_bytes, written_bytes : int
        That all nodes fetch from storage, and write to it.
    binds : str
        What would have to grow for the stage to be faster: cores; memory of a node, which runs fewer tasks than it has
        cores; storage, whose transfers take longer than the tasks; few tasks, which leave lanes idle; serial, a stage
        that is one task.
    """

    seconds: float
    tasks: int
    lanes: int
    nodes: int
    read_bytes: int
    written_bytes: int
    binds: Binds


class Ends(NamedTuple):
    """When the last of equal tasks ends, on which node, and the tasks of each node."""

    seconds: float
    last: int
    tasks: list[int]


def list_schedule(tasks: int, seconds: float, fetching: Sequence[float], lanes: int) -> Ends:
    """Send each of equal tasks to the lane that is free first; among those to the first node.

    Parameters
    ----------
    tasks : int
        At least one.
    seconds : float
        Of a task on its lane.
    fetching : sequence of float
        Seconds that each node needs before its first tasks.
    lanes : int
        Tasks that a node runs at once.
    """
    counts, end, last = [0] * len(fetching), 0.0, 0
    lanes = min(lanes, tasks)
    used = min(len(fetching), -(-tasks // lanes))  # no later node gets a task while lanes of these never ran
    free = [(0.0, node) for node in range(used) for _ in range(lanes)]  # sorted, and so a heap
    for _ in range(tasks):
        at, node = free[0]
        counts[node] += 1
        at = max(at, fetching[node]) + seconds
        if at > end:
            end, last = at, node
        heapq.heapreplace(free, (at, node))
    return Ends(end, last, counts)


def play(
    works: Mapping[str, Work], inputs: Mapping[str, Sequence[str]], sizes: Mapping[str, int], cluster: Cluster
) -> tuple[dict[str, Step], int]:
    """Play a build through; return its stages, and the most bytes that the mirror of a node comes to hold.

    Parameters
    ----------
    works : mapping of str to Work
    inputs : mapping of str to sequence of str
        Stages in the order they are made, each with the stages whose files it reads.
    sizes : mapping of str to int
        Bytes of the files of each stage.
    """
    mirrors: list[dict[str, float]] = [{} for _ in range(cluster.nodes)]
    steps: dict[str, Step] = {}
    asking = STAGE_REQUESTS * cluster.link.request_s
    for name, reads in inputs.items():
        work, size, link = works[name], sizes[name], cluster.link
        if not work.is_remote:
            steps[name] = _by_command(work.seconds, link.pushing(size) + asking, 0, size)
            continue
        offer = capacity(
            {"CPU": cluster.cores, "memory": cluster.memory},
            cluster.cores,
            None,
            work.wide,
            work.task_bytes,
        )
        lanes = min(offer.lanes, work.at_once or offer.lanes)
        whole = [of for of in reads if of not in work.by_share]
        missing = [sum(max(0.0, sizes[of] - mirror.get(of, 0.0)) for of in whole) for mirror in mirrors]
        # of its own files a task finds those in the mirror that the first node, which holds as much as any, made
        own = {of: (sizes[of] - mirrors[0].get(of, 0.0)) / work.tasks for of in reads if of in work.by_share}
        # nodes are filled one after the other, so that tasks share link and disk
        beside = min(lanes, work.tasks)
        computing = (work.seconds + work.writing * beside) / work.tasks
        carrying = link.fetching(sum(own.values()), beside) + link.pushing(size / work.tasks, beside)
        ends = list_schedule(work.tasks, computing + carrying, [link.fetching(of) for of in missing], lanes)
        used = [node for node, count in enumerate(ends.tasks) if count]
        for node in used:
            done, mirror = ends.tasks[node], mirrors[node]
            mirror |= {of: float(sizes[of]) for of in whole}
            mirror |= {of: min(sizes[of], mirror.get(of, 0.0) + done * each) for of, each in own.items()}
            mirror[name] = (size - work.linked_bytes) * done / work.tasks
        rounds = -(-ends.tasks[ends.last] // lanes)
        moving = asking + link.fetching(missing[ends.last]) + rounds * carrying
        steps[name] = Step(
            seconds=asking + ends.seconds,
            tasks=work.tasks,
            lanes=lanes,
            nodes=len(used),
            read_bytes=round(sum(missing[node] for node in used) + work.tasks * sum(own.values())),
            written_bytes=size,
            binds=_binds(work, lanes, cluster, moving, asking + ends.seconds),
        )
    return steps, round(max(sum(mirror.values()) for mirror in mirrors))


def published_by_command(size: int, link: Link, at_url: bool) -> Step:
    """Return the step in which the command fetches the finished index, and pushes it where it is published at a URL."""
    written = size if at_url else 0
    return _by_command(0.0, link.fetching(size) + link.pushing(written), size, written)


def _by_command(computing: float, moving: float, read: int, written: int) -> Step:
    return Step(
        seconds=computing + moving, tasks=1, lanes=1, nodes=0, read_bytes=read, written_bytes=written,
        binds="storage" if moving > computing else "serial",
    )  # fmt: skip


def _binds(work: Work, lanes: int, cluster: Cluster, moving: float, seconds: float) -> Binds:
    if moving > seconds / 2:
        return "storage"
    if work.tasks == 1:
        return "serial"
    if work.tasks < cluster.nodes * lanes:
        return "few tasks"
    return "cores" if work.wide or lanes == cluster.cores else "memory"
