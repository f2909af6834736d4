"""Trials of `tune`: indexes of samples, built and searched as the product builds and searches.

All builds of a sample share one store of stages, so that a graph is built once for all sizes of codes, codes are made
once for all graphs, and so on; only pages are written anew for each trial.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.graph.parameters import graph_parameters
from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.mill.store import StageStore, stage_of
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.curve import AtRecall, Curve, at_recall, measure_curve
from indexmill.pipeline.tune.growth import Outlook, predict
from indexmill.pipeline.tune.sample import Level
from indexmill.pipeline.tune.space import Candidate, GraphCandidate

#: Stages that belong to one trial, and take most space.
_OWN_STAGES = ("pack", "emit", "certify")
#: Vectors whose insertion, with a build list of 75, takes about as long as to write and search a trial.
_TRIAL_VECTORS, _LIST_SIZE = 20_000, 75


class Trials:
    """Builds candidates on samples and searches them, each once.

    Parameters
    ----------
    spec : BuildSpec
        The job that is tuned; its memory and workers are those of the trials.
    levels : list of Level
        By ascending size.
    target : float
        Recall that searches go on to, and that costs are of.
    directory : Path
        For scratch files.
    progress : Progress
    """

    def __init__(
        self, spec: BuildSpec, levels: list[Level], target: float, directory: Path, progress: Progress
    ) -> None:
        self.levels = levels
        self._spec, self._target, self._directory, self._progress = spec, target, directory, progress
        self._curves: dict[tuple[int, Candidate], Curve] = {}
        self._costs: dict[tuple[int, Candidate, bool], AtRecall] = {}

    def run(self, level: int, candidates: list[Candidate]) -> list[Curve]:
        """Return the curve of each candidate on a sample, making those that are missing."""
        missing = [one for one in dict.fromkeys(candidates) if (level, one) not in self._curves]
        steps, built = [], set[GraphCandidate]()
        for one in missing:
            steps.append(_TRIAL_VECTORS + self._steps(level, one.graph) * (one.graph not in built))
            built.add(one.graph)
        if missing:
            name = f"try {self.levels[level].size:,}"
            with stage_progress(self._progress, name, sum(steps), "steps") as progress:
                for one, done in zip(missing, steps, strict=True):
                    self._curves[level, one] = self._run(level, one)
                    progress.advance(done)
        return [self._curves[level, one] for one in candidates]

    def forget(self, level: int) -> None:
        """Delete what was built of a sample: nothing more is tried on it."""
        shutil.rmtree(self._work(level))

    def curve(self, level: int, candidate: Candidate) -> Curve:
        """Return the results of `run`."""
        return self._curves[level, candidate]

    def along(self, candidate: Candidate, level: int, *, reporting: bool = False) -> list[AtRecall]:
        """Return the cost of the target for a candidate on each sample up to `level`, by one half of the queries."""
        return [self._at_target(each, candidate, reporting) for each in range(level + 1)]

    def outlook(self, candidate: Candidate, level: int, n: int) -> Outlook:
        """Return the prediction of the tuning half for `n` vectors; by the smallest sample alone, the reads there."""
        found = self.along(candidate, level)
        if level == 0:
            return Outlook(found[0].reads, found[0].draws)
        return predict(self.sizes[: level + 1], found, n)

    def _at_target(self, level: int, candidate: Candidate, reporting: bool) -> AtRecall:
        key = level, candidate, reporting
        if key not in self._costs:
            curve = self.curve(level, candidate)
            half = curve.reporting_half() if reporting else curve.tuning_half()
            self._costs[key] = at_recall(half, self._target)
        return self._costs[key]

    @property
    def sizes(self) -> list[int]:
        """Vectors of the samples."""
        return [level.size for level in self.levels]

    def _steps(self, level: int, graph: GraphCandidate) -> int:
        """Return about the time of building a graph, in insertions of a default build."""
        return self.levels[level].size * graph.build_list_size // _LIST_SIZE

    def _work(self, level: int) -> Path:
        """Return the directory in which builds of a sample keep their stages."""
        return self._directory / f"work-{self.levels[level].size}"

    def _run(self, level: int, candidate: Candidate) -> Curve:
        from indexmill.reader.index import Index

        out, work, sample = self._directory / "trial", self._work(level), self.levels[level]
        run_build(self._sample_spec(sample, candidate, out, work))
        curve = measure_curve(Index(out, "mmap"), sample, self._target, self._spec.workers)
        shutil.rmtree(out)
        store = StageStore(work)
        for path in work.iterdir():
            if path.is_dir() and stage_of(path) in _OWN_STAGES:
                store.drop(path)
        store.close()
        return curve

    def _sample_spec(self, level: Level, candidate: Candidate, out: Path, work: Path) -> BuildSpec:
        p = candidate.applied(graph_parameters(self._spec.parameters))
        if p.navigation:  # searches start from it, and centroids would take time for nothing
            p = p.model_copy(update={"entries": 1})
        return BuildSpec(
            input=[str(level.path)],
            out=str(out),
            parameters=p.model_copy(update={"shard_vectors": None}),
            memory=self._spec.memory,
            workers=self._spec.workers,
            work=str(work),
        )
