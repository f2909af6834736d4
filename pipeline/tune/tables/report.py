"""The reports of `tune` for hash tables: settings of a build, and settings of searches of an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from indexmill.builders.lsh.solve import Solved
from indexmill.pipeline.bootstrap import Interval
from indexmill.pipeline.kinds.lsh.parameters import lsh_parameters
from indexmill.pipeline.tune.report import (
    BuildReport,
    BuildRow,
    Reached,
    Report,
    above_limit,
    below_target,
    known,
)
from indexmill.pipeline.tune.request import Request, SearchesRequest
from indexmill.pipeline.tune.tables.space import TableCandidate

#: Flags of what is tuned, by parameter; functions that are given leave gamma without a meaning.
_FLAGS = {
    "gamma": "--gamma", "n_functions": "-m", "width": "-w", "probes": "--probes", "candidates": "-S"
}  # fmt: skip
#: How far searches go where S is open.
_MOST_TRIED = "by measuring up to a quarter of the vectors in a radius"


def flag_of(name: str) -> str:
    """Return the flag of a parameter."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


@dataclass(frozen=True, kw_only=True)
class TablesReached(Reached):
    """Searches of one index with the S that the tuning half of the queries chose, see `Reached`.

    Attributes
    ----------
    work, reads, distances : float
        A query: reads with distances by their bytes as reads; reads of tables and buckets; vectors measured.
    interval : Interval
        Of that work, 95% over queries.
    ratio : float
        Overall ratio.
    """

    work: float
    reads: float
    distances: float
    interval: Interval
    ratio: float

    def to_dict(self) -> dict[str, Any]:
        """See `Reached.to_dict`."""
        return {
            "reads": round(self.reads, 4),
            "distances": round(self.distances, 4),
            "ratio": round(self.ratio, 6),
            **super().to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class TableRow(BuildRow):
    """One candidate that was tried on every sample, see `BuildRow`; reads are of work, and list sizes are S.

    Attributes
    ----------
    candidate : TableCandidate
    solved : Solved
        Parameters of an index of all vectors.
    """

    READS: ClassVar = "work"
    LIST: ClassVar = "candidates"

    candidate: TableCandidate
    solved: Solved
    reached: TablesReached

    def setting(self) -> dict[str, Any]:
        """See `BuildRow.setting`."""
        return {
            **self.candidate._asdict(),
            "n_functions": self.solved.n_functions,
            "n_tables": self.solved.n_tables,
            "n_radii": len(self.solved.radii),
        }


@dataclass(frozen=True, kw_only=True)
class TablesReport(BuildReport[TableRow]):
    """The outcome of tuning hash tables, see `BuildReport`."""

    TUNED: ClassVar = ("kind", *TableCandidate._fields, "candidates")
    ROWS: ClassVar = "settings"

    @property
    def flags(self) -> str | None:
        """The recommended values of what is tuned, as flags of `build`."""
        found = self.parameters
        if found is None:
            return None
        names = [
            name for name in _FLAGS if name in found and not (name == "gamma" and "n_functions" in found)
        ]
        values = (found[name] for name in names)
        words = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        return " ".join(f"{_FLAGS[name]} {word}" for name, word in zip(names, words, strict=True))

    def _asked(self) -> dict[str, Any]:
        return _asked(self.request)

    def _below_target(self, best: TableRow) -> str:
        given = lsh_parameters(self.request.spec.parameters).candidates
        how = _MOST_TRIED if given is None else f"with -S {given}"
        where = f"on {self.sizes[-1]:,} vectors {how}"
        return below_target(self.request, where, best.reached.best, str(best.candidate), self._open_flags())

    def _above_limit(self, best: TableRow) -> str:
        does = f"is predicted to take the work of at most {self.request.max_reads:g} reads"
        least = f"the least is {best.reads:.1f} with {best.candidate}"
        return above_limit(self.request, does, least, self._open_flags())

    def _open_flags(self) -> list[str]:
        return [f"leave {flag} open" for name, flag in _FLAGS.items() if name in self.stated]


@dataclass(frozen=True, kw_only=True)
class SearchRow:
    """One number of probes that an index was searched with.

    Attributes
    ----------
    probes : int
    reads : float
        Work of a query at the target, by which rows are chosen, of the tuning half. Infinite where it is not reached.
    reached : TablesReached
    recommended : bool
    """

    probes: int
    reads: float
    reached: TablesReached
    recommended: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name, as JSON has them."""
        low, high = self.reached.interval
        return {
            "probes": self.probes,
            "candidates": self.reached.list_size or None,
            "recommended": self.recommended,
            "work": known(self.reached.work),
            "work_low": known(low),
            "work_high": known(high),
            "work_tuning": known(self.reads),
            **self.reached.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class SearchesReport(Report[SearchRow]):
    """The outcome of tuning the searches of an index of hash tables, see `Report`."""

    TAKEN_FROM: ClassVar = "the index"

    request: SearchesRequest

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The recommended options, for `LshIndex.search`; None if no number of candidates reaches the target."""
        row = self.recommended
        return None if row is None else {"candidates": row.reached.list_size, "probes": row.probes}

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as JSON has it."""
        return {
            **_asked(self.request),
            "n_vectors": self.n_vectors,
            "queries": self.n_queries,
            "queries_from": self.queries_from,
            "settings": [row.to_dict() for row in self.rows],
            "recommended": self.parameters,
            "failure": self.failure(),
        }

    def _below_target(self, best: SearchRow) -> str:
        ways = ["build tables for it (`indexmill tune INPUT --kind lsh`)"]
        where = f"of this index {_MOST_TRIED}"
        return below_target(self.request, where, best.reached.best, f"{best.probes} probes", ways)

    def _above_limit(self, best: SearchRow) -> str:
        does = f"takes the work of at most {self.request.max_reads:g} reads"
        least = f"the least is {best.reads:.1f} with {best.probes} probes and S = {best.reached.list_size}"
        return above_limit(self.request, does, least, [])


def _asked(request: Request) -> dict[str, Any]:
    """Return what was asked for, by name."""
    target = request.target
    return {
        "target_recall": target.value if target.measure == "recall" else None,
        "target_ratio": target.value if target.measure == "ratio" else None,
        "k": request.k,
        "max_reads": request.max_reads,
    }
