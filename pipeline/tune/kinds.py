"""What `tune` finds for each kind of index: parameters of its builds, and options of searches of an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from indexmill.formats.errors import ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.tune.report import DEFAULT_RECALL, TuneReport, TuneRequest
from indexmill.pipeline.tune.run import run_tune
from indexmill.pipeline.tune.tables.index import SearchesRequest, tune_searches
from indexmill.pipeline.tune.tables.report import SearchesReport, TablesReport
from indexmill.pipeline.tune.tables.run import tune_tables

BuildReport: TypeAlias = TuneReport | TablesReport


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

    build: Callable[[TuneRequest, VectorSource, Progress | None], BuildReport]
    ratio: float | None = None
    searches: Callable[[SearchesRequest, Progress | None], SearchesReport] | None = None


TUNERS: Mapping[str, Tuner] = {
    "graph": Tuner(run_tune),
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


def targets(tuner: Tuner, recall: float | None, ratio: float | None) -> tuple[float, float | None]:
    """Return the recall that is wanted, and the ratio that is wanted in place of it.

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
    return DEFAULT_RECALL if recall is None else recall, ratio
