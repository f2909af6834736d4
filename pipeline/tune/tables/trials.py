"""Trials of hash tables: indexes of samples, built and searched as the product builds and searches."""

from __future__ import annotations

import math
import shutil
from collections.abc import Set
from pathlib import Path

import numpy as np

from indexmill.formats.errors import BudgetError, ConfigError, IndexmillError
from indexmill.pipeline.bootstrap import mean_interval
from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.common.recall import mean_recall
from indexmill.pipeline.kinds.lsh.parameters import LshParameters
from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.mill.store import StageStore, stage_of
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.curve import AtRecall, at_recall
from indexmill.pipeline.tune.growth import Outlook, predict
from indexmill.pipeline.tune.sample import Level
from indexmill.pipeline.tune.tables.prices import TablePrices
from indexmill.pipeline.tune.tables.report import Reached, flag_of
from indexmill.pipeline.tune.tables.searches import (
    Choices,
    TableCurve,
    TableQueries,
    Target,
    measure_tables,
    open_tables,
)
from indexmill.pipeline.tune.tables.space import TableCandidate

#: Stages that all builds of a sample share.
_SHARED_STAGES = ("ingest", "sample")


class TableTrials:
    """Builds candidates on samples and searches them, each once.

    Parameters
    ----------
    spec : BuildSpec
        The job that is tuned; its memory and workers are those of the trials.
    prices : TablePrices
        With the parameters of each candidate.
    levels : list of Level
        By ascending size.
    target : Target
    directory : Path
        For scratch files.
    progress : Progress
    """

    def __init__(
        self, spec: BuildSpec, prices: TablePrices, levels: list[Level], target: Target, directory: Path,
        progress: Progress,
    ) -> None:  # fmt: skip
        self.levels, self.target = levels, target
        self._spec, self._prices, self._directory, self._progress = spec, prices, directory, progress
        self._curves: dict[tuple[int, TableCandidate], TableCurve] = {}
        self._costs: dict[tuple[int, TableCandidate, bool], AtRecall] = {}

    @property
    def sizes(self) -> list[int]:
        """Vectors of the samples."""
        return [level.size for level in self.levels]

    def run(self, level: int, candidates: list[TableCandidate]) -> None:
        """Measure each candidate on a sample, unless it was."""
        missing = [one for one in candidates if (level, one) not in self._curves]
        if missing:
            with stage_progress(
                self._progress, f"try {self.sizes[level]:,}", len(missing), "indexes"
            ) as progress:
                for one in missing:
                    self._curves[level, one] = self._run(level, one)
                    progress.advance(1)

    def forget(self, level: int) -> None:
        """Delete what was built of a sample: nothing more is tried on it."""
        shutil.rmtree(self._work(level))

    def along(self, candidate: TableCandidate, level: int, *, reporting: bool = False) -> list[AtRecall]:
        """Return the cost of the target for a candidate on each sample up to `level`, by one half of the queries."""
        found = []
        for each in range(level + 1):
            key = each, candidate, reporting
            if key not in self._costs:
                self._costs[key] = cost_of(self._curves[each, candidate], self.target, reporting)
            found.append(self._costs[key])
        return found

    def outlook(self, candidate: TableCandidate, level: int, n: int) -> Outlook:
        """Return the prediction of the tuning half for `n` vectors; by the smallest sample alone, the work there."""
        found = self.along(candidate, level)
        if level == 0:
            return Outlook(found[0].reads, found[0].draws)
        return predict(self.sizes[: level + 1], found, n)

    def reached(self, candidate: TableCandidate) -> Reached:
        """Return what the target takes on the largest sample."""
        last = len(self.levels) - 1
        return reached(self._curves[last, candidate], self.target)

    def _work(self, level: int) -> Path:
        """Return the directory in which builds of a sample keep their stages."""
        return self._directory / f"work-{self.levels[level].size}"

    def _run(self, level: int, candidate: TableCandidate) -> TableCurve:
        out, work, sample = self._directory / "trial", self._work(level), self.levels[level]
        p = self._prices.parameters(candidate)
        try:
            run_build(self._sample_spec(sample, p, out, work))
        except (BudgetError, ConfigError) as error:
            raise of_sample(error, sample.size, p.model_fields_set) from None
        asked = TableQueries(sample.queries.vectors, sample.queries.compared, sample.points, sample.nearest)
        choices = Choices(candidate.probes, p.ratio, p.candidates)
        curve = measure_tables(
            open_tables(out, self._spec.memory), asked, self.target, choices, self._spec.workers
        )
        shutil.rmtree(out)
        store = StageStore(work)
        for path in work.iterdir():
            if path.is_dir() and stage_of(path) not in _SHARED_STAGES:
                store.drop(path)
        store.close()
        return curve

    def _sample_spec(self, level: Level, p: LshParameters, out: Path, work: Path) -> BuildSpec:
        return BuildSpec(
            input=[str(level.path)],
            out=str(out),
            parameters=p,
            memory=self._spec.memory,
            workers=self._spec.workers,
            work=str(work),
        )


def of_sample(error: IndexmillError, size: int, stated: Set[str]) -> IndexmillError:
    """Return the refusal of the build of a sample, which says so, and which stated parameter to leave open."""
    name = str(error).partition(":")[0]
    way = f"; leave {flag_of(name)} open to tune" if name in stated else ""
    return type(error)(f"{error} (in a sample of {size:,} vectors{way})")


def cost_of(curve: TableCurve, target: Target, reporting: bool) -> AtRecall:
    """Return the work of the target, by one half of the queries."""
    whole = curve.curve(target)
    return at_recall(whole.reporting_half() if reporting else whole.tuning_half(), target.least)


def reached(curve: TableCurve, target: Target) -> Reached:
    """Return what searches with the candidates that the tuning half chooses are like by the reporting half."""
    tuning = cost_of(curve, target, False)
    candidates = math.ceil(tuning.list_size) if tuning.reached else 0
    taken = float(candidates or curve.candidates[-1])

    def mean(values: np.ndarray) -> float:
        return float(curve.at(values, taken, True).mean())

    work = curve.at(curve.curve(target).pages, taken, True)
    return Reached(
        candidates=candidates,
        best=abs(tuning.recall),
        work=float(work.mean()) if candidates else math.inf,
        reads=mean(curve.reads),
        distances=mean(curve.distances),
        interval=mean_interval(work) if candidates else (None, None),
        ratio=mean(curve.ratios),
        recall=mean_recall(curve.at(curve.recalls, taken, True)),
    )
