"""One build from input to published index: the stage list, and nothing that a stage does."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.manifest import MANIFEST_NAME, FileEntry, Manifest, write_manifest
from indexmill.formats.source import VectorSource, open_source
from indexmill.pipeline import certify, cluster, emit, encode, entries, graph, ingest, navigation, order
from indexmill.pipeline.budget import check_navigation, shard_size
from indexmill.pipeline.executor import Executor, make_executor, write_file
from indexmill.pipeline.progress import Progress, Silent
from indexmill.pipeline.publish import check_output, publish
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.store import StageStore, software_versions


def run_build(
    spec: BuildSpec, source: VectorSource | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Build and publish an index; run again after a crash, it goes on where it stopped.

    Parameters
    ----------
    spec : BuildSpec
    source : VectorSource, optional
        Vectors at hand (the Python API); by default `spec.input` is opened.
    progress : Progress, optional

    Returns
    -------
    dict
        The manifest, as published (docs/formats/manifest.md).

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change.
    """
    out = Path(os.path.abspath(spec.out))
    check_output(out, spec.force)
    opened = source or open_source(
        spec.input, column=spec.column, id_column=spec.id_column, metadata_columns=spec.metadata_columns
    )
    ingest.check_metric(opened, spec.parameters.metric)
    store = StageStore(Path(spec.work) if spec.work else out.with_name(out.name + ".work"))
    try:
        executor = make_executor(spec.executor, spec.workers)
        try:
            _Build(spec, opened, store, executor, progress or Silent()).run(out)
        finally:
            executor.close()
    except BaseException:
        store.close()
        raise
    if spec.work:
        store.close()
    else:
        store.remove()
    manifest: dict[str, Any] = json.loads((out / MANIFEST_NAME).read_text())
    return manifest


def _link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or a copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class _Build:
    """The stages of one build, in order; each method is a stage."""

    def __init__(
        self, spec: BuildSpec, source: VectorSource, store: StageStore, executor: Executor, progress: Progress
    ) -> None:
        self.spec = spec
        self.source = source
        self.store = store
        self.executor = executor
        self.progress = progress
        self.seconds: dict[str, float] = {}
        dtype = ingest.stored_dtype(source.dtype, spec.parameters.metric)
        self.dim = source.dim + (spec.parameters.metric == "ip")
        self.dtype = dtype
        limit = spec.parameters.shard_vectors or shard_size(
            source.n_vectors, self.dim, dtype, spec.parameters.max_degree, spec.memory
        )
        check_navigation(spec.parameters.navigation, source.n_vectors, self.dim, dtype, spec.memory)
        sharded = limit is not None and source.n_vectors > limit
        self.p: Parameters = spec.parameters.model_copy(update={"shard_vectors": limit if sharded else None})
        self.node = emit.node_format(str(dtype), self.dim, self.p.max_degree, self.p.node_dtype)

    def run(self, out: Path) -> None:
        started = datetime.now(UTC).isoformat(timespec="seconds")
        ingested, _ = self.ingest()
        self.summary = ingest.read_summary(ingested)
        self.vectors = str(ingested / "vectors.npy")
        emit.check_range(self.summary, self.node)
        root = self.summary.fingerprint
        sampled, sample_key = self.sample(root)
        clustered, cluster_key = self.cluster(ingested, sampled, sample_key)
        self.medoid = json.loads((clustered / "cluster.json").read_text())["medoid"]
        if self.p.shard_vectors is None:
            built, graph_key = self.build(cluster_key)
        else:
            built, graph_key = self.build_sharded(clustered, cluster_key)
        encoded, encode_key = self.encode(sampled, sample_key)
        ordered, order_key = self.order(built, graph_key)
        entered, entries_key = self.entries(sampled, sample_key, built, graph_key)
        keys = [order_key, entries_key, encode_key]
        navigated = None
        if self.p.navigation:
            directory, navigation_key = self.navigation(root)
            navigated = str(directory)
            keys.append(navigation_key)
        inputs = emit.EmitInputs(
            str(ingested), str(clustered), str(built), str(entered), str(encoded), str(ordered), navigated
        )
        emitted, emit_key = self.emit(inputs, keys)
        manifest = self.manifest(emitted, ordered, built)
        certified, _ = self.certify(emitted, manifest, ingested, emit_key)
        certificate = json.loads((certified / "certificate.json").read_text())
        manifest = replace(manifest, certificate=certificate)
        self.executor.close()  # so that the memory of its workers is counted
        begun = time.perf_counter()
        self.progress.start("publish", len(manifest.files), "files")
        publish(emitted, manifest, self._run_record(started), out, self.spec.force)
        self.progress.advance(len(manifest.files))
        self.progress.finish(f"{time.perf_counter() - begun:.1f} s")

    def ingest(self) -> tuple[Path, str]:
        s = self.source
        what = {
            "metric": self.p.metric,
            "column": self.spec.column,
            "id_column": self.spec.id_column,
            "metadata": self.spec.metadata_columns,
        }
        return self._stage(
            "ingest", ingest.VERSION, what, ingest.signature(s), s.n_vectors, "vectors",
            lambda d: ingest.ingest(s, self.p.metric, d, self.progress),
        )  # fmt: skip

    def sample(self, root: str) -> tuple[Path, str]:
        what = {"vectors": self.p.sample_vectors, "seed": self.p.seed}
        return self._call(
            "sample", cluster.SAMPLE_VERSION, what, [root],
            cluster.sample_task, self.vectors, self.p.sample_vectors, self.p.seed,
        )  # fmt: skip

    def cluster(self, ingested: Path, sampled: Path, key: str) -> tuple[Path, str]:
        what = {"shard_vectors": self.p.shard_vectors, "seed": self.p.seed}
        return self._call(
            "cluster", cluster.CLUSTER_VERSION, what, [self.summary.fingerprint, key],
            cluster.cluster_task, str(ingested), str(sampled), self.p.shard_vectors, self.p.seed,
        )  # fmt: skip

    @property
    def _graph_parameters(self) -> graph.GraphParameters:
        return graph.GraphParameters(self.p.max_degree, self.p.build_list_size, self.p.alpha, self.p.seed)

    def build(self, key: str) -> tuple[Path, str]:
        g = self._graph_parameters
        return self._call(
            "build", graph.BUILD_VERSION, g._asdict(), [key],
            graph.build_task, self.vectors, self.medoid, g, steps=self.summary.n_vectors,
        )  # fmt: skip

    def build_sharded(self, clustered: Path, cluster_key: str) -> tuple[Path, str]:
        """Assign, build each shard, merge; every task's output is kept, so a rerun repeats only unfinished ones."""
        g, n = self._graph_parameters, self.summary.n_vectors
        limit = self.p.shard_vectors or n
        centroids = clustered / "shards.npy"
        n_shards = len(np.load(centroids, mmap_mode="r"))
        bounds = graph.task_bounds(n, self.dim, self.dtype)
        assigned, assign_key = self._tasks(
            "assign", graph.ASSIGN_VERSION, {}, [cluster_key], graph.assign_task,
            [(self.vectors, str(centroids), first, last) for first, last in pairwise(bounds)], "arrow",
        )  # fmt: skip
        built, build_key = self._tasks(
            "build", graph.BUILD_VERSION, g._asdict(), [assign_key], graph.build_shard_task,
            [(assigned, shard, str(self.dtype), limit, g, bounds) for shard in range(n_shards)],
            "arrow", all_threads=True,
        )  # fmt: skip
        parts, parts_key = self._tasks(
            "union", graph.MERGE_VERSION, g._asdict(), [build_key], graph.merge_task,
            [(self.vectors, built, part, bounds, g) for part in range(len(bounds) - 1)], "npz",
        )  # fmt: skip
        return self._call(
            "merge", graph.MERGE_VERSION, g._asdict(), [parts_key],
            graph.finish_merge_task, self.vectors, parts, self.medoid, g.build_list_size,
        )  # fmt: skip

    def encode(self, sampled: Path, key: str) -> tuple[Path, str]:
        what = {"pq_bytes": self.p.pq_bytes, "seed": self.p.seed}
        return self._call(
            "encode", encode.VERSION, what, [self.summary.fingerprint, key],
            encode.encode_task, self.vectors, str(sampled), self.p.pq_bytes, self.p.seed,
            steps=self.summary.n_vectors,
        )  # fmt: skip

    def order(self, built: Path, key: str) -> tuple[Path, str]:
        what = {"order": self.p.order, "nodes_per_page": self.node.nodes_per_page, "seed": self.p.seed}
        return self._call(
            "order",
            order.VERSION,
            what,
            [key],
            order.order_task,
            str(built),
            self.p.order,
            self.node,
            self.p.seed,
        )

    def entries(self, sampled: Path, sample_key: str, built: Path, graph_key: str) -> tuple[Path, str]:
        return self._call(
            "entries", entries.VERSION, {"entries": self.p.entries, "seed": self.p.seed}, [sample_key, graph_key],
            entries.entries_task, self.vectors, str(built), str(sampled), self.p.entries, self.p.seed,
        )  # fmt: skip

    def navigation(self, root: str) -> tuple[Path, str]:
        what = {"fraction": self.p.navigation, "seed": self.p.seed}
        return self._call(
            "navigation", navigation.VERSION, what, [root],
            navigation.navigation_task, self.vectors, self.p.navigation, self.p.seed,
        )  # fmt: skip

    def emit(self, inputs: emit.EmitInputs, keys: list[str]) -> tuple[Path, str]:
        what = {"node": self.node.dtype, "metric": self.p.metric}
        return self._call(
            "emit", emit.VERSION, what, [self.summary.fingerprint, *keys],
            emit.emit_task, inputs, self.node, self.p.metric, steps=self.summary.n_vectors,
        )  # fmt: skip

    def certify(self, emitted: Path, manifest: Manifest, ingested: Path, key: str) -> tuple[Path, str]:
        def write(directory: Path) -> None:
            index = directory / "index"
            index.mkdir()
            for file in manifest.files:
                _link_or_copy(emitted / file.name, index / file.name)
            write_manifest(index, manifest)
            self.executor.call(certify.certify_task, str(index), str(ingested), self.p.seed, str(directory))

        return self._stage("certify", certify.VERSION, {"seed": self.p.seed}, [key], 1, "tasks", write)

    def manifest(self, emitted: Path, ordered: Path, built: Path) -> Manifest:
        """Return the manifest of the emitted files, without a certificate."""
        degrees = graph.load_graph(built).degrees
        made = json.loads((emitted / emit.RECORD).read_text())
        return Manifest(
            kind=self.p.kind,
            build_id=made["build_id"],
            parameters=self.p.model_dump(),
            input={
                "n_vectors": self.summary.n_vectors,
                "dim": self.summary.dim,
                "dtype": self.summary.dtype,
                "fingerprint": self.summary.fingerprint,
            },
            software=software_versions(),
            layout=json.loads((ordered / "layout.json").read_text()),
            graph={
                "mean_degree": round(float(degrees.mean()), 6),
                "least_degree": int(degrees.min()),
                "greatest_degree": int(degrees.max()),
            },
            certificate=None,
            files=tuple(FileEntry(**file) for file in made["files"]),
        )

    def _run_record(self, started: str) -> dict[str, Any]:
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return {
            "started": started,
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
            "workers": self.spec.workers,
            "executor": self.spec.executor,
            "host": {
                "name": socket.gethostname(),
                "machine": platform.machine(),
                "system": platform.system(),
            },
            "peak_memory_bytes": max(own.ru_maxrss, children.ru_maxrss) * 1024,
        }

    def _stage(
        self, name: str, code_version: int, parameters: dict[str, Any], inputs: list[str],
        steps: int, unit: str, write: Callable[[Path], None], resume: bool = False,
    ) -> tuple[Path, str]:  # fmt: skip
        """Run one stage through the store, timed and shown; return its directory and key."""
        key = self.store.key(name, code_version, parameters, inputs)
        begun = time.perf_counter()
        self.progress.start(name, steps, unit)
        path, reused = self.store.make(name, key, write, resume)
        seconds = time.perf_counter() - begun
        self.seconds[name] = seconds
        self.progress.finish("reused" if reused else f"{seconds:.1f} s")
        return path, key

    def _call(
        self, name: str, code_version: int, parameters: dict[str, Any], inputs: list[str],
        task: Callable[..., Any], *arguments: Any, steps: int | None = None,
    ) -> tuple[Path, str]:  # fmt: skip
        """A stage that is one task with all threads."""

        def write(directory: Path) -> None:
            advance = None if steps is None else self.progress.advance
            self.executor.call(task, *arguments, str(directory), advance=advance)

        unit = "tasks" if steps is None else "vectors"
        return self._stage(name, code_version, parameters, inputs, steps or 1, unit, write)

    def _tasks(
        self, name: str, code_version: int, parameters: dict[str, Any], inputs: list[str],
        task: Callable[..., Any], arguments: list[tuple[Any, ...]], suffix: str, all_threads: bool = False,
    ) -> tuple[list[str], str]:  # fmt: skip
        """A stage of many tasks that write one file each; files that a killed run finished are kept."""
        key = self.store.key(name, code_version, parameters, inputs)
        files = [f"{i:06d}.{suffix}" for i in range(len(arguments))]

        def write(directory: Path) -> None:
            for stale in directory.glob("*.partial"):
                stale.unlink()
            missing = [i for i, file in enumerate(files) if not (directory / file).exists()]
            self.progress.advance(len(files) - len(missing))
            work = [(task, arguments[i], str(directory / files[i])) for i in missing]
            if all_threads:
                for w in work:
                    self.executor.call(write_file, *w)
                    self.progress.advance(1)
            else:
                for _ in self.executor.map(write_file, work):
                    self.progress.advance(1)

        path, _ = self._stage(name, code_version, parameters, inputs, len(files), "tasks", write, resume=True)
        return [str(path / file) for file in files], key
