"""The reports of `tune` for hash tables: settings of a build, and settings of searches of an index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from indexmill.builders.lsh.solve import Solved
from indexmill.pipeline.bootstrap import Interval
from indexmill.pipeline.kinds.common.recall import Recall
from indexmill.pipeline.kinds.lsh.parameters import lsh_parameters
from indexmill.pipeline.plan import Plan
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.growth import Outlook
from indexmill.pipeline.tune.report import TuneRequest
from indexmill.pipeline.tune.tables.prices import TableCost
from indexmill.pipeline.tune.tables.searches import Target
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


@dataclass(frozen=True)
class Reached:
    """Searches of one index with the candidates that half of the queries chose; figures are of the other half.

    Attributes
    ----------
    candidates : int
        S; 0 if the target was not reached, and figures then are of the most that were tried.
    best : float
        Ratio or recall of the half that chose: at most as good as the target.
    work, reads, distances : float
        A query: reads with distances by their bytes as reads; reads of tables and buckets; vectors measured.
    interval : Interval
        Of that work, 95% over queries.
    ratio : float
        Overall ratio.
    recall : Recall
    """

    candidates: int
    best: float
    work: float
    reads: float
    distances: float
    interval: Interval
    ratio: float
    recall: Recall

    def facts(self) -> dict[str, Any]:
        """Return the figures by name, as JSON has them."""
        return {
            "reads": round(self.reads, 4),
            "distances": round(self.distances, 4),
            "ratio": round(self.ratio, 6),
            **self.recall.facts(),
        }


@dataclass(frozen=True)
class TableRow:
    """One candidate that was tried on every sample.

    Attributes
    ----------
    candidate : TableCandidate
    solved : Solved
        Parameters of an index of all vectors.
    cost : TableCost
        Of all vectors; its work, by which candidates are chosen, is the tuning half's.
    work : tuple of float
        On each sample, at the target, of the reporting half. Infinite where the target is not reached.
    interval : Interval
        Of that on the largest sample, 95% over queries.
    outlook : Outlook
        For all vectors.
    reached : Reached
        On the largest sample.
    candidates : int
        S for all vectors, as the job gives it or extrapolated like work; 0 if the target is not reached.
    on_frontier, recommended : bool
    plan : Plan, optional
        Of the build; only of what is on the frontier.
    """

    candidate: TableCandidate
    solved: Solved
    cost: TableCost
    work: tuple[float, ...]
    interval: Interval
    outlook: Outlook
    reached: Reached
    candidates: int
    on_frontier: bool = False
    recommended: bool = False
    plan: Plan | None = None

    def to_dict(self, sizes: tuple[int, ...]) -> dict[str, Any]:
        """Return the figures by name, as JSON has them."""
        low, high = self.outlook.interval()
        return {
            **self.candidate._asdict(),
            "n_functions": self.solved.n_functions,
            "n_tables": self.solved.n_tables,
            "n_radii": len(self.solved.radii),
            "on_frontier": self.on_frontier,
            "recommended": self.recommended,
            "work": _known(self.outlook.reads),
            "work_low": _known(low),
            "work_high": _known(high),
            "work_tuning": _known(self.cost.reads),
            "samples": [
                {"vectors": size, "work": _known(work)} for size, work in zip(sizes, self.work, strict=True)
            ],
            "sample_work_low": _known(self.interval[0]),
            "sample_work_high": _known(self.interval[1]),
            "sample_candidates": self.reached.candidates or None,
            **self.reached.facts(),
            "candidates": self.candidates or None,
            "index_bytes": self.cost.index_bytes,
            "search_memory_bytes": self.cost.memory_bytes,
            "build_seconds": None if self.plan is None else self.plan.seconds,
            "build_memory_bytes": None if self.plan is None else self.plan.peak_memory_bytes,
        }


@dataclass(frozen=True)
class TablesReport:
    """The outcome of tuning hash tables.

    Attributes
    ----------
    request : TuneRequest
    target : Target
    stated : frozenset of str
        Parameters that the job gave.
    n_vectors : int
        Of the input.
    sizes : tuple of int
        Vectors of the samples.
    n_queries : int
        Half of them tuned, the others are reported on.
    rows : tuple of TableRow
    job : BuildSpec, optional
        The recommended one.
    left_out : tuple of str
        What was not tried, and why.
    """

    request: TuneRequest
    target: Target
    stated: frozenset[str]
    n_vectors: int
    sizes: tuple[int, ...]
    n_queries: int
    rows: tuple[TableRow, ...]
    job: BuildSpec | None
    left_out: tuple[str, ...]

    @property
    def recommended(self) -> TableRow | None:
        """The row to take."""
        return next((row for row in self.rows if row.recommended), None)

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The recommended parameters, for `indexmill.build`: tuned or stated ones, and what is no default."""
        if self.job is None:
            return None
        p = self.job.parameters
        named = {
            "kind", *TableCandidate._fields, "candidates",
            *(name for name in self.stated if getattr(p, name) is not None),
        }  # fmt: skip
        return p.model_dump(exclude_defaults=True) | p.model_dump(include=named)

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

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as JSON has it."""
        asked = self.request
        return {
            **_asked(self.target, asked.k, asked.max_reads),
            "effort": asked.effort,
            "n_vectors": self.n_vectors,
            "samples": list(self.sizes),
            "queries": self.n_queries,
            "queries_from": "the input" if asked.queries is None else "the caller",
            "settings": [row.to_dict(self.sizes) for row in self.rows],
            "recommended": self.parameters,
            "failure": self.failure(),
            "left_out": list(self.left_out),
        }

    def failure(self) -> str | None:
        """Return why nothing is recommended, what comes nearest, and what would help; None if something is."""
        if self.job is not None:
            return None
        asked, able = self.request, [row for row in self.rows if math.isfinite(row.cost.reads)]
        fixed = lsh_parameters(asked.spec.parameters).candidates
        how = _MOST_TRIED if fixed is None else f"with -S {fixed}"
        where = f"on {self.sizes[-1]:,} vectors {how}"
        ways = [f"leave {flag} open" for name, flag in _FLAGS.items() if name in self.stated]
        if not able:
            best = max(self.rows, key=lambda row: float(self.target.quality(row.reached.best)))
            return _not_reached(self.target, asked.k, where, best.reached.best, str(best.candidate), ways)
        best = min(able, key=lambda row: row.cost.reads)
        return (
            f"max-reads: no setting is predicted to take the work of at most {asked.max_reads:g} reads a query at "
            f"{self.target.words(asked.k)}; the least is {best.cost.reads:.1f} with {best.candidate}. "
            f"{_ways([*ways, 'allow more reads'])}"
        )


@dataclass(frozen=True)
class SearchRow:
    """One number of probes that an index was searched with.

    Attributes
    ----------
    probes : int
    cost : float
        Work of a query at the target, by which rows are chosen, of the tuning half. Infinite where it is not reached.
    reached : Reached
    recommended : bool
    """

    probes: int
    cost: float
    reached: Reached
    recommended: bool = False


@dataclass(frozen=True)
class SearchesReport:
    """The outcome of tuning the searches of an index of hash tables.

    Attributes
    ----------
    target : Target
    k : int
    max_reads : float, optional
    n_vectors : int
        That are not deleted.
    n_queries : int
        Half of them tuned, the others are reported on.
    are_given : bool
        Whether the queries are the caller's; else they are vectors of the index.
    rows : tuple of SearchRow
    """

    target: Target
    k: int
    max_reads: float | None
    n_vectors: int
    n_queries: int
    are_given: bool
    rows: tuple[SearchRow, ...]

    @property
    def recommended(self) -> SearchRow | None:
        """The row to take."""
        return next((row for row in self.rows if row.recommended), None)

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The recommended options, for `LshIndex.search`; None if no number of candidates reaches the target."""
        row = self.recommended
        return None if row is None else {"candidates": row.reached.candidates, "probes": row.probes}

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name, as JSON has it."""
        return {
            **_asked(self.target, self.k, self.max_reads),
            "n_vectors": self.n_vectors,
            "queries": self.n_queries,
            "queries_from": "the caller" if self.are_given else "the index",
            "settings": [
                {
                    "probes": row.probes,
                    "candidates": row.reached.candidates or None,
                    "recommended": row.recommended,
                    "work": _known(row.reached.work),
                    "work_low": _known(row.reached.interval[0]),
                    "work_high": _known(row.reached.interval[1]),
                    "work_tuning": _known(row.cost),
                    **row.reached.facts(),
                }
                for row in self.rows
            ],
            "recommended": self.parameters,
            "failure": self.failure(),
        }

    def failure(self) -> str | None:
        """Return why nothing is recommended, what comes nearest, and what would help; None if something is."""
        if self.recommended is not None:
            return None
        able = [row for row in self.rows if row.reached.candidates]
        if not able:
            best = max(self.rows, key=lambda row: float(self.target.quality(row.reached.best)))
            ways = ["build tables for it (`indexmill tune INPUT --kind lsh`)"]
            return _not_reached(
                self.target,
                self.k,
                f"of this index {_MOST_TRIED}",
                best.reached.best,
                f"{best.probes} probes",
                ways,
            )
        best = min(able, key=lambda row: row.cost)
        return (
            f"max-reads: no setting takes the work of at most {self.max_reads:g} reads a query at "
            f"{self.target.words(self.k)}; the least is {best.cost:.1f} with {best.probes} probes and S = "
            f"{best.reached.candidates}. Allow more reads"
        )


def _asked(target: Target, k: int, max_reads: float | None) -> dict[str, Any]:
    """Return what was asked for, by name."""
    return {
        "target_recall": target.value if target.measure == "recall" else None,
        "target_ratio": target.value if target.measure == "ratio" else None,
        "k": k,
        "max_reads": max_reads,
    }


def _not_reached(target: Target, k: int, where: str, best: float, words: str, ways: list[str]) -> str:
    """Say that no setting reaches the target, and what would help."""
    last = "accept a higher --target-ratio" if target.measure == "ratio" else "accept a lower --target-recall"
    return (
        f"target-{target.measure}: no setting reaches {target.words(k)} {where}; the best is {best:.4f} with {words}. "
        f"{_ways([*ways, last])}"
    )


def _ways(ways: list[str]) -> str:
    """Return ways out as a sentence without its full stop."""
    *others, last = ways
    words = f"{', '.join(others)}, or {last}" if others else last
    return words[0].upper() + words[1:]


def _known(value: float | None) -> float | None:
    """JSON has no infinity."""
    return None if value is None or not math.isfinite(value) else round(value, 4)
