"""The division of a join among the workers of a platform, predicted without a search."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.join.options import JoinOptions
from indexmill.pipeline.join.platform import Costs, costs_of
from indexmill.pipeline.join.queries import CHECKED, Queries
from indexmill.pipeline.join.run import check_nprobe
from indexmill.pipeline.join.search import Search
from indexmill.pipeline.join.simulate import WorkerRun, simulate
from indexmill.pipeline.join.spans import Span
from indexmill.pipeline.join.split import Share, plan_split


@dataclass(frozen=True)
class JoinPlan:
    """The planned work of each worker of a platform.

    Attributes
    ----------
    shares : list of Share
    simulated : list of WorkerRun
        What they do if all are as fast as they say.
    """

    shares: list[Share]
    simulated: list[WorkerRun]


def plan_join(queries: NDArray[Any], index: str | os.PathLike[str], options: JoinOptions) -> JoinPlan:
    """Divide an index's batches among the workers of ``options.platform``.

    Raises
    ------
    ConfigError
        If `nprobe` or a rate is not given.
    IndexmillError
        As `run_join`.
    """
    unknown = [worker.name for worker in options.platform if worker.measured]
    if unknown or not options.platform:
        what = f"worker {unknown[0]} has no rates" if unknown else "no workers"
        raise ConfigError(
            f"platform: {what}; a plan needs load_mb_s and compare_m_s of all, which a join without --plan measures"
        )
    if options.nprobe is None:
        raise ConfigError("nprobe: missing; a plan does not learn it: say --nprobe in place of --recall")
    files = IvfFiles(os.fspath(index))
    check_nprobe(files, options.nprobe)
    shares = plan_split(options.platform, _costs(files, Queries(files.centroids, queries), options))
    return JoinPlan(shares, simulate(shares))


def _costs(files: IvfFiles, queries: Queries, options: JoinOptions) -> Costs:
    assert options.nprobe is not None
    n_lists = files.centroids.n_lists
    search = Search(files.centroids, options.k, options.nprobe, options.workers)
    probes = np.full(n_lists, len(queries) if search.exhaustive else 0, np.int64)
    with threadpool_limits(1):
        for first in range(0, 0 if search.exhaustive else len(queries), CHECKED):
            chosen = search.choose(queries.block(first, min(first + CHECKED, len(queries))))
            probes += np.bincount(chosen.ravel(), minlength=n_lists)
    return costs_of(files, probes, [Span(number, 0, n_lists) for number in range(len(files.batches))])
