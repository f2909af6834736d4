"""Reports of `tune`: what was tried, the one to take, and if there is none, why and what would help."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from indexmill.pipeline.kinds.common.recall import Recall
from indexmill.pipeline.plan import Plan
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import Cost
from indexmill.pipeline.tune.growth import Growth
from indexmill.pipeline.tune.request import Request, TuneRequest


@dataclass(frozen=True, kw_only=True)
class Reached:
    """Searches of one index with the list that the tuning half of the queries chose; figures are of the other half.

    Attributes
    ----------
    list_size : int
        L of a graph, S of hash tables; 0 if the target was not reached, and figures then are of the longest list.
    best : float
        Quality of the half that chose: at most as good as the target.
    recall : Recall
    """

    list_size: int
    best: float
    recall: Recall

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name, as JSON has them."""
        return self.recall.facts()


class Tried(Protocol):
    """Anything that was tried."""

    @property
    def reads(self) -> float:
        """Cost of the target, of the tuning half of the queries; infinite where it is not reached."""

    @property
    def reached(self) -> Reached:
        """Searches of the index, or of that of the largest sample."""

    @property
    def recommended(self) -> bool:
        """Whether it is the one to take."""


@dataclass(frozen=True, kw_only=True)
class BuildRow(ABC):
    """The index of one candidate, which was tried on every sample.

    Attributes
    ----------
    cost : Cost
        Of all vectors; its reads, by which candidates are chosen, are the tuning half's.
    growth : Growth
    reached : Reached
        On the largest sample.
    list_size : int
        That for all vectors; 0 if the target is not reached.
    on_frontier, recommended : bool
    plan : Plan, optional
        Of the build; only of what is on the frontier.
    """

    #: Names of the reads and of the list size in JSON.
    READS: ClassVar[str]
    LIST: ClassVar[str]

    cost: Cost
    growth: Growth
    reached: Reached
    list_size: int
    on_frontier: bool = False
    recommended: bool = False
    plan: Plan | None = None

    @property
    def reads(self) -> float:
        """See `Tried.reads`."""
        return self.cost.reads

    @abstractmethod
    def setting(self) -> dict[str, Any]:
        """Return the parameters of the index by name."""

    def to_dict(self, sizes: Sequence[int]) -> dict[str, Any]:
        """Return the figures by name, as JSON has them; `sizes` are the vectors of the samples."""
        name, growth, plan = self.READS, self.growth, self.plan
        low, high = growth.outlook.interval()
        return {
            **self.setting(),
            "on_frontier": self.on_frontier,
            "recommended": self.recommended,
            name: known(growth.outlook.reads),
            f"{name}_low": known(low),
            f"{name}_high": known(high),
            f"{name}_tuning": known(self.reads),
            "samples": [
                {"vectors": size, name: known(reads)} for size, reads in zip(sizes, growth.reads, strict=True)
            ],
            f"sample_{name}_low": known(growth.interval[0]),
            f"sample_{name}_high": known(growth.interval[1]),
            f"sample_{self.LIST}": self.reached.list_size or None,
            **self.reached.to_dict(),
            self.LIST: self.list_size or None,
            "index_bytes": self.cost.index_bytes,
            "search_memory_bytes": self.cost.memory_bytes,
            "build_seconds": None if plan is None else plan.seconds,
            "build_memory_bytes": None if plan is None else plan.peak_memory_bytes,
        }


T = TypeVar("T", bound=Tried)
R = TypeVar("R", bound=BuildRow)


@dataclass(frozen=True, kw_only=True)
class Report(ABC, Generic[T]):
    """The outcome of a tuning.

    Attributes
    ----------
    request : Request
    n_vectors : int
        Of the input; of an index those that are not deleted.
    n_queries : int
        Half of them tuned, the others are reported on.
    rows : tuple
        What was tried.
    """

    #: What queries are taken from where the caller gives none.
    TAKEN_FROM: ClassVar[str]

    request: Request
    n_vectors: int
    n_queries: int
    rows: tuple[T, ...]

    @property
    def queries_from(self) -> str:
        """Where the queries are from."""
        return self.TAKEN_FROM if self.request.queries is None else "the caller"

    @property
    def recommended(self) -> T | None:
        """The row to take."""
        return next((row for row in self.rows if row.recommended), None)

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any] | None:
        """The recommended parameters; None if there are none."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as JSON has it."""

    def failure(self) -> str | None:
        """Return why nothing is recommended, what comes nearest, and what would help; None if something is."""
        if self.recommended is not None:
            return None
        able = [row for row in self.rows if math.isfinite(row.reads)]
        if able:
            return self._above_limit(min(able, key=lambda row: row.reads))
        target = self.request.target
        return self._below_target(max(self.rows, key=lambda row: float(target.quality(row.reached.best))))

    @abstractmethod
    def _above_limit(self, best: T) -> str:
        """Say that nothing is within `max_reads`; `best` has the fewest reads."""

    @abstractmethod
    def _below_target(self, best: T) -> str:
        """Say that nothing reaches the target; `best` is nearest to it."""


@dataclass(frozen=True, kw_only=True)
class BuildReport(Report[R]):
    """The outcome of tuning a build.

    Attributes
    ----------
    request : TuneRequest
        With what was settled in its job before anything was tried.
    stated : frozenset of str
        Parameters that the job gave.
    sizes : tuple of int
        Vectors of the samples.
    job : BuildSpec, optional
        The recommended one.
    left_out : tuple of str
        What was not tried, and why.
    """

    #: Parameters that are tuned, and the name of the rows in JSON.
    TUNED: ClassVar[tuple[str, ...]]
    ROWS: ClassVar[str]
    TAKEN_FROM: ClassVar = "the input"

    request: TuneRequest
    stated: frozenset[str]
    sizes: tuple[int, ...]
    job: BuildSpec | None
    left_out: tuple[str, ...]

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The recommended parameters, for `indexmill.build`: those that were tuned or stated, and what is no default.

        A stated default is one, too: a build whose job names no order may take another one.
        """
        if self.job is None:
            return None
        p = self.job.parameters
        named = {*self.TUNED, *(name for name in self.stated if getattr(p, name) is not None)}
        return p.model_dump(exclude_defaults=True) | p.model_dump(include=named)

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as JSON has it."""
        return {
            **self._asked(),
            "effort": self.request.effort,
            "n_vectors": self.n_vectors,
            "samples": list(self.sizes),
            "queries": self.n_queries,
            "queries_from": self.queries_from,
            self.ROWS: [row.to_dict(self.sizes) for row in self.rows],
            "recommended": self.parameters,
            "failure": self.failure(),
            "left_out": list(self.left_out),
        }

    @abstractmethod
    def _asked(self) -> dict[str, Any]:
        """Return what was asked for, by name."""


def below_target(request: Request, where: str, best: float, words: str, ways: Sequence[str]) -> str:
    """Say that no setting reaches the target, and what would help."""
    target = request.target
    last = f"accept a {'higher' if target.measure == 'ratio' else 'lower'} --target-{target.measure}"
    return (
        f"target-{target.measure}: no setting reaches {target.words(request.k)} {where}; the best is {best:.4f} with "
        f"{words}. {_sentence([*ways, last])}"
    )


def above_limit(request: Request, does: str, least: str, ways: Sequence[str]) -> str:
    """Say that no setting does with as few reads as are wanted, and what would help."""
    return (
        f"max-reads: no setting {does} a query at {request.target.words(request.k)}; {least}. "
        f"{_sentence([*ways, 'allow more reads'])}"
    )


def _sentence(ways: Sequence[str]) -> str:
    """Return ways out as a sentence without its full stop."""
    *others, last = ways
    words = f"{', '.join(others)}, or {last}" if others else last
    return words[0].upper() + words[1:]


def known(value: float | None) -> float | None:
    """JSON has no infinity."""
    return None if value is None or not math.isfinite(value) else round(value, 4)
