"""Trials of `tune`: indexes of samples, built and searched as the product builds and searches.

All builds of a sample share one store of stages: what several candidates have in common is made once.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.common.parameters import KindParameters
from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.mill.store import StageStore, stage_of
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.curve import AtRecall, Curve, at_recall
from indexmill.pipeline.tune.growth import Growth, Outlook, predict
from indexmill.pipeline.tune.request import Target
from indexmill.pipeline.tune.sample import Level

C = TypeVar("C")
M = TypeVar("M")


class Trials(ABC, Generic[C, M]):
    """Builds candidates on samples and searches them, each once; `M` is what is measured of one.

    Parameters
    ----------
    spec : BuildSpec
        The job that is tuned; its memory and workers are those of the trials.
    levels : list of Level
        By ascending size.
    target : Target
        That searches go on to, and that costs are of.
    directory : Path
        For scratch files.
    progress : Progress
    """

    #: Unit of the steps that progress counts.
    UNIT: ClassVar[str]

    def __init__(
        self, spec: BuildSpec, levels: list[Level], target: Target, directory: Path, progress: Progress
    ) -> None:
        self.spec, self.levels, self.target = spec, levels, target
        self._directory, self._progress = directory, progress
        self._measured: dict[tuple[int, C], M] = {}
        self._costs: dict[tuple[int, C, bool], AtRecall] = {}

    @abstractmethod
    def _parameters(self, candidate: C) -> KindParameters:
        """Return the parameters of the builds of samples."""

    @abstractmethod
    def _search(self, index: Path, level: Level, candidate: C) -> M:
        """Measure searches of the index of a sample."""

    @abstractmethod
    def _curve(self, measured: M) -> Curve:
        """Return the quality and the cost of what was measured."""

    @abstractmethod
    def _is_shared(self, stage: str) -> bool:
        """Whether a stage is kept for other candidates of the same sample."""

    @abstractmethod
    def _steps(self, level: Level, candidates: Sequence[C]) -> list[int]:
        """Return about the time of each trial, in steps."""

    @property
    def sizes(self) -> list[int]:
        """Vectors of the samples."""
        return [level.size for level in self.levels]

    def run(self, level: int, candidates: Sequence[C]) -> None:
        """Measure each candidate on a sample, unless it was."""
        missing = [one for one in dict.fromkeys(candidates) if (level, one) not in self._measured]
        if not missing:
            return
        steps = self._steps(self.levels[level], missing)
        with stage_progress(self._progress, f"try {self.sizes[level]:,}", sum(steps), self.UNIT) as progress:
            for one, done in zip(missing, steps, strict=True):
                self._measured[level, one] = self._run(level, one)
                progress.advance(done)

    def forget(self, level: int) -> None:
        """Delete what was built of a sample: nothing more is tried on it."""
        shutil.rmtree(self._work(level))

    def largest(self, candidate: C) -> M:
        """Return what was measured on the largest sample."""
        return self._measured[len(self.levels) - 1, candidate]

    def along(self, candidate: C, level: int, *, reporting: bool = False) -> list[AtRecall]:
        """Return the cost of the target for a candidate on each sample up to `level`, by one half of the queries."""
        return [self._at_target(each, candidate, reporting) for each in range(level + 1)]

    def outlook(self, candidate: C, level: int, n: int) -> Outlook:
        """Return the prediction of the tuning half for `n` vectors; by the smallest sample alone, the reads there."""
        found = self.along(candidate, level)
        if level == 0:
            return Outlook(found[0].reads, found[0].draws)
        return predict(self.sizes[: level + 1], found, n)

    def growth(self, candidate: C, n: int) -> Growth:
        """Return the reads of the reporting half on each sample, and predicted for `n` vectors."""
        found = self.along(candidate, len(self.levels) - 1, reporting=True)
        return Growth(tuple(at.reads for at in found), found[-1].interval(), predict(self.sizes, found, n))

    def _at_target(self, level: int, candidate: C, reporting: bool) -> AtRecall:
        key = level, candidate, reporting
        if key not in self._costs:
            curve = self._curve(self._measured[level, candidate])
            self._costs[key] = at_recall(curve.half(reporting=reporting), self.target.least)
        return self._costs[key]

    def _work(self, level: int) -> Path:
        """Return the directory in which builds of a sample keep their stages."""
        return self._directory / f"work-{self.levels[level].size}"

    def _run(self, level: int, candidate: C) -> M:
        index, work = self._directory / "trial", self._work(level)
        self._build(level, candidate, index, work)
        measured = self._search(index, self.levels[level], candidate)
        shutil.rmtree(index)
        store = StageStore(work)
        for path in work.iterdir():
            if path.is_dir() and not self._is_shared(stage_of(path)):
                store.drop(path)
        store.close()
        return measured

    def _build(self, level: int, candidate: C, index: Path, work: Path) -> None:
        run_build(
            BuildSpec(
                input=[str(self.levels[level].path)],
                out=str(index),
                parameters=self._parameters(candidate),
                memory=self.spec.memory,
                workers=self.spec.workers,
                work=str(work),
            )
        )
