"""Trials of graphs; see `Trials`.

A graph is built once for all sizes of codes, codes are made once for all graphs, and so on; only pages are written anew
for each trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from indexmill.pipeline.kinds.graph.parameters import Parameters, graph_parameters
from indexmill.pipeline.tune.curve import Curve
from indexmill.pipeline.tune.graphs.searches import measure_curve
from indexmill.pipeline.tune.graphs.space import Candidate, GraphCandidate
from indexmill.pipeline.tune.sample import Level
from indexmill.pipeline.tune.trials import Trials

#: Stages that belong to one trial, and take most space.
_OWN_STAGES = ("pack", "emit", "certify")
#: Vectors whose insertion, with a build list of 75, takes about as long as to write and search a trial.
_TRIAL_VECTORS, _LIST_SIZE = 20_000, 75


class GraphTrials(Trials[Candidate, Curve]):
    """Builds candidates on samples and searches them, each once; see `Trials`."""

    UNIT = "steps"

    def _parameters(self, candidate: Candidate) -> Parameters:
        p = candidate.applied(graph_parameters(self.spec.parameters))
        if p.navigation:  # searches start from it, and centroids would take time for nothing
            p = p.model_copy(update={"entries": 1})
        return p.model_copy(update={"shard_vectors": None})

    def _search(self, index: Path, level: Level, candidate: Candidate) -> Curve:
        from indexmill.reader.index import Index

        return measure_curve(Index(index, "mmap"), level, self.target, self.spec.workers)

    def _curve(self, measured: Curve) -> Curve:
        return measured

    def _is_shared(self, stage: str) -> bool:
        return stage not in _OWN_STAGES

    def _steps(self, level: Level, candidates: Sequence[Candidate]) -> list[int]:
        """Return about the time of each trial, in insertions of a default build."""
        steps, built = [], set[GraphCandidate]()
        for one in candidates:
            building = level.size * one.graph.build_list_size // _LIST_SIZE
            steps.append(_TRIAL_VECTORS + building * (one.graph not in built))
            built.add(one.graph)
        return steps
