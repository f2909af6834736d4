"""The values that `tune` tries: degrees, build lists, slacks and codes that a job leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.pipeline.kinds.graph.candidates import Format, wide_degrees
from indexmill.pipeline.kinds.graph.parameters import DEFAULT_BUILD_LIST_SIZE, DEFAULT_MAX_DEGREE, Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape

#: Degrees: of SIFT-like bytes 20, 17, 15, 12, 10 and 7 nodes a page. Those that fill pages replace the nearest.
DEGREES = (16, 24, 32, 48, 64, 96)
#: Slacks of the prune on both sides of the default.
ALPHAS = (1.0, 1.2, 1.4)
#: Components that a byte of a code stands for.
COMPONENTS_A_BYTE = (16, 8, 4, 2)
#: Of these, that with which graphs are compared before sizes of codes are.
_USUAL_COMPONENTS = 4
#: A build list that is tried beside the usual one, in its sizes.
LONGER = 2


class GraphCandidate(NamedTuple):
    """Parameters of a graph."""

    max_degree: int
    build_list_size: int
    alpha: float


class CodeFormat(NamedTuple):
    """Parameters of codes."""

    pq_bytes: int
    pq_rotation: str

    def __str__(self) -> str:
        return f"{self.pq_bytes}" if self.pq_rotation == "none" else f"{self.pq_bytes} {self.pq_rotation}"


class Candidate(NamedTuple):
    """The index that one trial builds: a graph, and codes."""

    graph: GraphCandidate
    code: CodeFormat

    def applied(self, p: Parameters) -> Parameters:
        """Return `p` with these values."""
        return p.model_copy(update={**self.graph._asdict(), **self.code._asdict()})


@dataclass(frozen=True)
class Space:
    """Values to try; what the job fixes has one.

    Attributes
    ----------
    degrees, alphas
        Ascending.
    codes : tuple of CodeFormat
        By size, one of each.
    list_size : int, optional
        The build list that the job fixes.
    lists_matter : bool
        Whether the builder searches, so that longer build lists can make another graph.
    usual : CodeFormat
        The codes with which graphs are compared.
    unfit : frozenset of tuple
        Degrees and sizes of codes that do not go together.
    """

    degrees: tuple[int, ...]
    alphas: tuple[float, ...]
    codes: tuple[CodeFormat, ...]
    list_size: int | None
    lists_matter: bool
    usual: CodeFormat
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
        every = (Candidate(graph, code) for graph in graphs for code in self.codes)
        return [one for one in every if (one.graph.max_degree, one.code.pq_bytes) not in self.unfit]

    def largest_code(self) -> CodeFormat:
        """Return codes that take as much space and memory as any."""
        rotation = "opq" if any(code.pq_rotation == "opq" for code in self.codes) else "none"
        return CodeFormat(self.codes[-1].pq_bytes, rotation)

    def _list_size(self, degree: int) -> int:
        return self.list_size or max(4, round(degree * DEFAULT_BUILD_LIST_SIZE / DEFAULT_MAX_DEGREE))


def tried_formats(p: Parameters, dim: int, formats: Sequence[Format]) -> list[Format]:
    """Return `formats`, which a build of vectors of `dim` components would choose from, with all sizes of codes to try.

    They are the one of a build, which is the largest within a limit of memory, and others within that limit.
    """
    if "pq_bytes" in p.model_fields_set:
        return list(formats)
    sizes = {min(max(1, dim // components), MAX_BYTES) for components in COMPONENTS_A_BYTE}
    return [
        one._replace(pq_bytes=size)
        for one in formats
        for size in sorted(sizes | {one.pq_bytes})
        if p.search_memory is None or size <= one.pq_bytes
    ]


def space_of(shape: GraphShape, formats: Sequence[Format]) -> Space:
    """Return the settings to try; parameters that were given stay as they are.

    Parameters
    ----------
    shape : GraphShape
        Of all vectors.
    formats : sequence of Format
        One of each size of codes, by size: what is left of `tried_formats`. Their nodes have one type.
    """
    p = shape.parameters
    given, codes = p.model_fields_set, tuple(CodeFormat(one.pq_bytes, one.pq_rotation) for one in formats)
    return Space(
        degrees=(p.max_degree,) if "max_degree" in given else _degrees(shape, formats[0]),
        alphas=(p.alpha,) if "alpha" in given else ALPHAS,
        codes=codes,
        list_size=p.build_list_size if "build_list_size" in given else None,
        lists_matter=p.builder == "vamana",
        usual=usual_code(codes, max(1, shape.dim // _USUAL_COMPONENTS)),
    )


def usual_code(codes: Sequence[CodeFormat], size: int) -> CodeFormat:
    """Return the largest of `codes`, by size, of at most `size` bytes; the smallest if all are larger."""
    return max((code for code in codes if code.pq_bytes <= size), default=codes[0])


def _degrees(shape: GraphShape, of_build: Format) -> tuple[int, ...]:
    """Return the degrees that fill pages, and those of `DEGREES` that are nearest to none of them."""
    filling = {of_build.max_degree, *wide_degrees(shape, of_build.node_dtype)}
    replaced = {min(DEGREES, key=lambda degree: abs(degree - one)) for one in filling}
    return tuple(sorted(filling | set(DEGREES) - replaced))
