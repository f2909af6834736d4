"""The formats that a graph job leaves open: bytes and rotation of codes, the type of nodes, and R.

What a job states stands. Bytes of a code follow from the memory that searches may hold. Neighbours are not measured:
there are 48, or 32 where the index would grow by more than a quarter with 48, and as many more as fit beside the nodes
that share a page, up to 64, because a page that is read has them for nothing. More take time to build and to search.
Only `tune` measures whether they pay (`wide_degrees`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.pipeline.bisection import greatest
from indexmill.pipeline.kinds.common.sizes import SearchLimit, parse_search_memory
from indexmill.pipeline.kinds.graph.parameters import CODED_NODES, DEFAULT_MAX_DEGREE, Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape, node_code_bytes

#: Vectors of an input at least: fewer are searched fast in any format.
LEAST_VECTORS = 10_000
#: Queries by which formats are judged; vectors of a small index: a share of all, between two numbers.
QUERIES, _SHARE, LEAST_TRIAL, _MOST_TRIAL = 256, 20, 2_000, 4_000
#: Neighbours for which a page is laid out: with the default, searches of sift1m and text40k read 1.13 and 1.19 times
#: the pages of the best R; with 48, 1.03 and 1.04 times.
_USUAL_DEGREE = 48
#: How much larger they may make an index.
_MOST_LARGER = 1.25
#: Neighbours up to which a page is filled: by a build, since more take time to build and to search, and by `tune`.
_MOST_DEGREE, _WIDEST_DEGREE = 64, 160
#: Those of nodes of embeddings with codes: with fewer, a search reads half as much again as with codes in memory.
_LEAST_WITH_CODES, _MOST_WITH_CODES = 64, 128


class Format(NamedTuple):
    """Bytes and rotation of codes, the type of nodes, and R."""

    pq_bytes: int
    pq_rotation: str
    node_dtype: str
    max_degree: int

    def applied(self, p: Parameters) -> Parameters:
        """Return `p` with this format."""
        return p.model_copy(update=self._asdict())


def open_formats(shape: GraphShape) -> list[Format]:
    """Return the formats that a job of this shape leaves open, those of the smallest nodes first.

    Parameters
    ----------
    shape : GraphShape
        With the parameters as they were stated.

    Raises
    ------
    ConfigError
        If a stated code is larger than `search_memory` allows.
    BudgetError
        If `search_memory` holds no code or, with `codes_on_page`, no centres of codes, naming the least that does.
    """
    p = shape.parameters
    given = p.model_fields_set
    rotations = (p.pq_rotation,) if "pq_rotation" in given else ("none", "opq")
    nodes = (p.node_dtype,) if "node_dtype" in given else _node_types(shape)
    if shape.n < LEAST_VECTORS or shape.drawn < LEAST_TRIAL + QUERIES:
        rotations, nodes = (p.pq_rotation,), nodes[:1] if p.keep_vectors else (p.node_dtype,)
    limit = _limit(shape)
    sizes = {kind: _pq_bytes(shape, *kind, limit) for kind in product(nodes, rotations)}
    if not any(sizes.values()):
        raise _too_little(shape, list(sizes))
    if "pq_bytes" in given:
        stated, most = min(p.pq_bytes, shape.dim), max(sizes.values())
        if p.search_memory is not None and stated > most:
            enough = f"{stated}/vector"
            if not limit.per_vector:
                enough = f"{min(_in_format(shape, *kind, stated).held_bytes for kind in sizes):,} bytes"
            raise ConfigError(
                f"pq_bytes: {p.pq_bytes} bytes, but search_memory {p.search_memory} allows {most}; lower --pq-bytes "
                f"to {most}, or raise --search-memory to at least {enough}"
            )
        fitting = [kind for kind, size in sizes.items() if p.search_memory is None or stated <= size]
        sizes = dict.fromkeys(fitting, p.pq_bytes)
    return [
        Format(size, rotation, node, _degree(shape, node, size))
        for (node, rotation), size in sizes.items()
        if size
    ]


def largest(formats: Sequence[Format]) -> Format:
    """Return a format that takes as much space, and memory of searches, as any of `formats`."""
    rotation = "opq" if any(one.pq_rotation == "opq" for one in formats) else "none"
    most = max(one.max_degree for one in formats)
    return Format(max(one.pq_bytes for one in formats), rotation, formats[-1].node_dtype, most)


def wide_degrees(shape: GraphShape, node_dtype: str) -> list[int]:
    """Return each R beyond that of a build which fills pages of as many nodes as a build has, or of one node fewer.

    Of sq8 nodes of 768 components a page holds 4 with R = 63, which is that of a build, or 3 with R = 148.
    """
    if shape.n < LEAST_VECTORS:
        return []
    usual = _usual(shape, node_dtype)
    found = {_filling(usual, _WIDEST_DEGREE, fewer) for fewer in (0, 1)}
    return sorted(degree for degree in found if degree > _filling(usual, _MOST_DEGREE))


def trial_shape(shape: GraphShape) -> GraphShape:
    """Return the shape of a small index by which the formats of `shape` are judged."""
    p = shape.parameters.model_copy(update={"shard_vectors": None})
    return GraphShape(trial_size(shape.n, shape.drawn), shape.dim, shape.dtype, 0.0, p)


def trial_size(n: int, n_sample: int) -> int:
    """Return the vectors of a small index for an input of `n` vectors, from `n_sample` of which it is drawn."""
    return min(max(LEAST_TRIAL, min(n // _SHARE, _MOST_TRIAL)), n_sample - QUERIES)


def _node_types(shape: GraphShape) -> tuple[str, ...]:
    if shape.parameters.keep_vectors:
        return CODED_NODES[:1]  # exact vectors make good what they lose
    return {4: ("sq8", "sq16", "same"), 2: ("sq8", "same")}.get(shape.dtype.itemsize, ("same",))


def _degree(shape: GraphShape, node_dtype: str, pq_bytes: int) -> int:
    """Return R: the stated one, or as many neighbours as leave as many nodes on a page as usual.

    Of embeddings with codes in nodes, as many as fill the pages that 64 neighbours take: two, with 64 bytes a code.
    """
    p = shape.parameters
    if "max_degree" in p.model_fields_set or shape.n < LEAST_VECTORS:
        return p.max_degree
    if not p.codes_on_page:
        return _filling(_usual(shape, node_dtype), _MOST_DEGREE)
    least, most = (
        (_LEAST_WITH_CODES, _MOST_WITH_CODES) if shape.is_embedding else (p.max_degree, _MOST_DEGREE)
    )
    return _filling(_node(shape, node_dtype, least, node_code_bytes(p, shape.dim, pq_bytes)), most)


def _usual(shape: GraphShape, node_dtype: str) -> NodeFormat:
    """Return nodes of 48 neighbours if the index grows by a quarter at most with them, else those of the default."""
    default, usual = (_node(shape, node_dtype, degree) for degree in (DEFAULT_MAX_DEGREE, _USUAL_DEGREE))
    shared = default.nodes_per_page <= _MOST_LARGER * usual.nodes_per_page
    return usual if shared and default.pages_per_node == usual.pages_per_node else default


def _node(shape: GraphShape, node_dtype: str, degree: int, code_bytes: int = 0) -> NodeFormat:
    return NodeFormat(shape.dim, str(shape.dtype) if node_dtype == "same" else node_dtype, degree, code_bytes)


def _filling(usual: NodeFormat, most: int, fewer: int = 0) -> int:
    """Return the greatest R up to `most` with as many nodes a page as `usual`, or so many `fewer`.

    A node that has a page of its own, or several, takes no more of them.
    """

    def fits(degree: int) -> bool:
        node = replace(usual, max_degree=degree)
        shared = node.nodes_per_page >= usual.nodes_per_page - fewer
        return shared and node.pages_per_node == usual.pages_per_node

    return greatest(fits, usual.max_degree, most + 1)


def _limit(shape: GraphShape) -> SearchLimit:
    text = shape.parameters.search_memory
    if text is not None:
        return parse_search_memory(text)
    return SearchLimit(shape.usual_pq_bytes, True)


def _pq_bytes(shape: GraphShape, node_dtype: str, rotation: str, limit: SearchLimit) -> int:
    """Return the bytes of the largest code within `limit`, beside nodes of a type; 0 if there is none."""
    p, most = shape.parameters, min(shape.dim, MAX_BYTES)
    if limit.per_vector:
        return min(limit.bytes, most)
    if p.codes_on_page:  # memory holds no codes, so any fit where their centres do
        size = min(p.pq_bytes if "pq_bytes" in p.model_fields_set else shape.usual_pq_bytes, most)
        return size if _in_format(shape, node_dtype, rotation, size).held_bytes <= limit.bytes else 0
    left = limit.bytes - (_in_format(shape, node_dtype, rotation, 1).held_bytes - shape.n)
    return max(0, min(left // shape.n, most))


def _too_little(shape: GraphShape, kinds: list[tuple[str, str]]) -> BudgetError:
    """Say what `search_memory` does not hold with nodes and rotations of these kinds, and the least that does."""
    p, least = shape.parameters, min(_in_format(shape, *kind, 1).held_bytes for kind in kinds)
    what, less = f"holds no codes of {shape.n:,} vectors", "or fewer --entries or a smaller --navigation"
    if p.codes_on_page:
        what, less = "does not hold the centres of codes and the entry vertices", "or fewer --entries"
        if all(rotation == "opq" for _, rotation in kinds):
            what = "does not hold the centres of codes, their rotation and the entry vertices"
            less = "fewer --entries, or --pq-rotation none"
    return BudgetError(f"search_memory: {p.search_memory} {what}; give at least {least:,} bytes, {less}")


def _in_format(shape: GraphShape, node_dtype: str, rotation: str, pq_bytes: int) -> GraphShape:
    one = Format(pq_bytes, rotation, node_dtype, _degree(shape, node_dtype, pq_bytes))
    return replace(shape, parameters=one.applied(shape.parameters))
