"""Options and report of a join."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from indexmill.formats.errors import ConfigError
from indexmill.pipeline.join.platform import Worker
from indexmill.pipeline.join.simulate import WorkerRun
from indexmill.pipeline.spec import DEFAULT_MEMORY, ExecutorName


@dataclass(frozen=True)
class JoinOptions:
    """The request, and how it runs.

    Attributes
    ----------
    k : int
    nprobe : int, optional
        Lists that a query probes in every batch.
    recall : float, optional
        In its place: the share of true neighbours to reach, for which `nprobe` is learnt from some queries.
    memory : int
        Bytes beside the page cache.
    workers : int
        Threads, on every node; they do not reach the result.
    work : path, optional
        Directory for partial results; by default they lie beside the result.
    executor : {"local", "ray"}
        Where batches are searched. On Ray all nodes need the index and the partial results under the same paths.
    ray_address : str, optional
        Cluster to join; by default ``RAY_ADDRESS``, else one that is started here.
    platform : sequence of Worker
        Workers to divide the batches among; none: one that has all threads. Locally all run on this machine. On Ray
        each needs a path, and runs on the node that offers a resource of its name.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    k: int = 10
    nprobe: int | None = None
    recall: float | None = None
    memory: int = DEFAULT_MEMORY
    workers: int = 2
    work: str | os.PathLike[str] | None = None
    executor: ExecutorName = "local"
    ray_address: str | None = None
    platform: Sequence[Worker] = ()

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"k: expected at least 1, got {self.k}")
        if (self.nprobe is None) == (self.recall is None):
            raise ConfigError(
                "nprobe, recall: expected one of them, the lists to probe or the recall to reach"
            )
        if self.nprobe is not None and self.nprobe < 1:
            raise ConfigError(f"nprobe: expected at least 1, got {self.nprobe}")
        if self.recall is not None and not 0 < self.recall <= 1:
            raise ConfigError(f"recall: expected above 0 and at most 1, got {self.recall}")
        if not 1 <= self.workers <= 1024:
            raise ConfigError(f"workers: expected 1 to 1024, got {self.workers}")
        without = [worker.name for worker in self.platform if worker.path is None]
        if without and self.executor != "local":
            raise ConfigError(
                f"platform: worker {without[0]} has no path, and its workers are of one machine; name a path on the "
                "node of each worker, or leave out --executor ray"
            )

    @property
    def has_paths(self) -> bool:
        """Whether workers have storage of their own."""
        return any(worker.path is not None for worker in self.platform)


@dataclass
class JoinReport:
    """Report of a join.

    Attributes
    ----------
    queries, k, nprobe : int
    batches, reused : int
        Batches of the index, and those whose results an earlier run had left.
    rows : int
        Of the result.
    short : int
        Queries with fewer than k neighbours in the lists they probed.
    recall, recall_low, recall_high : float, optional
        Where ``nprobe`` was learnt: on the queries it was learnt from, with the 95% interval.
    learnt_from : int, optional
        How many queries that was.
    load_bytes : int
    load_seconds, search_seconds, seconds : float
        Loading and searching go on at the same time.
    workers : list of WorkerRun, optional
        What each worker of a platform did.
    copied_bytes : int, optional
        That were copied to the paths of workers, if they have some.
    """

    queries: int
    k: int
    nprobe: int = 0
    batches: int = 0
    reused: int = 0
    rows: int = 0
    short: int = 0
    recall: float | None = None
    recall_low: float | None = None
    recall_high: float | None = None
    learnt_from: int | None = None
    load_bytes: int = 0
    load_seconds: float = 0.0
    search_seconds: float = 0.0
    seconds: float = 0.0
    workers: list[WorkerRun] | None = None
    copied_bytes: int | None = None
