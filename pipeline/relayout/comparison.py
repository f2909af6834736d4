"""Two indexes of the same vectors, compared by the page reads of the same queries at equal recall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from indexmill.pipeline.bootstrap import mean_interval, same_rows
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.kinds.common.judge import Cost, Judge
from indexmill.pipeline.relayout.region import ball
from indexmill.pipeline.relayout.tuning import GivenQueries, tuning_queries


@dataclass(frozen=True)
class Comparison:
    """Page reads of an index, and of one that may take its place.

    Attributes
    ----------
    old, new : Cost
        The searches of the old index set the recall.
    more : (float, float)
        95% bootstrap interval of the page reads that a query takes more in the new one, paired. Equal queries are drawn
        together.
    queries, distinct, k, recall
        How many queries were searched for, how many of them are distinct, for how many neighbours, and the recall of
        the comparison.
    """

    old: Cost
    new: Cost
    more: tuple[float, float]
    queries: int
    distinct: int
    k: int
    recall: float

    @property
    def is_better(self) -> bool:
        """Whether the new index reads fewer pages at that recall, by more than noise."""
        return self.new.reached and self.more[1] < 0

    def facts(self, old: str, new: str, more: str) -> dict[str, Any]:
        """Return the comparison for the manifest; the names are those of the keys of page reads."""
        return {
            "k": self.k,
            "recall": round(self.recall, 6),
            old: round(self.old.mean, 6),
            new: round(self.new.mean, 6),
            more: [round(bound, 6) for bound in self.more],
        }


def compared(
    index: OpenedIndex, points: NDArray[Any], given: GivenQueries | None, most: int, paths: tuple[Path, Path],
    run: GenerationRun, advance: Callable[[int], None],
) -> Comparison:  # fmt: skip
    """Search two indexes as wholes.

    Parameters
    ----------
    index : OpenedIndex
        The index that both were made of.
    points : array, shape (n, dim)
        Its vectors as they are compared, by vector id.
    given : GivenQueries, optional
        By default vectors of the index are the queries, at most `most`.
    paths : (Path, Path)
        The old index and the new one.

    Raises
    ------
    IndexReplaced
        If another index has taken the place of one of them before it was searched.
    """
    threads = run.options.workers
    queries = tuning_queries(index, given, ball(points, 0, index.n), points, most, threads)
    judge = Judge(points, queries, threads)
    old, new = (run.searched(path) for path in paths)
    judge.aim(old)
    costs = []
    for view in (old, new):
        costs.append(judge.cost(view))
        advance(1)
    groups = same_rows(queries.vectors)
    more = mean_interval(costs[1].pages - costs[0].pages, groups)
    return Comparison(costs[0], costs[1], more, len(queries), int(groups.max()) + 1, queries.k, judge.target)
