"""The kind of index that suits a task: a rule whose constants are rounded figures of sift1m.

Build time, size and query time of each kind are estimated from n and the bytes of a vector, with default parameters,
from measurements of sift1m on two cores (docs/benchmarks.md, section "Hash tables"). The estimates say which kind is
far off, not which is a few percent better; `indexmill plan` knows a build's needs exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from indexmill.formats.pagefile.frame import PAGE_BYTES

GRAPH, LSH, IVF = "graph", "lsh", "ivf"
#: Of a graph with R = 32: neighbours and count in a node, codes, and what is held beside codes for each vector.
_LIST_BYTES, _CODE_BYTES, _HELD_BYTES = 132, 32, 3
#: Pages that a graph search reads at recall@10 = 0.95, and vectors that its build inserts a second.
_GRAPH_PAGES, _GRAPH_RATE = 30, 10_000
#: Bytes of an entry of a hash table with its share of half-full blocks, radii, and tables at 1,000,000 vectors.
_ENTRY_BYTES, _RADII, _TABLES_AT_MILLION = 7.3, 6, 45
#: Tables grow like n to this power (rho, times gamma).
_TABLES_GROWTH = 0.25
#: Insertions into tables that a build makes a second.
_INSERTIONS = 5e6
#: Recall@10 that hash tables of default size reach with about the work of overall ratio 1.05.
_LSH_RECALL = 0.4
#: Vectors that the build of inverted lists assigns a second, by their bytes.
_LIST_RATE_BYTES = 8e6
#: Memory of a search beside the part that grows with the index.
_FIXED_BYTES = 64 << 20


@dataclass(frozen=True)
class Task:
    """The task that an index is for.

    Attributes
    ----------
    n_vectors, vector_bytes : int
    at_once : int
        Queries that are there to be answered together; 1 where each is answered as it comes.
    recall : float
        Share of the 10 nearest to be found.
    memory, disk : int, optional
        Bytes that searches may hold, and that an index may take.
    build_seconds : float, optional
        That a build on two cores may take.
    """

    n_vectors: int
    vector_bytes: int
    at_once: int = 1
    recall: float = 0.95
    memory: int | None = None
    disk: int | None = None
    build_seconds: float | None = None


@dataclass(frozen=True)
class Cost:
    """Approximate costs of an index: bytes held by a search, bytes on disk, seconds to build on two cores."""

    memory: float
    disk: float
    build_seconds: float


@dataclass(frozen=True)
class Recommendation:
    """A kind, or None if none fits; why, in sentences."""

    kind: str | None
    words: tuple[str, ...]


def cost(kind: str, task: Task) -> Cost:
    """Estimate the costs of an index of `kind` with default parameters, hash tables with their vectors on storage."""
    n, vectors = task.n_vectors, task.n_vectors * task.vector_bytes
    if kind == GRAPH:
        held = _FIXED_BYTES + n * (_CODE_BYTES + _HELD_BYTES)
        node = task.vector_bytes + _LIST_BYTES
        pages = n / max(1, PAGE_BYTES // node) * math.ceil(node / PAGE_BYTES)
        return Cost(held, pages * PAGE_BYTES + n * _CODE_BYTES, n / _GRAPH_RATE)
    if kind == LSH:
        entries = n * _tables(n) * _RADII
        bitmap = entries / 8 / 50  # a bit a bucket, which holds about 50
        return Cost(_FIXED_BYTES + bitmap, vectors + entries * _ENTRY_BYTES, entries / _INSERTIONS)
    return Cost(_FIXED_BYTES, vectors, vectors / _LIST_RATE_BYTES)  # batches are cut for the memory there is


def _tables(n: int) -> float:
    return max(1.0, _TABLES_AT_MILLION * math.pow(n / 1e6, _TABLES_GROWTH))


def recommend(task: Task) -> Recommendation:
    """Return the kind that answers the task with the least reads among those that fit.

    Many queries at once are joined with inverted lists, which reads all vectors once, when a graph would read more
    for them than that. Else a graph, which has the fewest reads at any recall. Hash tables where the memory or the time
    for a graph is not there and near neighbours do in place of the nearest: they build fast, hold next to nothing, and
    are many times as large as the vectors.
    """
    refused = {kind: reason for kind in (GRAPH, LSH, IVF) if (reason := _too_much(kind, task))}
    if LSH not in refused and task.recall > _LSH_RECALL:
        refused[LSH] = (
            f"of default size they find about {_LSH_RECALL:.0%} of the nearest; results are near, not nearest"
        )
    breakeven = join_breakeven(task)
    order = (IVF, GRAPH, LSH) if task.at_once >= breakeven else (GRAPH, LSH)
    kind = next((kind for kind in order if kind not in refused), None)
    if kind is None and task.at_once > 1 and IVF not in refused:
        kind = IVF
    words = [_because(kind, task, breakeven)]
    words += [f"Not {_NAMES[other]}: {reason}." for other, reason in refused.items() if other in order]
    return Recommendation(kind, tuple(words))


def join_breakeven(task: Task) -> int:
    """Return from how many queries at once reading all vectors is less than what a graph reads for them."""
    return max(2, math.ceil(task.n_vectors * task.vector_bytes / (_GRAPH_PAGES * PAGE_BYTES)))


_NAMES = {GRAPH: "a graph", LSH: "hash tables", IVF: "inverted lists"}


def _too_much(kind: str, task: Task) -> str | None:
    """Return the limit that an index of a kind would exceed; None if there is none."""
    needs = cost(kind, task)
    for what, need, limit, unit in (
        ("memory", needs.memory, task.memory, "bytes"),
        ("disk", needs.disk, task.disk, "bytes"),
        ("build", needs.build_seconds, task.build_seconds, "seconds"),
    ):
        if limit is not None and need > limit:
            return f"{what}: about {need:,.0f} {unit}, more than {limit:,.0f}"
    return None


def _because(kind: str | None, task: Task, breakeven: int) -> str:
    if kind == GRAPH:
        return (
            f"A graph suits (--kind graph): about {_GRAPH_PAGES} pages a query at recall 0.95. From about"
            f" {breakeven:,} queries at once a join with inverted lists (--kind ivf) reads less."
        )
    if kind == IVF:
        return (
            f"Inverted lists suit (--kind ivf, indexmill join): {task.at_once:,} queries read"
            f" {task.n_vectors * task.vector_bytes:,} bytes of vectors once."
        )
    if kind == LSH:
        return (
            "Hash tables suit (--kind lsh): near neighbours with a guarantee, a few hundred small reads a query that"
            " need not wait for one another."
        )
    return "No kind fits these limits."
