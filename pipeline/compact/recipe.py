"""The stages of a compaction: unpack, repair, order, starts, emit and certify.

The vectors, codes and codebook that remain keep their bytes. A killed compaction resumes with the stages it finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.graph import Graph
from indexmill.builders.vamana.navigation import in_slot_order
from indexmill.builders.vamana.repair import repair_lists
from indexmill.formats.graph.entries import EntryVertices
from indexmill.formats.graph.navigation import Navigation
from indexmill.formats.index.manifest import FileEntry, Manifest, write_manifest
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.layout.order import Adjacency, invert
from indexmill.pipeline.compact.record import Removal, manifest_of
from indexmill.pipeline.compact.survivors import (
    numbered,
    remaining_medoid,
    renewed_entries,
    renewed_navigation,
)
from indexmill.pipeline.execution.allocator import give_back
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.scratch import emptied
from indexmill.pipeline.kinds.graph.certify import measure
from indexmill.pipeline.kinds.graph.order import degree_facts
from indexmill.pipeline.kinds.graph.tasks import load_graph, save_graph, write_facts
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.relayout.fitting import fit
from indexmill.pipeline.relayout.memory import certificate_threads, threads_within
from indexmill.pipeline.relayout.record import layout_record
from indexmill.pipeline.relayout.rewrite import Renewed, Rewrite
from indexmill.pipeline.relayout.unpacked import Numbering, UnpackedIndex, map_array, unpack

VERSION = 1
#: Names of the stages, in order; the last one only where the result is measured.
STAGES = ("unpack", "repair", "order", "starts", "emit", "certify")


@dataclass(frozen=True)
class Limits:
    """Bytes beside the page cache, and threads; neither changes the result."""

    memory: int
    workers: int


class CompactRecipe:
    """The web of stages behind an index without its deleted vectors.

    Parameters
    ----------
    mill : Mill
    index : OpenedIndex
    deleted : uint32 array, shape (d,)
        Deleted slots, ascending; fewer than all.
    order : str
        A key of `layout.portfolio.ORDERS`.
    certified : bool
        Whether the result is measured.

    Attributes
    ----------
    emit, last : Stage
        The stage whose directory ``index`` holds the files, and the one to make: it measures them if `certified`.
    """

    def __init__(
        self, mill: Mill, index: OpenedIndex, deleted: NDArray[np.uint32], order: str, limits: Limits,
        certified: bool = True,
    ) -> None:  # fmt: skip
        self._mill, self._index, self._deleted = mill, index, deleted
        self._order, self._limits = order, limits
        n, living = index.n, index.n - len(deleted)
        self._living = living
        self._removal = Removal.of(index, deleted)
        index.release_ids()  # no stage but `unpack` and `emit` has room for them
        origin = {
            "index": index.manifest.build_id,
            "generation": index.manifest.generation,
            "removed": self._removal.digest,
        }
        self._unpacked = self._stage("unpack", origin, [], self._unpack, (n, "vectors"))
        self._repaired = self._stage("repair", {}, [self._unpacked], self._repair, (living, "vectors"))
        both = [self._unpacked, self._repaired]
        self._ordered = self._stage("order", {"order": order}, both, self._fit)
        self._started = self._stage("starts", {}, both, self._start)
        inputs = [*both, self._ordered, self._started]
        self.emit = self._stage("emit", {}, inputs, self._emit, (n + living, "nodes"))
        self.emit.pinned = True
        self.last = self.emit
        if certified:
            self.last = self._stage("certify", {}, [self._unpacked, self.emit], self._certify)

    @property
    def directory(self) -> Path:
        """The files of the index, once `emit` is made."""
        return self.emit.path / "index"

    def manifest(self) -> Manifest:
        """Return the manifest of the emitted files, with a certificate if it was measured."""
        facts = json.loads((self.emit.path / "emitted.json").read_text())
        files = tuple(FileEntry(**entry) for entry in facts["files"])
        made = manifest_of(
            self._index, self._removal, facts["layout"], facts["build_id"], files, facts["graph"]
        )
        certificate = self.last.path / "certificate.json"
        if not certificate.exists():
            return made
        return replace(made, certificate=json.loads(certificate.read_text()))

    def run_facts(self) -> dict[str, Any]:
        """Return what run.json says of the repair."""
        facts: dict[str, Any] = json.loads((self.emit.path / "emitted.json").read_text())["repair"]
        return facts

    def _stage(
        self, name: str, parameters: dict[str, Any], inputs: Sequence[Stage], run: Callable[[Path], None],
        counts: tuple[int, str] = (1, "tasks"),
    ) -> Stage:  # fmt: skip
        store = self._mill.store
        key = store.key(name, VERSION, parameters, [stage.key for stage in inputs])
        return Stage(name, key, store.path(name, key), inputs, run, steps=counts[0], unit=counts[1])

    def _unpack(self, directory: Path) -> None:
        index = self._index
        numbering = numbered(index.vector_ids, self._deleted)
        vertices = map_array(directory / "vertices.npy", numbering.vertices)
        unpack(index, directory, True, self._mill.progress.advance, replace(numbering, vertices=vertices))
        if index.graph.node_format.code_bytes:
            codes = create_npy(
                directory / "codes.npy", np.uint8, (self._living, index.graph.node_format.code_bytes)
            )
            first = 0
            for block in index.codes.blocks():
                to = vertices[first : first + len(block)]
                codes[to[to < self._living]] = block[to < self._living]
                first += len(block)

    @cached_property
    def _numbering(self) -> Numbering:
        return Numbering(np.load(self._unpacked.path / "vertices.npy", mmap_mode="r"), self._living)

    @property
    def _points(self) -> NDArray[Any]:
        points: NDArray[Any] = np.load(self._unpacked.path / "points.npy", mmap_mode="r")
        return points

    @property
    def _graph(self) -> Graph:
        return load_graph(self._repaired.path)

    def _repair(self, directory: Path) -> None:
        index, points, threads = self._index, self._points, self._limits.workers
        lists = np.load(self._unpacked.path / "neighbours.npy", mmap_mode="r")
        lengths = np.load(self._unpacked.path / "degrees.npy", mmap_mode="r")
        neighbours = create_npy(directory / "neighbours.npy", np.uint32, (self._living, lists.shape[1]))
        degrees = create_npy(directory / "degrees.npy", np.int32, (self._living,))
        repaired = repair_lists(
            points, lists, lengths, index.vamana.rule, neighbours, degrees,
            threads=threads, advance=self._mill.progress.advance,
        )  # fmt: skip
        medoid = remaining_medoid(index, self._numbering, points, threads)
        linked = connect_unreachable(points, neighbours, degrees, medoid, index.vamana.build_list_size)
        neighbours.flush()
        degrees.flush()
        write_facts(directory, medoid, linked, [self._living])
        (directory / "repair.json").write_text(json.dumps({"repaired_lists": repaired, "linked": linked}))

    def _fit(self, directory: Path) -> None:
        index, graph, limits = self._index, self._graph, self._limits
        adjacency = Adjacency(graph.neighbours, graph.degrees)
        unpacked = UnpackedIndex(self._numbering.vertices, adjacency, self._points)
        threads = threads_within(index, self._order, limits.memory, limits.workers)
        per_page = max(index.graph.node_format.nodes_per_page, 1)
        fitted = fit(self._order, unpacked, per_page, index.parameters.seed, threads, None, directory)
        np.save(directory / "order.npy", fitted.order)
        give_back()
        layout = layout_record(index, adjacency, fitted, limits.workers)
        (directory / "layout.json").write_text(json.dumps(layout))

    def _start(self, directory: Path) -> None:
        index, points, threads = self._index, self._points, self._limits.workers
        entries = renewed_entries(index, self._numbering, points, self._graph, threads)
        np.save(directory / "entries.npy", entries.vertices)
        navigation = renewed_navigation(index, self._numbering, points, threads)
        if navigation is not None:
            np.save(directory / "sample.npy", navigation[0])
            save_graph(navigation[1], directory)

    def _renewed(self, slots: NDArray[np.uint32]) -> Renewed:
        """Return the parts that are not those of the index; `slots`: of each vertex."""
        index, graph = self._index, self._graph
        navigation: Navigation | None = None
        if index.navigation is not None:
            sample = np.load(self._started.path / "sample.npy")
            navigation = in_slot_order(load_graph(self._started.path), slots[sample])
        vertices = np.load(self._started.path / "entries.npy")
        codes = None
        if index.graph.node_format.code_bytes:
            codes = np.load(self._unpacked.path / "codes.npy", mmap_mode="r")
        entries = EntryVertices(graph.entry, index.entries.centroids, vertices)
        return Renewed(Adjacency(graph.neighbours, graph.degrees), codes, entries, navigation)

    def _emit(self, directory: Path) -> None:
        order = np.load(self._ordered.path / "order.npy", mmap_mode="r")
        files = directory / "index"
        files.mkdir()
        scratch = directory / "scratch"
        with emptied(scratch):
            renewed = self._renewed(map_array(scratch / "slot-of.npy", invert(order)))
            rewrite = Rewrite(self._index, self._numbering.vertices, order, scratch, self._limits.memory)
            build_id, written = rewrite.write(files, self._mill.progress.advance, renewed)
        emitted = {
            "build_id": build_id,
            "files": [asdict(entry) for entry in written],
            "layout": json.loads((self._ordered.path / "layout.json").read_text()),
            "graph": degree_facts(renewed.lists.degrees),
            "repair": json.loads((self._repaired.path / "repair.json").read_text()),
        }
        (directory / "emitted.json").write_text(json.dumps(emitted))

    def _certify(self, directory: Path) -> None:
        index, limits = self._index, self._limits
        write_manifest(self.directory, replace(self.manifest(), certificate=None))
        threads = certificate_threads(index, limits.memory, limits.workers)
        certificate = measure(
            str(self.directory), self._points, index.parameters.seed, threads, as_queries=index.space.as_given
        )
        (directory / "certificate.json").write_text(json.dumps(certificate))
