"""The report of tuning a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from indexmill.pipeline.kinds.graph.parameters import CODED_NODES, Parameters, graph_parameters
from indexmill.pipeline.tune.graphs.searches import MOST_CANDIDATES
from indexmill.pipeline.tune.graphs.space import Candidate, CodeFormat, GraphCandidate
from indexmill.pipeline.tune.report import BuildReport, BuildRow, above_limit, below_target


@dataclass(frozen=True, kw_only=True)
class GraphRow(BuildRow):
    """One candidate that was tried on every sample, see `BuildRow`; reads are of pages, and list sizes are L."""

    READS: ClassVar = "pages_read"
    LIST: ClassVar = "search_list_size"

    candidate: Candidate

    def setting(self) -> dict[str, Any]:
        """See `BuildRow.setting`."""
        return {**self.candidate.graph._asdict(), **self.candidate.code._asdict()}

    def to_dict(self, sizes: Sequence[int]) -> dict[str, Any]:
        """See `BuildRow.to_dict`; also the shards of the build."""
        shards = None if self.plan is None else self.plan.facts["shards"].n
        return {**super().to_dict(sizes), "build_shards": shards}


@dataclass(frozen=True, kw_only=True)
class GraphsReport(BuildReport[GraphRow]):
    """The outcome of tuning a graph, see `BuildReport`; builder and nodes were chosen in the job of `request`."""

    TUNED: ClassVar = (*GraphCandidate._fields, *CodeFormat._fields, "node_dtype")
    ROWS: ClassVar = "candidates"

    def _asked(self) -> dict[str, Any]:
        asked = self.request
        return {
            "target_recall": asked.target.value,
            "k": asked.k,
            "max_reads": asked.max_reads,
            "search_memory": self._given.search_memory,
        }

    def _below_target(self, best: GraphRow) -> str:
        where = f"on {self.sizes[-1]:,} vectors with lists of up to {MOST_CANDIDATES:,}"
        return below_target(self.request, where, best.reached.best, self._words(best), self._higher_recall())

    def _above_limit(self, best: GraphRow) -> str:
        does = f"is predicted to read at most {self.request.max_reads:g} pages"
        least = f"the fewest are {best.reads:.1f} with {self._words(best)}"
        return above_limit(self.request, does, least, self._fewer_reads())

    @property
    def _given(self) -> Parameters:
        return graph_parameters(self.request.spec.parameters)

    def _higher_recall(self) -> list[str]:
        """Return ways to a higher recall, most useful first."""
        p, ways = self._given, []
        if p.node_dtype in CODED_NODES and not p.keep_vectors:
            ways.append("keep exact vectors (--keep-vectors)")
        if "node_dtype" in self.stated and p.node_dtype != "same":
            ways.append("leave --node-dtype open")
        return [*ways, *self._other_graphs(), *self._longer_codes()]

    def _fewer_reads(self) -> list[str]:
        """Return ways to fewer reads, most useful first."""
        ways = [*self._longer_codes(), *self._other_graphs()]
        if "node_dtype" in self.stated and self._given.node_dtype == "same":
            ways.append("store smaller nodes, more of them a page (leave --node-dtype open)")
        return [*ways, "keep hot pages in memory (`score --cache`)"]

    def _other_graphs(self) -> list[str]:
        is_stated = self.stated & {"max_degree", "build_list_size", "alpha"}
        return ["leave -R, -L and --alpha open"] if is_stated else []

    def _longer_codes(self) -> list[str]:
        ways = []
        if self._given.search_memory is not None:
            ways.append("raise --search-memory for longer codes")
        if "pq_bytes" in self.stated:
            ways.append("leave --pq-bytes open")
        return ways

    def _words(self, row: GraphRow) -> str:
        (r, size, alpha), code = row.candidate.graph, row.candidate.code
        rotation = "" if code.pq_rotation == "none" else f" ({code.pq_rotation})"
        nodes = self._given.node_dtype
        stored = "as in the input" if nodes == "same" else nodes
        return f"R={r}, L={size}, alpha={alpha:g}, codes of {code.pq_bytes} bytes{rotation}, nodes {stored}"
