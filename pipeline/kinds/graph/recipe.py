"""The stages of a graph index: what each reads, what decides it, and the tasks it is made of."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from indexmill.builders.cluster.shards import ShardPlan
from indexmill.builders.nearest.products import PRODUCT_ROWS
from indexmill.formats.sources.source import VectorSource
from indexmill.layout.districts.order import InDistricts, groups_of
from indexmill.layout.portfolio import USES_POINTS, in_districts
from indexmill.pipeline.kinds.common import cluster, encode
from indexmill.pipeline.kinds.common.compute import compute_key
from indexmill.pipeline.kinds.common.ingest import InputSummary, stored_dtype
from indexmill.pipeline.kinds.common.ingest import signature as ingest_signature
from indexmill.pipeline.kinds.common.memory import batch_bytes, sort_buffer_bytes, task_bounds
from indexmill.pipeline.kinds.common.shared import CODEBOOK_NAME
from indexmill.pipeline.kinds.graph import certify, emit, entries, navigation, order, tasks
from indexmill.pipeline.kinds.graph.candidates import Format
from indexmill.pipeline.kinds.graph.districts import tasks as districts
from indexmill.pipeline.kinds.graph.districts.plan import settle_row_bytes
from indexmill.pipeline.kinds.graph.memory import narrow_stages
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape, unite_row_bytes
from indexmill.pipeline.kinds.graph.shaped import asked as asking
from indexmill.pipeline.kinds.graph.shaped import labels
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.mill.inputs import ObjectWatch
from indexmill.pipeline.mill.stages import Mill, Stage, task_files


class GraphRecipe(Recipe):
    """The stages behind a graph index; see `Recipe`.

    Parameters
    ----------
    shape : GraphShape
        With the resolved parameters.
    chosen : tuple of Stage, optional
        Stages *sample* and *format*, where the format was chosen.
    asked : VectorSource, optional
        A sample of queries.
    unmeasured : str, optional
        Why a format that the job leaves open was not measured.
    """

    p: Parameters

    def __init__(
        self, mill: Mill, ingest: Stage, summary: InputSummary, shape: GraphShape, memory: int,
        chosen: tuple[Stage, Stage] | None = None, asked: VectorSource | None = None, unmeasured: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(mill, ingest, summary, memory)
        self.shape = shape
        self.p = shape.parameters
        self._facts = {} if unmeasured is None else {emit.UNMEASURED: unmeasured}
        self._narrow = narrow_stages(shape, memory)
        self.node = shape.node
        emit.check_range(summary, self.node)
        self.sample = chosen[0] if chosen else self._sample_stage(self.p.sample_vectors, self.p.seed)
        self.format = chosen[1] if chosen else None
        self.cluster = self._cluster()
        self.asked = None if asked is None else self._asked(asked)
        self.nearest = None if self.asked is None else self._nearest(self.asked)
        self.graph = self._labelled(self._bridged(self._graph()))
        self.encode = self._encode()
        self.order = self._order()
        self.entries = self._entries()
        self.navigation = self._navigation() if self.p.navigation else None
        self.inputs = emit.EmitInputs(
            ingest=str(ingest.path),
            cluster=str(self.cluster.path),
            graph=str(self.graph.path),
            entries=str(self.entries.path),
            encode=str(self.encode.path),
            order=str(self.order.path),
            navigation=None if self.navigation is None else str(self.navigation.path),
            format=None if self.format is None else str(self.format.path),
        )
        self.spans = task_bounds(summary.n_vectors, 3 * shape.record_bytes, memory)
        self.pack = self._pack()
        self._end(
            self._emit(), certify.VERSION,
            lambda: (
                certify.certify_task, str(self.emit.path), self.manifest(), str(ingest.path), self.p.seed,
            ),
        )  # fmt: skip

    def run_facts(self) -> dict[str, Any]:
        """Return the share of neighbours that byte codes missed, where it was measured."""
        facts: dict[str, Any] = json.loads((self.mill.read(self.emit) / emit.RUN_FACTS).read_text())
        return facts

    def shared_files(self) -> list[tuple[Stage, str]]:
        """See `Recipe.shared_files`: the codebook, and what the choice of a format was made from."""
        chosen = [] if self.format is None else [(self.format, emit.FORMAT_FACTS)]
        return [(self.encode, CODEBOOK_NAME), *chosen]

    def shared_parameters(self) -> dict[str, Any]:
        """See `Recipe.shared_parameters`: the format."""
        return {name: getattr(self.p, name) for name in Format._fields}

    def _at_once(self, name: str) -> int | None:
        executor, stage = self.mill.executor, self._narrow[name]
        return stage.fitting(self.memory, executor.workers, executor.workers * executor.process_bytes)

    def _batch_bytes(self, chunks: int, payload_bytes: int) -> int:
        return batch_bytes(chunks, payload_bytes, self.memory)

    def _cluster(self) -> Stage:
        limit, overlap = self.p.shard_vectors, self.p.overlap
        shards = {} if limit is None else {"shard_vectors": limit, "overlap": overlap}
        what = {"seed": self.p.seed, **shards}
        return self._call(
            "cluster", cluster.CLUSTER_VERSION, what, [self.ingest, self.sample],
            lambda: (
                cluster.cluster_task, str(self.ingest.path), str(self.sample.path), limit, overlap, self.p.seed,
            ),
        )  # fmt: skip

    @cached_property
    def comparable(self) -> Stage:
        """The stage with vectors in a type that kernels compute with: ingest, unless the type must be changed.

        It exists only if a stage asks for it: without readers it would never be made, and ingest never dropped.
        """
        if self.shape.is_comparable:
            return self.ingest
        return self._call(
            "comparable", tasks.COMPARABLE_VERSION, {}, [self.ingest],
            lambda: (tasks.comparable_task, self.vectors),
        )  # fmt: skip

    @property
    def taken(self) -> Stage:
        """The stage with vectors as the builder takes them."""
        return self.ingest if self.shape.is_taken else self.comparable

    @property
    def taken_rows(self) -> str:
        """The file of these vectors."""
        return str(self.taken.path / "vectors.npy")

    @property
    def build_arguments(self) -> tasks.BuildArguments:
        """The arguments of the tasks that build the graph."""
        p = self.p
        compute = p.compute if p.builder == "partition" else "cpu"
        return tasks.BuildArguments(
            p.max_degree, p.build_list_size, p.alpha, p.seed, p.builder, compute, p.saturate, p.passes, p.build_codes,
            self.shape.fanouts,
        )  # fmt: skip

    @property
    def _graph_key(self) -> dict[str, Any]:
        """Parameters that decide a graph."""
        g = self.build_arguments
        return g._asdict() | (compute_key(self.p) if g.compute != "cpu" else {})

    @property
    def _insertion(self) -> str:
        """The unit that the progress of a build counts: every vector once for each pass."""
        return "vectors" if self.p.passes == 1 else "insertions"

    def _asked(self, sample: VectorSource) -> Stage:
        """Return the stage that reads a sample of queries, here: its file need not be there for workers."""
        metric, dtype = self.p.metric, stored_dtype(self.shape.dtype, self.p.metric)
        watch = ObjectWatch(sample)
        signature = {"metric": metric, "dtype": str(dtype), "sample": ingest_signature(sample)}

        def write(directory: Path) -> None:
            asking.read_sample(sample, metric, dtype, directory, self.mill.progress.advance)
            watch.check()

        return self._stage(
            "asked",
            asking.ASKED_VERSION,
            signature,
            [self.ingest],
            write,
            steps=sample.n_vectors,
            unit="queries",
        )

    def _nearest(self, queries: Stage) -> Stage:
        k = self.shape.asked_nearest
        return self._call(
            "nearest", asking.NEAREST_VERSION, {"k": k}, [queries, self.ingest],
            lambda: (asking.nearest_task, self.vectors, str(queries.path), k),
        )  # fmt: skip

    def _bridged(self, graph: Stage) -> Stage:
        """Return the stage of `graph` with edges between the vectors nearest to each query of a sample, if any."""
        if self.asked is None or self.nearest is None:
            return graph
        queries, nearest, rule = self.asked, self.nearest, self.build_arguments.vamana.rule
        return self._call(
            "bridge", asking.BRIDGE_VERSION, {"alpha": rule.alpha, "saturate": rule.saturate},
            [graph, nearest, queries, self.ingest],
            lambda: (
                asking.bridge_task, self.vectors, str(graph.path), str(queries.path), str(nearest.path), rule,
                self.p.build_list_size,
            ),
        )  # fmt: skip

    def _graph(self) -> Stage:
        return self._build() if self.p.shard_vectors is None else self._build_sharded()

    def _build(self) -> Stage:
        g, key = self.build_arguments, self._graph_key
        if self.shape.by_codes and g.builder == "partition" and self.shape.dtype.kind == "f":
            g = g._replace(build_codes="sq8")
            key |= {"build_codes": "sq8"}
        return self._call(
            "build", tasks.BUILD_VERSION, key, [self.taken, self.cluster],
            lambda: (tasks.build_task, self.taken_rows, cluster.load_medoid(self.mill.read(self.cluster)), g),
            counts=(g.passes * self.summary.n_vectors, self._insertion),
        )  # fmt: skip

    def _build_sharded(self) -> Stage:
        g, n = self.build_arguments, self.summary.n_vectors
        limit = self.p.shard_vectors or n
        buffer = sort_buffer_bytes(self.memory)

        def plan() -> ShardPlan:
            return cluster.load_plan(self.mill.read(self.cluster))

        def shards() -> int:
            return plan().n_shards

        spans = task_bounds(n, self.shape.row_bytes + 48, self.memory, align=PRODUCT_ROWS)
        bounds = task_bounds(n, unite_row_bytes(self.shape), self.memory)
        batch = self._batch_bytes(len(spans) - 1, self.shape.row_bytes)
        assign = self._by_rows(
            "assign", tasks.ASSIGN_VERSION, {}, [self.ingest, self.cluster], "chunk", spans,
            lambda: (tasks.assign_task, (self.vectors, self.mill.executor.share(plan())), (batch,)),
        )  # fmt: skip
        chunks = task_files(assign.path, len(spans) - 1, "chunk")

        build = self._tasks(
            "build", tasks.BUILD_VERSION, self._graph_key, [assign, self.cluster], "chunk", bounds,
            lambda: (
                tasks.build_shard_task,
                [
                    (chunks, shard, limit, g, bounds, buffer, self._batch_bytes(shards(), 4 * g.max_degree))
                    for shard in range(shards())
                ],
            ),
            lambda: [int(n * (1 + self.p.overlap)) * g.passes // shards()] * shards(),
            wide=True, unit=self._insertion,
        )  # fmt: skip
        unite = self._by_rows(
            "unite", tasks.UNITE_VERSION, self._graph_key, [build, self.ingest, self.cluster], "npz", bounds,
            lambda: (
                tasks.unite_task, (self.vectors, task_files(build.path, shards(), "chunk")), (g, buffer // 2),
            ),
        )  # fmt: skip
        parts = task_files(unite.path, len(bounds) - 1, "npz")
        return self._call(
            "link", tasks.LINK_VERSION, self._graph_key, [unite, self.ingest, self.cluster],
            lambda: (
                tasks.link_task, self.vectors, parts, n, g.max_degree,
                cluster.load_medoid(self.mill.read(self.cluster)), g.build_list_size,
            ),
        )  # fmt: skip

    def _labelled(self, graph: Stage) -> Stage:
        """Return the stage of `graph` with edges within each label, if the job names their column."""
        column, p = self.shape.label_column, self.build_arguments
        if column is None:
            return graph
        what = {"column": column, **asdict(p.vamana), "seed": p.seed}
        return self._call(
            "labels", labels.VERSION, what, [graph, self.ingest, *self._where_asked],
            lambda: (
                labels.labels_task, self.vectors, str(graph.path), str(self.ingest.path), column,
                None if self.nearest is None else str(self.nearest.path), p,
            ),
        )  # fmt: skip

    @property
    def _where_asked(self) -> list[Stage]:
        """The stage of what a sample of queries says, if there is one."""
        return [] if self.nearest is None else [self.nearest]

    def _encode(self) -> Stage:
        p = self.p
        where = compute_key(p) if p.pq_rotation == "none" else {}  # rotated codes are made on the processor
        what = {"pq_bytes": p.pq_bytes, "pq_rotation": p.pq_rotation, "seed": p.seed, **where}
        spread = None if self.nearest is None else str(self.nearest.path / asking.SPREAD)
        return self._call(
            "encode", encode.VERSION, what, [self.ingest, self.sample, *self._where_asked],
            lambda: (
                encode.encode_task, self.vectors, str(self.sample.path), p.pq_bytes, p.pq_rotation, p.seed, p.compute,
                spread,
            ),
            counts=self.by_vector,
        )  # fmt: skip

    def _order(self) -> Stage:
        what = {"order": self.p.order, "node_bytes": self.node.node_bytes, "seed": self.p.seed}
        what |= {"code_bytes": self.node.code_bytes} if self.node.code_bytes else {}
        if (kind := in_districts(self.p.order, self.summary.n_vectors)) is not None:
            return self._joined(kind, what)
        geometric = self.p.order in USES_POINTS
        return self._call(
            "order", order.VERSION, what, [self.graph, *([self.comparable] if geometric else [])],
            lambda: (
                order.order_task, str(self.graph.path),
                str(self.comparable.path / "vectors.npy") if geometric else None, self.p.order, self.node, self.p.seed,
            ),
        )  # fmt: skip

    def _joined(self, kind: InDistricts, what: dict[str, Any]) -> Stage:
        """Return stage *order* behind the stages that order each district."""
        n, max_degree, buffer = self.summary.n_vectors, self.p.max_degree, sort_buffer_bytes(self.memory) // 2
        n_districts = kind.districts(n)
        spans = task_bounds(n, settle_row_bytes(self.shape), self.memory)
        batch = self._batch_bytes(len(spans) - 1, 4 * max_degree)
        borders = self._call(
            "borders", districts.BORDERS_VERSION, {"districts": n_districts}, [self.ingest],
            lambda: (districts.borders_task, self.vectors, n_districts),
        )  # fmt: skip

        def shared() -> Any:
            return self.mill.executor.share(districts.load_borders(self.mill.read(borders)))

        settle = self._by_rows(
            "settle", districts.SETTLE_VERSION, {}, [self.graph, borders, self.ingest], "chunk", spans,
            lambda: (districts.settle_task, (self.vectors, str(self.graph.path)), (shared(), batch)),
        )  # fmt: skip
        chunks, per_page = task_files(settle.path, len(spans) - 1, "chunk"), max(self.node.nodes_per_page, 1)
        packed = self._tasks(
            "districts", districts.DISTRICTS_VERSION, what, [settle], "npz", [n_districts],
            lambda: (
                districts.district_task,
                [(chunks, district, kind, n, max_degree, per_page, buffer) for district in range(n_districts)],
            ),
            lambda: [n // n_districts] * n_districts, unit="vectors",
        )  # fmt: skip
        files, groups = task_files(packed.path, n_districts, "npz"), groups_of(n_districts)
        rests = self._tasks(
            "rests", districts.RESTS_VERSION, what, [packed], "npy", [len(groups)],
            lambda: (
                districts.rests_task,
                [(files[first:last], kind, n, max_degree, per_page) for first, last in groups],
            ),
            lambda: [last - first for first, last in groups], unit="districts",
        )  # fmt: skip
        joining = (files, task_files(rests.path, len(groups), "npy"))
        return self._call(
            "order", order.VERSION, what, [packed, rests, self.graph],
            lambda: (order.joined_task, str(self.graph.path), *joining, kind.unit_pages, self.p.order, self.node),
        )  # fmt: skip

    def _entries(self) -> Stage:
        what = {"entries": self.p.entries, "seed": self.p.seed, **compute_key(self.p)}
        return self._call(
            "entries", entries.VERSION, what, [self.sample, self.graph, self.ingest],
            lambda: (
                entries.entries_task, self.vectors, str(self.graph.path), str(self.sample.path), self.p.entries,
                self.p.seed, self.p.compute,
            ),
        )  # fmt: skip

    def _navigation(self) -> Stage:
        what = {"fraction": self.p.navigation, "seed": self.p.seed}
        nearest = None if self.nearest is None else str(self.nearest.path / asking.NEAREST)
        return self._call(
            "navigation", navigation.VERSION, what, [self.ingest, *self._where_asked],
            lambda: (navigation.navigation_task, self.vectors, self.p.navigation, self.p.seed, nearest),
        )  # fmt: skip

    def _pack(self) -> Stage:
        feeds = [self.order, self.graph, self.encode, self.ingest]
        batch = self._batch_bytes(len(self.spans) - 1, self.shape.record_bytes)
        return self._by_rows(
            "pack", emit.PACK_VERSION, self._pages_key, feeds, "chunk", self.spans,
            lambda: (emit.pack_task, (self.inputs, self.node, self.shape.kept), (batch,)),
        )  # fmt: skip

    @property
    def _pages_key(self) -> dict[str, Any]:
        """What decides the pages of nodes and exact vectors."""
        return {"node": self.node.dtype} | ({} if self.shape.kept is None else {"vectors": True})

    def _emit(self) -> Stage:
        chunks = task_files(self.pack.path, len(self.spans) - 1, "chunk")
        feeds = [self.order, self.entries, self.encode, *([self.navigation] if self.navigation else [])]
        feeds += [
            *([self.format] if self.format else []),
            self.pack,
            self.cluster,
            self.ingest,
        ]  # packed last: then no stage waits for the graph
        return self._call(
            "emit", emit.EMIT_VERSION, self._pages_key | {"metric": self.p.metric} | self._facts, feeds,
            lambda: (
                emit.emit_task, self.inputs, chunks, self.node, self.shape.kept, self.p.metric, self._facts,
                sort_buffer_bytes(self.memory),
            ),
            counts=self.by_vector,
        )  # fmt: skip
