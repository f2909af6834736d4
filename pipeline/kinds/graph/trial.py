"""Small indexes of one sample, built as the whole index will be, to measure the page reads of their searches.

Indexes share a store of stages: a graph is built once for all codes, codes are made once for all types of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.certify import opened_as
from indexmill.pipeline.kinds.common.judge import Cost, Judge, TuningQueries
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.recipe import GraphRecipe
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.run import make_ingest
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.mill.store import StageStore

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: Neighbours that searches are to find.
K = 10
#: Budget of the builds; it cuts none of them.
MEMORY = 8 << 30


class TrialIndexes:
    """Indexes of the same rows.

    Parameters
    ----------
    rows : array, shape (m, stored dim)
        As they are stored, so that all metrics are Euclidean distance.
    queries : array, shape (q, stored dim)
        Other rows.
    extent : float64 array, shape (2, stored dim)
        Least and greatest components that scaled nodes must hold.
    directory : Path
        Exists; for scratch files.
    threads : int
        Results do not depend on it.
    """

    def __init__(
        self,
        rows: NDArray[Any],
        queries: NDArray[Any],
        extent: NDArray[np.float64],
        directory: Path,
        threads: int,
    ) -> None:
        self._directory, self._extent = directory, extent
        self._source = array_source(rows)
        _, distances = exact_neighbours(rows, queries, K, threads)
        asked = TuningQueries(
            queries, queries.astype(np.float32), distances[:, -1].astype(np.float64), K, None
        )
        self._judge = Judge(rows, asked, threads)
        self._mill = Mill(StageStore(directory / "stages"), LocalExecutor(threads), Silent(), keep=True)

    def __enter__(self) -> Self:
        key = self._mill.store.key("ingest", 0, {}, [])
        self._ingest = Stage("ingest", key, self._mill.store.path("ingest", key), (), self._write)
        self._summary = make_ingest(self._mill, self._ingest)
        return self

    def __exit__(self, *_: object) -> None:
        self._mill.store.close()
        self._mill.executor.close()

    def _write(self, directory: Path) -> None:
        ingest.ingest(self._source, "l2", directory, Silent())
        low, high = self._extent.tolist()
        ingest.write_summary(replace(ingest.read_summary(directory), minimum=low, maximum=high), directory)

    def cost(self, p: Parameters, recall: float) -> Cost:
        """Return page reads at `recall` of an index with these parameters, except for metric, entries and shards."""
        self._judge.target = recall
        with self._opened(p) as index:
            return self._judge.cost(index)

    def highest_recall(self, p: Parameters) -> float:
        """Return the recall of the longest searches of such an index."""
        with self._opened(p) as index:
            return self._judge.highest_recall(index)

    @contextmanager
    def _opened(self, p: Parameters) -> Iterator[Index]:
        from indexmill.reader.index import Index

        own = p.model_copy(update={"metric": "l2", "entries": 1, "shard_vectors": None, "compute": "cpu"})
        shape = GraphShape(self._summary.n_vectors, self._summary.dim, self._source.dtype, 0.0, own)
        recipe = GraphRecipe(self._mill, self._ingest, self._summary, shape, MEMORY)
        emitted = self._mill.make(recipe.emit)
        with opened_as(recipe.manifest(), str(emitted), str(self._directory)) as path:
            yield Index(path, "mmap")
