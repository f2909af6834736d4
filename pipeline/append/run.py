"""Append, and what a merge shares: a new generation, at a cost in distances proportional to what is added.

The larger index is unpacked in slot order into memory-mapped arrays, the new vectors are inserted as a build
inserts them, and all files are written anew, front to back. Old vectors keep their bytes, codes and vector ids,
and those of the last full build their slots. A merge may make all lists and slots anew. Everything is prepared beside
the output, so a killed run leaves the index as it was and the next one starts over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition.build import build_partitioned
from indexmill.builders.vamana.extend import extend_graph
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.index.manifest import Manifest, read_manifest, write_manifest
from indexmill.formats.sources.source import VectorSource
from indexmill.layout.order import invert
from indexmill.pipeline.append.addition import Addition, deleted_after, with_deleted
from indexmill.pipeline.append.checked import opened_source
from indexmill.pipeline.append.codes import CodeErrors, code_errors, trained_anew
from indexmill.pipeline.append.files import Extended, write_files
from indexmill.pipeline.append.input import read_addition
from indexmill.pipeline.append.lists.run import STAGES as LISTS_STAGES
from indexmill.pipeline.append.lists.run import append_to_lists
from indexmill.pipeline.append.manifest import manifest_of
from indexmill.pipeline.append.memory import Growth, check_memory, held_bytes
from indexmill.pipeline.append.parts import grown_navigation, nearer_entries, tail_order, whole_order
from indexmill.pipeline.append.scratch import GrowingGraph, fill_tail, new_graph, unpack
from indexmill.pipeline.append.tables.run import STAGES as TABLES_STAGES
from indexmill.pipeline.append.tables.run import append_to_tables
from indexmill.pipeline.execution.allocator import give_back
from indexmill.pipeline.generations.opened import OpenedIndex, check_there
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.kinds.graph.builder import COUNTED_WORKERS
from indexmill.pipeline.kinds.graph.certify import measure
from indexmill.pipeline.mill.progress import Progress

_NONE = np.empty(0, np.int64)
#: What follows the insertion of vectors into a graph, or its build.
AFTER_LISTS = ("entries", "emit", "certify")
#: Stages of an append to an index of each kind.
STAGES = {
    "graph": ("ingest", "unpack", "encode", "insert", *AFTER_LISTS),
    "ivf": LISTS_STAGES,
    "lsh": TABLES_STAGES,
}


def run_append(
    index: str | os.PathLike[str],
    open_more: Callable[[Sequence[str]], VectorSource],
    options: RunOptions,
    progress: Progress | None = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Add vectors to an index of any kind, and publish the next generation.

    Vectors that were deleted stay so.

    Parameters
    ----------
    open_more : callable
        Opens the vectors to add, given the names of the index's metadata columns.
    replace : bool
        Whether vectors with a user id of the new ones are deleted in the same generation; else such an id is refused.

    Returns
    -------
    dict
        The manifest, as published (docs/formats/manifest.md).

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change; the index is then as it was.
    """
    run = ExtendRun(index, options, progress)
    with run.working() as scratch:
        check_there(Path(index))
        append = _APPENDS[read_manifest(Path(index), _APPENDS).kind]
        return append(run, index, open_more, scratch, replace)


def _append_to_graph(
    run: ExtendRun,
    index: str | os.PathLike[str],
    open_more: Callable[[Sequence[str]], VectorSource],
    scratch: Path,
    replace: bool,
) -> dict[str, Any]:
    with OpenedIndex(index) as larger:
        run.check_origins()
        source = opened_source(larger, open_more, replace)
        check_memory(run.options.memory, larger, Growth.of(larger, source.n_vectors))
        run.check_room(scratch, larger.manifest, larger.n + source.n_vectors)
        run.expect(STAGES["graph"])
        with run.stage("ingest", source.n_vectors, "vectors"):
            (scratch / "input").mkdir()
            addition = read_addition(larger, source, scratch / "input", run.progress, replace)
        deleted = deleted_after(larger, addition.user_ids, replace)
        how = Inserting((larger.manifest,), larger.order)
        return run.extend(larger, addition, how, scratch, deleted)


#: How an index of each kind is extended.
_APPENDS: dict[str, Callable[..., dict[str, Any]]] = {
    "graph": _append_to_graph,
    "ivf": append_to_lists,
    "lsh": append_to_tables,
}


@dataclass(frozen=True)
class Inserting:
    """How an addition becomes part of an index.

    Attributes
    ----------
    parents : tuple of Manifest
        Of the indexes that the result is made of; a run in place replaces the first one.
    order : str
        Order by which vertices are laid out.
    parts_before : int
        Parts of the addition whose vector ids come before those of the index.
    laid_out_anew : bool
        Whether all vertices get other slots, and codes by a codebook of all vectors where codes err too much.
    built_anew : bool
        Whether all lists are made anew by `partition`, and none is kept.
    """

    parents: tuple[Manifest, ...]
    order: str
    parts_before: int = 0
    laid_out_anew: bool = False
    built_anew: bool = False


class ExtendRun(GenerationRun):
    """One append or merge."""

    def extend(
        self,
        larger: OpenedIndex,
        addition: Addition,
        how: Inserting,
        scratch: Path,
        deleted: NDArray[np.int64] = _NONE,
    ) -> dict[str, Any]:
        """Add `addition` to `larger`, write and measure the result, and publish it; returns its manifest.

        Vectors in the slots `deleted` of `larger` are deleted in the result; the certificate is measured with them.
        """
        seed, threads, n = larger.parameters.seed, self.options.workers, larger.n + addition.n
        with self.stage("unpack", n, "vectors") as advance:
            graph = new_graph(scratch, larger, addition.n, how.laid_out_anew)
            unpack(larger, graph, 0, lambda rows: rows, advance)
            addition.fill(graph, advance)
            codebook, errors = larger.codes.codebook, code_errors(larger, graph)
        if how.laid_out_anew and errors.are_large and not larger.inherited:
            available = self.options.memory - held_bytes(larger, Growth.of(larger, addition.n))
            with self.task("train"):
                codebook, errors = trained_anew(larger, graph, threads, available)
        with self.task("encode"):
            fill_tail(larger, graph, codebook, threads)
        facts = self._build(larger, graph) if how.built_anew else self._insert(larger, graph)
        with self.stage("entries", 1, "tasks"):
            extended = self._laid_out(larger, addition, how, graph, scratch, (codebook, errors))
        directory = scratch / "index"
        directory.mkdir()
        with self.stage("emit", n, "vectors") as advance:
            build_id, files = write_files(extended, directory, advance)
        manifest = manifest_of(extended, how.order, how.parents, build_id, files)
        with self.stage("certify", 1, "tasks"):
            write_manifest(directory, manifest)
            certificate = measure(
                str(directory), graph.vectors, seed, threads,
                row_of_slot=extended.order, as_queries=larger.space.as_given,
            )  # fmt: skip
            manifest = replaced(manifest, certificate=certificate)
            if len(deleted):
                slots = np.sort(extended.slots[deleted]).astype(np.int64)
                manifest = with_deleted(directory, manifest, larger.manifest.generation, n, slots)
        return self.publish(directory, manifest, how.parents[0].build_id, facts)

    def _insert(self, larger: OpenedIndex, graph: GrowingGraph) -> dict[str, int]:
        """Insert the new vertices; return what that took."""
        with self.stage("insert", len(graph.vectors) - larger.n, "vectors") as advance:
            extension = extend_graph(
                graph.vectors, graph.neighbours, graph.degrees, larger.n, larger.entries.medoid,
                larger.vamana, seed=larger.parameters.seed, threads=self.options.workers, advance=advance,
            )  # fmt: skip
        return {"distances": extension.distances, "changed_lists": extension.changed}

    def _build(self, larger: OpenedIndex, graph: GrowingGraph) -> dict[str, int]:
        """Make all lists anew, with as many threads as `building_bytes` counts; return how many lists."""
        n, threads = len(graph.vectors), min(self.options.workers, COUNTED_WORKERS)
        with self.stage("build", n, "vectors") as advance:
            built = build_partitioned(
                graph.vectors, larger.entries.medoid, larger.vamana, seed=larger.parameters.seed,
                threads=threads, advance=advance, ended=lambda step, copies: give_back(),
            )  # fmt: skip
            graph.neighbours[:, : built.neighbours.shape[1]] = built.neighbours
            graph.degrees[:] = built.degrees
        return {"changed_lists": n}

    def _laid_out(
        self, larger: OpenedIndex, addition: Addition, how: Inserting, graph: GrowingGraph, scratch: Path,
        coded: tuple[Codebook, CodeErrors],
    ) -> Extended:  # fmt: skip
        """Give the tail its slots, and find entry vertices and navigation graph of the whole."""
        p, node, threads = larger.parameters, larger.space.node, self.options.workers
        shape = (how.order, node.nodes_per_page, node.max_degree, p.seed, threads)
        if how.laid_out_anew:
            available = self.options.memory - held_bytes(larger, Growth.of(larger, addition.n))
            tail = whole_order(graph, *shape, scratch, available)
        else:
            tail = tail_order(graph, *shape)
        order = np.concatenate([np.arange(graph.built, dtype=np.uint32), tail + np.uint32(graph.built)])
        slots = invert(order)
        entries = nearer_entries(graph, larger.space, larger.entries, threads)
        navigation = larger.navigation
        if navigation is not None:
            navigation = grown_navigation(graph, navigation, p.navigation, slots, p.seed, threads)
        return Extended(
            larger,
            addition,
            how.parts_before,
            graph,
            tail,
            order,
            slots,
            entries,
            navigation,
            *coded,
        )
