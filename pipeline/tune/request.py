"""Requests of `tune`: the quality that searches are to have, the limits within which, and what is tuned for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.pipeline.spec import BuildSpec

#: Recall that searches are tuned for where nothing is said.
DEFAULT_RECALL = 0.95
#: Searches are measured until they are better than the target by this share of what is missing to the best: draws of
#: the bootstrap cross the target on both sides of where the mean does.
_BEYOND = 0.25


@dataclass(frozen=True)
class Target:
    """The quality that searches are to have.

    Attributes
    ----------
    measure : {"ratio", "recall"}
        Overall ratio, at most `value`; or recall of the k nearest, at least `value`.
    value : float
    """

    measure: Literal["ratio", "recall"]
    value: float

    def quality(self, value: float | NDArray[Any]) -> Any:
        """Return what grows as searches get better."""
        return -value if self.measure == "ratio" else value

    @property
    def least(self) -> float:
        """The quality that is enough."""
        return float(self.quality(self.value))

    @property
    def beyond(self) -> float:
        """A quality somewhat better than enough, with which a measurement ends."""
        return self.least + _BEYOND * (float(self.quality(1.0)) - self.least)

    def check(self, metric: str) -> None:
        """Refuse a ratio under inner product, whose distances are those of another space.

        Raises
        ------
        ConfigError
        """
        if self.measure == "ratio" and metric == "ip":
            raise ConfigError(
                "target_ratio: there is no ratio of distances under inner product; give --target-recall in its place"
            )

    def words(self, k: int) -> str:
        """Return the target in words."""
        name = "overall ratio" if self.measure == "ratio" else f"recall@{k}"
        return f"{name} {self.value:g}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every tuning is asked for.

    Attributes
    ----------
    target : Target
    k : int
    max_reads : float, optional
        Page reads of a query at most; of hash tables its work, in reads.
    effort : {"low", "normal", "high"}
    queries : array, shape (q, dim), optional
        By default vectors of the input, which the samples then leave out, or vectors of the index, each left out of its
        own results.
    work : path, optional
        Where scratch files go; by default where the system keeps such files.
    """

    target: Target = Target("recall", DEFAULT_RECALL)
    k: int = 10
    max_reads: float | None = None
    effort: str = "normal"
    queries: NDArray[Any] | None = None
    work: str | os.PathLike[str] | None = None


@dataclass(frozen=True, kw_only=True)
class TuneRequest(Request):
    """The request to tune a build.

    Attributes
    ----------
    spec : BuildSpec
        The job; parameters that it gives stay as they are.
    """

    spec: BuildSpec


@dataclass(frozen=True, kw_only=True)
class SearchesRequest(Request):
    """The request to tune the searches of an index.

    Attributes
    ----------
    path : path
        The index.
    memory, workers : int
        Of the comparison of queries with vectors.
    """

    path: str | os.PathLike[str]
    memory: int
    workers: int
