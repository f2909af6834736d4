"""The request and the report of `tune`."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import Interval
from indexmill.pipeline.kinds.common.recall import Recall
from indexmill.pipeline.kinds.graph.parameters import CODED_NODES, graph_parameters
from indexmill.pipeline.plan import Plan
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import Cost
from indexmill.pipeline.tune.curve import MOST_CANDIDATES
from indexmill.pipeline.tune.growth import Outlook
from indexmill.pipeline.tune.space import Candidate, CodeFormat, GraphCandidate

#: Recall that a graph is tuned for.
DEFAULT_RECALL = 0.95
#: Parameters that are tuned.
_TUNED = (*GraphCandidate._fields, *CodeFormat._fields, "node_dtype")


@dataclass(frozen=True)
class TuneRequest:
    """The request.

    Attributes
    ----------
    spec : BuildSpec
        The job; parameters that it gives stay as they are.
    target_recall : float
        Of the k nearest.
    target_ratio : float, optional
        Overall ratio that is wanted in place of a recall, of a kind that is tuned for one.
    k : int
    max_reads : float, optional
        Page reads a query at most.
    effort : {"low", "normal", "high"}
    queries : array, shape (q, dim), optional
        By default vectors of the input, which the samples then leave out.
    work : path, optional
        Where scratch files go; by default where the system keeps such files.
    """

    spec: BuildSpec
    target_recall: float = DEFAULT_RECALL
    target_ratio: float | None = None
    k: int = 10
    max_reads: float | None = None
    effort: str = "normal"
    queries: NDArray[Any] | None = None
    work: str | os.PathLike[str] | None = None


@dataclass(frozen=True)
class TuneRow:
    """One candidate that was tried on every sample.

    Attributes
    ----------
    candidate : Candidate
    cost : Cost
        Of all vectors; its reads, by which candidates are chosen, are the tuning half's.
    best_recall : float
        Recall that the tuning half reached on the largest sample, at most the target.
    reads : tuple of float
        On each sample, at the target recall, and like all measures that follow, of the reporting half. Infinite where
        the recall is not reached.
    interval : Interval
        Of those on the largest sample, 95% over queries.
    outlook : Outlook
        For all vectors.
    sample_list_size : int
        L with which the tuning half reached the recall on the largest sample; 0 if it did not.
    recall : Recall
        That the reporting half had with it.
    list_size : int
        L for all vectors, extrapolated like reads.
    on_frontier, recommended : bool
    plan : Plan, optional
        Of the build; only of what is on the frontier.
    """

    candidate: Candidate
    cost: Cost
    best_recall: float
    reads: tuple[float, ...]
    interval: Interval
    outlook: Outlook
    sample_list_size: int
    recall: Recall
    list_size: int
    on_frontier: bool = False
    recommended: bool = False
    plan: Plan | None = None

    def to_dict(self, sizes: tuple[int, ...]) -> dict[str, Any]:
        """Return the figures by name, as JSON has them."""
        plan = self.plan
        low, high = self.outlook.interval()
        return {
            **self.candidate.graph._asdict(),
            **self.candidate.code._asdict(),
            "on_frontier": self.on_frontier,
            "recommended": self.recommended,
            "pages_read": _known(self.outlook.reads),
            "pages_read_low": _known(low),
            "pages_read_high": _known(high),
            "pages_read_tuning": _known(self.cost.reads),
            "samples": [
                {"vectors": size, "pages_read": _known(reads)}
                for size, reads in zip(sizes, self.reads, strict=True)
            ],
            "sample_pages_read_low": _known(self.interval[0]),
            "sample_pages_read_high": _known(self.interval[1]),
            "sample_search_list_size": self.sample_list_size or None,
            **self.recall.facts(),
            "search_list_size": self.list_size or None,
            "index_bytes": self.cost.index_bytes,
            "search_memory_bytes": self.cost.memory_bytes,
            "build_seconds": None if plan is None else plan.seconds,
            "build_memory_bytes": None if plan is None else plan.peak_memory_bytes,
            "build_shards": None if plan is None else plan.facts["shards"].n,
        }


@dataclass(frozen=True)
class TuneReport:
    """The outcome of a tuning.

    Attributes
    ----------
    request : TuneRequest
        With the builder and the nodes that were chosen in its job.
    stated : frozenset of str
        Parameters that the job gave.
    n_vectors : int
        Of the input.
    sizes : tuple of int
        Vectors of the samples.
    n_queries : int
        Half of them tuned, the others are reported on.
    rows : tuple of TuneRow
    job : BuildSpec, optional
        The recommended one.
    left_out : tuple of str
        What was not tried, and why.
    """

    request: TuneRequest
    stated: frozenset[str]
    n_vectors: int
    sizes: tuple[int, ...]
    n_queries: int
    rows: tuple[TuneRow, ...]
    job: BuildSpec | None
    left_out: tuple[str, ...]

    @property
    def recommended(self) -> TuneRow | None:
        """The row to take."""
        return next((row for row in self.rows if row.recommended), None)

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The recommended parameters, for `indexmill.build`: those that were tuned or stated, and what is no default.

        A stated default is one, too: a build whose job names no order may take another one.
        """
        if self.job is None:
            return None
        p = self.job.parameters
        named = {*_TUNED, *(name for name in self.stated if getattr(p, name) is not None)}
        return p.model_dump(exclude_defaults=True) | p.model_dump(include=named)

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as JSON has it."""
        asked = self.request
        return {
            "target_recall": asked.target_recall,
            "k": asked.k,
            "max_reads": asked.max_reads,
            "search_memory": graph_parameters(asked.spec.parameters).search_memory,
            "effort": asked.effort,
            "n_vectors": self.n_vectors,
            "samples": list(self.sizes),
            "queries": self.n_queries,
            "queries_from": "the input" if asked.queries is None else "the caller",
            "candidates": [row.to_dict(self.sizes) for row in self.rows],
            "recommended": self.parameters,
            "failure": self.failure(),
            "left_out": list(self.left_out),
        }

    def failure(self) -> str | None:
        """Return why nothing is recommended, what comes nearest, and what would help; None if something is."""
        if self.job is not None:
            return None
        asked, able = self.request, [row for row in self.rows if math.isfinite(row.cost.reads)]
        if not able:
            best = max(self.rows, key=lambda row: row.best_recall)
            return (
                f"target-recall: no setting reaches recall@{asked.k} {asked.target_recall:g} on {self.sizes[-1]:,} "
                f"vectors with lists of up to {MOST_CANDIDATES:,}; the best is {best.best_recall:.4f} with "
                f"{self._words(best.candidate)}. {_sentence(self._higher_recall(), 'accept a lower --target-recall')}"
            )
        best = min(able, key=lambda row: row.cost.reads)
        return (
            f"max-reads: no setting is predicted to read at most {asked.max_reads:g} pages a query at recall@{asked.k} "
            f"{asked.target_recall:g}; the fewest are {best.cost.reads:.1f} with "
            f"{self._words(best.candidate)}. {_sentence(self._fewer_reads(), 'allow more reads')}"
        )

    def _higher_recall(self) -> list[str]:
        """Return ways to a higher recall, most useful first."""
        p = graph_parameters(self.request.spec.parameters)
        ways = []
        if p.node_dtype in CODED_NODES and not p.keep_vectors:
            ways.append("keep exact vectors (--keep-vectors)")
        if "node_dtype" in self.stated and p.node_dtype != "same":
            ways.append("leave --node-dtype open")
        if self.stated & {"max_degree", "build_list_size", "alpha"}:
            ways.append("leave -R, -L and --alpha open")
        return [*ways, *self._longer_codes()]

    def _fewer_reads(self) -> list[str]:
        """Return ways to fewer reads, most useful first."""
        p = graph_parameters(self.request.spec.parameters)
        ways = self._longer_codes()
        if self.stated & {"max_degree", "build_list_size", "alpha"}:
            ways.append("leave -R, -L and --alpha open")
        if "node_dtype" in self.stated and p.node_dtype == "same":
            ways.append("store smaller nodes, more of them a page (leave --node-dtype open)")
        return [*ways, "keep hot pages in memory (`score --cache`)"]

    def _longer_codes(self) -> list[str]:
        ways = []
        if graph_parameters(self.request.spec.parameters).search_memory is not None:
            ways.append("raise --search-memory for longer codes")
        if "pq_bytes" in self.stated:
            ways.append("leave --pq-bytes open")
        return ways

    def _words(self, candidate: Candidate) -> str:
        (r, size, alpha), code = candidate.graph, candidate.code
        rotation = "" if code.pq_rotation == "none" else f" ({code.pq_rotation})"
        nodes = graph_parameters(self.request.spec.parameters).node_dtype
        stored = "as in the input" if nodes == "same" else nodes
        return f"R={r}, L={size}, alpha={alpha:g}, codes of {code.pq_bytes} bytes{rotation}, nodes {stored}"


def _sentence(ways: list[str], last: str) -> str:
    """Return ways out as a sentence without its full stop."""
    words = " or ".join([", ".join(ways) + ",", last] if ways else [last])
    return words[0].upper() + words[1:]


def _known(value: float | None) -> float | None:
    """JSON has no infinity."""
    return None if value is None or not math.isfinite(value) else round(value, 4)
