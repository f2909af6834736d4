"""The stages of a graph that is built region by region, in place of stage *build*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexmill.builders.nearest.products import PRODUCT_ROWS
from indexmill.builders.partition.records import ENDS, MET
from indexmill.builders.partition.regions import Regions
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common import cluster
from indexmill.pipeline.kinds.common.compute import compute_key
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.memory import task_bounds
from indexmill.pipeline.kinds.graph.recipe import GraphRecipe
from indexmill.pipeline.kinds.graph.regions import graph, tasks
from indexmill.pipeline.kinds.graph.regions.memory import assign_row_bytes
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.recipe import sizes_of
from indexmill.pipeline.mill.stages import Mill, Stage, task_files


def graph_recipe(
    mill: Mill, ingest: Stage, summary: InputSummary, shape: GraphShape, memory: int,
    chosen: tuple[Stage, Stage] | None = None, asked: VectorSource | None = None, unmeasured: str | None = None,
) -> GraphRecipe:  # fmt: skip
    """Return the recipe of a graph of that shape; see `GraphRecipe`."""
    kind = GraphRecipe if shape.region_bytes is None else RegionRecipe
    return kind(mill, ingest, summary, shape, memory, chosen, asked, unmeasured)


class RegionRecipe(GraphRecipe):
    """A graph built region by region; the regions decide only where files are cut."""

    def _graph(self) -> Stage:
        self._allowance = self.shape.allowance(self.memory)
        self._cut = [self._allowance.bytes]  # which vectors are in which file depends on it
        self._places = self._regions()
        self._assign = self._assigned()
        self._assigned_files = task_files(self._assign.path, len(self._spans) - 1, "chunk")
        self._choose = self._chosen(self._leaves())
        return self._linked(self._united())

    def _plan(self) -> Regions:
        return tasks.load_regions(self.mill.read(self._places))

    @property
    def _spans(self) -> list[int]:
        row = assign_row_bytes(self.shape.taken_bytes, self.shape.fanouts)
        return task_bounds(self.summary.n_vectors, row, self.memory, align=PRODUCT_ROWS)

    def _regions(self) -> Stage:
        g, spans = self.build_arguments, self._spans
        carve = self._by_rows(
            "carve", tasks.CARVE_VERSION, {"fanouts": g.fanouts, "seed": g.seed, **compute_key(self.p)},
            [self.taken], "npy", spans, lambda: (tasks.carve_task, (self.taken_rows,), (g.fanouts, g.seed, g.compute)),
        )  # fmt: skip
        files = task_files(carve.path, len(spans) - 1, "npy")
        return self._call(
            "regions", tasks.REGIONS_VERSION, {"R": g.max_degree, "saturate": g.saturate}, [carve, self.taken],
            lambda: (tasks.regions_task, self.taken_rows, files, g.seed, self._allowance),
            cut=self._cut,
        )  # fmt: skip

    def _assigned(self) -> Stage:
        batch = self._batch_bytes(len(self._spans) - 1, self.shape.taken_bytes)
        return self._by_rows(
            "assign", tasks.ASSIGN_VERSION, {}, [self._places, self.taken], "chunk", self._spans,
            lambda: (
                tasks.assign_task, (self.taken_rows, str(self._places.path)),
                (self.mill.executor.share(self._plan()), batch),
            ),
            cut=self._cut,
        )  # fmt: skip

    def _leaves(self) -> Stage:
        g, folder, width = self.build_arguments, str(self._places.path), 4 * MET

        def jobs() -> tuple[Any, list[tuple[Any, ...]]]:
            batch = self._batch_bytes(n := len(self._plan().members), width)
            return graph.leaves_task, [
                (folder, self._assigned_files, region, g, self._allowance, batch) for region in range(n)
            ]

        return self._tasks(
            "leaves", graph.LEAVES_VERSION, {"R": g.max_degree, "seed": g.seed, **compute_key(self.p)},
            [self._assign, self._places], "chunk", self._cut, jobs, lambda: self._plan().members.tolist(),
            wide=True, unit="vectors",
        )  # fmt: skip

    def _chosen(self, leaves: Stage) -> Stage:
        return self._parts(
            "choose", graph.CHOOSE_VERSION, leaves, graph.choose_task, 4 * ENDS,
            lambda: len(self._plan().members),
        )  # fmt: skip

    def _united(self) -> Stage:
        return self._parts(
            "unite", graph.UNITE_VERSION, self._choose, graph.unite_task,
            4 * self.build_arguments.max_degree, lambda: len(self._plan().homes),
        )  # fmt: skip

    def _parts(
        self, name: str, version: int, before: Stage, task: Any, width: int, files: Callable[[], int]
    ) -> Stage:
        """Return a stage with one task for each part, which reads all files of stage `before`; `width`: of a record."""
        g = self.build_arguments

        def jobs() -> tuple[Any, list[tuple[Any, ...]]]:
            parts = len(self._plan().homes)
            inputs = graph.RegionFiles(self.taken_rows, str(self._places.path), self._assigned_files)
            read, batch = task_files(before.path, files(), "chunk"), self._batch_bytes(parts, width)
            return task, [(inputs, read, part, g, self._allowance, batch) for part in range(parts)]

        return self._tasks(
            name, version, {"R": g.max_degree, "alpha": g.alpha, "saturate": g.saturate},
            [before, self._assign, self._places, self.taken], "chunk", self._cut,
            jobs, lambda: sizes_of(self._plan().places.tolist()), wide=True, unit="vectors",
        )  # fmt: skip

    def _linked(self, unite: Stage) -> Stage:
        g, n = self.build_arguments, self.summary.n_vectors
        return self._call(
            "link", graph.LINK_VERSION,
            {"R": g.max_degree, "L": g.build_list_size, "alpha": g.alpha, "saturate": g.saturate, "seed": g.seed},
            [unite, self._places, self.taken, self.cluster],
            lambda: (
                graph.link_task, self.taken_rows, str(self._places.path),
                task_files(unite.path, len(self._plan().homes), "chunk"), n,
                cluster.load_medoid(self.mill.read(self.cluster)), g, self._allowance.buffer_bytes,
            ),
        )  # fmt: skip
