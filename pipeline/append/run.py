"""Append and merge: a new generation of an index, at a cost in distances proportional to what is added.

The larger index is unpacked in slot order into memory-mapped arrays, the new vectors are inserted as a build
inserts them, and all files are written anew, front to back. Old vectors keep their bytes, codes and vector ids,
and those of the last full build their slots. Everything is prepared beside the output, so a killed run leaves
the index as it was and the next one starts over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.builders.vamana.extend import extend_graph
from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import write_manifest
from indexmill.formats.sources.source import VectorSource
from indexmill.layout.order import invert
from indexmill.pipeline.append.addition import Addition
from indexmill.pipeline.append.files import Extended, write_files
from indexmill.pipeline.append.input import check_source, read_addition
from indexmill.pipeline.append.manifest import manifest_of
from indexmill.pipeline.append.memory import check_memory
from indexmill.pipeline.append.merge import index_addition
from indexmill.pipeline.append.parts import grown_navigation, nearer_entries, tail_order
from indexmill.pipeline.append.scratch import GrowingGraph, fill_tail, new_graph, unpack
from indexmill.pipeline.generations.opened import OpenedIndex, refuse_deletions
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.kinds.common.ingest import MAX_VECTORS
from indexmill.pipeline.kinds.graph.certify import measure
from indexmill.pipeline.mill.progress import Progress


def run_append(
    index: str | os.PathLike[str],
    open_more: Callable[[Sequence[str]], VectorSource],
    options: RunOptions,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Add vectors to an index and publish the next generation.

    Parameters
    ----------
    open_more : callable
        Opens the vectors to add, given the names of the index's metadata columns.

    Returns
    -------
    dict
        The manifest, as published (docs/formats/manifest.md).

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change; the index is then as it was.
    """
    run = _Run(index, options, progress)
    with run.working() as scratch, OpenedIndex(index) as larger:
        refuse_deletions(index, larger.manifest, "append")
        source = open_more([] if larger.metadata is None else larger.metadata.schema_arrow.names)
        check_source(larger, source)
        _check_size(larger, source.n_vectors)
        check_memory(options.memory, larger, source.n_vectors)
        with run.stage("ingest", source.n_vectors, "vectors"):
            (scratch / "input").mkdir()
            addition = read_addition(larger, source, scratch / "input", run.progress)
        return run.extend(larger, addition, (larger,), scratch)


def run_merge(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    options: RunOptions,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Join two indexes and publish the result, by default in place of the first.

    The smaller one's vectors are inserted into the larger one (the first, if they are alike), whose parameters
    the result has. Vector ids of `first` stay, those of `second` follow.

    Returns
    -------
    dict
        The manifest, as published.

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change; both indexes are then as they were.
    """
    if os.path.realpath(first) == os.path.realpath(second):
        raise InputError(f"{second}: the same index twice; expected two different ones")
    run = _Run(first, options, progress)
    with run.working() as scratch, OpenedIndex(first) as one, OpenedIndex(second) as two:
        for each in (one, two):
            refuse_deletions(each.path, each.manifest, "merge")
        larger, smaller = (one, two) if one.n >= two.n else (two, one)
        _check_size(larger, smaller.n)
        addition = index_addition(larger, smaller, options.force)
        check_memory(options.memory, larger, smaller.n)
        return run.extend(larger, addition, (one, two), scratch)


def _check_size(larger: OpenedIndex, added: int) -> None:
    if larger.n + added > MAX_VECTORS:
        raise InputError(
            f"{larger.path}: {larger.n:,} vectors and {added:,} more; one index holds at most {MAX_VECTORS:,}; "
            "keep the two apart, and search both"
        )


class _Run(GenerationRun):
    """One append or merge."""

    def extend(
        self, larger: OpenedIndex, addition: Addition, parents: tuple[OpenedIndex, ...], scratch: Path
    ) -> dict[str, Any]:
        """Insert `addition` into `larger`, write and measure the result, and publish it; returns its manifest."""
        seed, threads, n = larger.parameters.seed, self.options.workers, larger.n + addition.n
        with self.stage("unpack", n, "vectors") as advance:
            graph = new_graph(scratch, larger, addition.n)
            unpack(larger, graph, 0, lambda rows: rows, advance)
            addition.fill(graph, advance)
            fill_tail(larger, graph, threads)
        with self.stage("insert", addition.n, "vectors") as advance:
            extension = extend_graph(
                graph.vectors, graph.neighbours, graph.degrees, larger.n, larger.entries.medoid,
                larger.vamana, seed=seed, threads=threads, advance=advance,
            )  # fmt: skip
        with self.stage("entries", 1, "tasks"):
            extended = _laid_out(larger, addition, larger is parents[0], graph, threads)
        directory = scratch / "index"
        directory.mkdir()
        with self.stage("emit", n, "vectors") as advance:
            build_id, files = write_files(extended, directory, advance)
        manifest = manifest_of(extended, parents, build_id, files)
        with self.stage("certify", 1, "tasks"):
            write_manifest(directory, manifest)
            certificate = measure(
                str(directory), graph.vectors, seed, threads,
                row_of_slot=extended.order, as_queries=larger.space.as_given,
            )  # fmt: skip
            manifest = replace(manifest, certificate=certificate)
        facts = {"distances": extension.distances, "changed_lists": extension.changed}
        return self.publish(directory, manifest, parents[0].manifest.build_id, facts)


def _laid_out(
    larger: OpenedIndex, addition: Addition, larger_first: bool, graph: GrowingGraph, threads: int
) -> Extended:
    """Give the tail its slots, and find entry vertices and navigation graph of the whole."""
    p, node = larger.parameters, larger.space.node
    tail = tail_order(graph, larger.order, node.nodes_per_page, node.max_degree, p.seed, threads)
    order = np.concatenate([np.arange(graph.built, dtype=np.uint32), tail + np.uint32(graph.built)])
    slots = invert(order)
    entries = nearer_entries(graph, larger.space, larger.entries, threads)
    navigation = larger.navigation
    if navigation is not None:
        navigation = grown_navigation(graph, navigation, p.navigation, slots, p.seed, threads)
    return Extended(larger, addition, larger_first, graph, tail, order, slots, entries, navigation)
