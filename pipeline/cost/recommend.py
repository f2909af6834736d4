"""The kind of index that suits a task: a rule whose constants are rounded figures of sift1m.

Each kind estimates the size and build time of its index from n and the bytes of a vector, with default parameters, in
its module `advice` (`pipeline.kinds`), from measurements of sift1m on two cores (docs/benchmarks.md, section "Hash
tables"). The estimates say which kind is far off, not which is a few percent better; `indexmill plan` knows a build's
needs exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from indexmill.formats.pagefile.frame import PAGE_BYTES

#: Pages that a search of a graph reads at recall@10 = 0.95: what a join of many queries is compared with.
SEARCH_PAGES = 30
#: Place of a kind that is taken only where no other fits, and whose refusal is not worth a word.
LAST_RESORT = 9


@dataclass(frozen=True)
class Task:
    """The task that an index is for.

    Attributes
    ----------
    n_vectors, dim : int
    dtype : numpy dtype
        Of the components.
    at_once : int
        Queries that are there to be answered together; 1 where each is answered as it comes.
    recall : float
        Share of the 10 nearest to be found.
    memory, disk : int, optional
        Bytes that searches may hold of an index, and that an index may take.
    build_seconds : float, optional
        That a build on two cores may take.
    """

    n_vectors: int
    dim: int
    dtype: np.dtype[Any]
    at_once: int = 1
    recall: float = 0.95
    memory: int | None = None
    disk: int | None = None
    build_seconds: float | None = None

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector."""
        return self.dim * self.dtype.itemsize


@dataclass(frozen=True)
class Cost:
    """Approximate costs of an index: bytes that searches hold of it, bytes on disk, seconds to build on two cores."""

    memory: float
    disk: float
    build_seconds: float


@dataclass(frozen=True)
class Advice:
    """What a kind of index says of itself for a task.

    Attributes
    ----------
    name : str
        The index in words, such as "a graph".
    cost : Cost
    place : int or None
        Among the kinds that fit the one with the least place is taken; None: the kind is not for the task.
    because : str
        Why it suits, a sentence.
    refusal : str or None
        Why it does not suit, whatever the limits of the task.
    """

    name: str
    cost: Cost
    place: int | None
    because: str
    refusal: str | None = None


@dataclass(frozen=True)
class Recommendation:
    """A kind, or None if none fits; why, in sentences."""

    kind: str | None
    words: tuple[str, ...]


def recommend(task: Task, advices: Mapping[str, Advice]) -> Recommendation:
    """Return the kind that answers the task with the least reads among those that fit.

    Parameters
    ----------
    advices : mapping
        What each kind says of itself, by its name.
    """
    asked = {kind: one for kind, one in advices.items() if one.place is not None}
    refused = {kind: reason for kind, one in asked.items() if (reason := _too_much(one.cost, task))}
    refused |= {kind: one.refusal for kind, one in asked.items() if one.refusal and kind not in refused}
    kind = min(asked.keys() - refused.keys(), key=lambda one: (asked[one].place, one), default=None)
    words = ["No kind fits these limits." if kind is None else asked[kind].because]
    words += [
        f"Not {asked[other].name}: {reason}."
        for other, reason in refused.items()
        if asked[other].place != LAST_RESORT
    ]
    return Recommendation(kind, tuple(words))


def join_breakeven(task: Task) -> int:
    """Return from how many queries at once reading all vectors is less than what a graph reads for them."""
    return max(2, math.ceil(task.n_vectors * task.vector_bytes / (SEARCH_PAGES * PAGE_BYTES)))


def _too_much(needs: Cost, task: Task) -> str | None:
    """Return the limit that an index would exceed; None if there is none."""
    for what, need, limit, unit in (
        ("memory", needs.memory, task.memory, "bytes"),
        ("disk", needs.disk, task.disk, "bytes"),
        ("build", needs.build_seconds, task.build_seconds, "seconds"),
    ):
        if limit is not None and need > limit:
            return f"{what}: about {need:,.0f} {unit}, more than {limit:,.0f}"
    return None
