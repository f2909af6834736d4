"""The values that `tune` tries: degrees, build lists, slacks and code sizes that a job leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from indexmill.pipeline.kinds.graph.parameters import DEFAULT_BUILD_LIST_SIZE, DEFAULT_MAX_DEGREE, Parameters

#: Degrees: of SIFT-like bytes 20, 17, 15, 12, 10 and 7 nodes a page.
DEGREES = (16, 24, 32, 48, 64, 96)
#: Slacks of the prune on both sides of the default.
ALPHAS = (1.0, 1.2, 1.4)
#: Components that a byte of a code stands for.
COMPONENTS_A_BYTE = (16, 8, 4, 2)
#: Of these, that with which graphs are compared before sizes of codes are.
_USUAL_COMPONENTS = 4
#: A build list that is tried beside the usual one, in its sizes.
LONGER = 2
#: Bytes of a code at most (`Parameters.pq_bytes`).
_MOST_PQ_BYTES = 512


class GraphCandidate(NamedTuple):
    """Parameters of a graph."""

    max_degree: int
    build_list_size: int
    alpha: float


class Candidate(NamedTuple):
    """The index that one trial builds: a graph, and codes of `pq_bytes` bytes."""

    graph: GraphCandidate
    pq_bytes: int

    def applied(self, p: Parameters) -> Parameters:
        """Return `p` with these values."""
        return p.model_copy(update={**self.graph._asdict(), "pq_bytes": self.pq_bytes})


@dataclass(frozen=True)
class Space:
    """Values to try; what the job fixes has one.

    Attributes
    ----------
    degrees, alphas, pq_sizes
        Ascending.
    list_size : int, optional
        The build list that the job fixes.
    lists_matter : bool
        Whether the builder searches, so that longer build lists can make another graph.
    usual_pq : int
        The size of codes with which graphs are compared.
    unfit : frozenset of tuple
        Degrees and sizes of codes that do not go together.
    """

    degrees: tuple[int, ...]
    alphas: tuple[float, ...]
    pq_sizes: tuple[int, ...]
    list_size: int | None
    lists_matter: bool
    usual_pq: int
    unfit: frozenset[tuple[int, int]] = frozenset()

    def graphs(self) -> list[GraphCandidate]:
        """Every degree with every slack, and build lists in the proportion of the defaults."""
        return [GraphCandidate(r, self._list_size(r), alpha) for r in self.degrees for alpha in self.alphas]

    def with_longer_list(self, graph: GraphCandidate) -> list[GraphCandidate]:
        """Return `graph`, and what a longer build list would make of it, if the job leaves that open."""
        if self.list_size is not None or not self.lists_matter:
            return [graph]
        return [graph, graph._replace(build_list_size=LONGER * graph.build_list_size)]

    def coded(self, graphs: Sequence[GraphCandidate]) -> list[Candidate]:
        """Return `graphs` with all sizes of codes that go with each."""
        every = (Candidate(graph, size) for graph in graphs for size in self.pq_sizes)
        return [one for one in every if (one.graph.max_degree, one.pq_bytes) not in self.unfit]

    def _list_size(self, degree: int) -> int:
        return self.list_size or max(4, round(degree * DEFAULT_BUILD_LIST_SIZE / DEFAULT_MAX_DEGREE))


def space_of(p: Parameters, dim: int) -> Space:
    """Return the settings to try for vectors of `dim` components; parameters that were given stay as they are."""
    given = p.model_fields_set
    sizes = {min(max(1, dim // components), _MOST_PQ_BYTES) for components in COMPONENTS_A_BYTE}
    usual = min(max(1, dim // _USUAL_COMPONENTS), _MOST_PQ_BYTES)
    return Space(
        degrees=(p.max_degree,) if "max_degree" in given else DEGREES,
        alphas=(p.alpha,) if "alpha" in given else ALPHAS,
        pq_sizes=(p.pq_bytes,) if "pq_bytes" in given else tuple(sorted(sizes)),
        list_size=p.build_list_size if "build_list_size" in given else None,
        lists_matter=p.builder == "vamana",
        usual_pq=p.pq_bytes if "pq_bytes" in given else usual,
    )
