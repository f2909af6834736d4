"""Trials of hash tables; see `Trials`."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from pathlib import Path

from indexmill.formats.errors import BudgetError, ConfigError, IndexmillError
from indexmill.pipeline.bootstrap import mean_interval
from indexmill.pipeline.kinds.common.recall import mean_recall
from indexmill.pipeline.kinds.lsh.parameters import LshParameters, lsh_parameters
from indexmill.pipeline.tune.curve import AtRecall, Curve, at_recall
from indexmill.pipeline.tune.request import Target
from indexmill.pipeline.tune.sample import Level
from indexmill.pipeline.tune.tables.report import TablesReached, flag_of
from indexmill.pipeline.tune.tables.searches import (
    Choices,
    TableCurve,
    TableQueries,
    measure_tables,
    open_tables,
)
from indexmill.pipeline.tune.tables.space import TableCandidate
from indexmill.pipeline.tune.trials import Trials

#: Stages that all builds of a sample share.
_SHARED_STAGES = ("ingest", "sample")


class TableTrials(Trials[TableCandidate, TableCurve]):
    """Builds candidates on samples and searches them, each once; see `Trials`."""

    UNIT = "indexes"

    def _parameters(self, candidate: TableCandidate) -> LshParameters:
        return candidate.applied(lsh_parameters(self.spec.parameters))

    def _search(self, index: Path, level: Level, candidate: TableCandidate) -> TableCurve:
        p = self._parameters(candidate)
        asked = TableQueries(level.queries.vectors, level.queries.compared, level.points, level.nearest)
        choices = Choices(candidate.probes, p.ratio, p.candidates)
        opened = open_tables(index, self.spec.memory)
        return measure_tables(opened, asked, self.target, choices, self.spec.workers)

    def _curve(self, measured: TableCurve) -> Curve:
        return measured.curve(self.target)

    def _is_shared(self, stage: str) -> bool:
        return stage in _SHARED_STAGES

    def _steps(self, level: Level, candidates: Sequence[TableCandidate]) -> list[int]:
        return [1] * len(candidates)

    def _build(self, level: int, candidate: TableCandidate, index: Path, work: Path) -> None:
        try:
            super()._build(level, candidate, index, work)
        except (BudgetError, ConfigError) as error:
            stated = self._parameters(candidate).model_fields_set
            raise of_sample(error, self.sizes[level], stated) from None


def of_sample(error: IndexmillError, size: int, stated: Set[str]) -> IndexmillError:
    """Return the refusal of the build of a sample, which says so, and which stated parameter to leave open."""
    name = str(error).partition(":")[0]
    way = f"; leave {flag_of(name)} open to tune" if name in stated else ""
    return type(error)(f"{error} (in a sample of {size:,} vectors{way})")


def cost_of(curve: TableCurve, target: Target) -> AtRecall:
    """Return the work of the target, by the tuning half of the queries."""
    return at_recall(curve.curve(target).half(reporting=False), target.least)


def reached(curve: TableCurve, target: Target) -> TablesReached:
    """Return what searches with the candidates that the tuning half chooses are like by the reporting half."""
    tuning = cost_of(curve, target)
    candidates = math.ceil(tuning.list_size) if tuning.reached else 0
    taken = float(candidates or curve.candidates[-1])
    work = curve.at(curve.curve(target).pages, taken)
    return TablesReached(
        list_size=candidates,
        best=abs(tuning.recall),
        recall=mean_recall(curve.at(curve.recalls, taken)),
        work=float(work.mean()) if candidates else math.inf,
        reads=float(curve.at(curve.reads, taken).mean()),
        distances=float(curve.at(curve.distances, taken).mean()),
        interval=mean_interval(work) if candidates else (None, None),
        ratio=float(curve.at(curve.ratios, taken).mean()),
    )
