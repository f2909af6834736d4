"""The kinds of index that `tune` is for, and how each is tuned: one row a kind, which commands look up by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.tune.graphs.run import tune_graphs
from indexmill.pipeline.tune.report import BuildReport
from indexmill.pipeline.tune.request import DEFAULT_RECALL, SearchesRequest, Target, TuneRequest
from indexmill.pipeline.tune.tables.index import tune_searches
from indexmill.pipeline.tune.tables.report import SearchesReport
from indexmill.pipeline.tune.tables.run import tune_tables


@dataclass(frozen=True)
class Tuner:
    """How a kind is tuned.

    Attributes
    ----------
    build : callable
        Finds parameters of a build.
    ratio : float, optional
        The overall ratio that it is tuned for where nothing is said; None where a recall is.
    searches : callable, optional
        Finds options of searches of an index, where there are several to find.
    """

    build: Callable[[TuneRequest, VectorSource, Progress | None], BuildReport[Any]]
    ratio: float | None = None
    searches: Callable[[SearchesRequest, Progress | None], SearchesReport] | None = None


TUNERS: Mapping[str, Tuner] = {
    "graph": Tuner(tune_graphs),
    "lsh": Tuner(tune_tables, 1.05, tune_searches),
}


def tuner_of(kind: str) -> Tuner:
    """Return how a kind is tuned.

    Raises
    ------
    ConfigError
        If nothing of it is.
    """
    if kind not in TUNERS:
        raise ConfigError(f"kind: tune is for {' and '.join(TUNERS)}, got {kind}; leave --kind out")
    return TUNERS[kind]


def target_of(tuner: Tuner, recall: float | None, ratio: float | None) -> Target:
    """Return what searches are tuned for: a ratio, or a recall.

    Raises
    ------
    ConfigError
        If both are given, or a ratio for a kind that is tuned for a recall.
    """
    if recall is not None and ratio is not None:
        raise ConfigError("target_ratio: searches are tuned for one target; leave --target-recall out")
    if ratio is not None and tuner.ratio is None:
        raise ConfigError("target_ratio: for hash tables (kind lsh); give --target-recall in its place")
    if recall is None and ratio is None:
        ratio = tuner.ratio
    if ratio is not None:
        return Target("ratio", ratio)
    return Target("recall", DEFAULT_RECALL if recall is None else recall)
