"""Append and merge: a new generation of an index, at a cost in distances proportional to what is added.

The larger index is unpacked in slot order into memory-mapped arrays, the new vectors are inserted as a build
inserts them, and all files are written anew, front to back. Old vectors keep their bytes, codes and vector ids,
and those of the last full build their slots. Everything is prepared beside the output, so a killed run leaves
the index as it was and the next one starts over.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.builders.extend import Extension, extend_graph
from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.manifest import MANIFEST_NAME, Manifest, parse_manifest, write_manifest
from indexmill.formats.source import VectorSource
from indexmill.layout.order import invert
from indexmill.pipeline.certify import measure
from indexmill.pipeline.extend_addition import Addition
from indexmill.pipeline.extend_files import Extended, write_files
from indexmill.pipeline.extend_index import OpenedIndex
from indexmill.pipeline.extend_input import check_source, read_addition
from indexmill.pipeline.extend_manifest import manifest_of, run_record
from indexmill.pipeline.extend_merge import index_addition
from indexmill.pipeline.extend_parts import grown_navigation, nearer_entries, tail_order
from indexmill.pipeline.extend_scratch import GrowingGraph, fill_tail, new_graph, unpack
from indexmill.pipeline.extend_work import check_memory, scratch_beside
from indexmill.pipeline.ingest import MAX_VECTORS
from indexmill.pipeline.memory import PeakMemory
from indexmill.pipeline.progress import Progress, Silent
from indexmill.pipeline.publish import check_output, publish
from indexmill.pipeline.spec import DEFAULT_MEMORY


@dataclass(frozen=True)
class ExtendOptions:
    """Where the result goes and what it may take; none of it reaches the bytes.

    Attributes
    ----------
    out : path, optional
        By default the (first) index, which is replaced by its next generation.
    memory : int
        Bytes beside the page cache.
    workers : int
        Threads.
    force : bool
        Whether another index at `out` may be replaced, and indexes merged that have vectors in common.
    """

    out: str | os.PathLike[str] | None = None
    memory: int = DEFAULT_MEMORY
    workers: int = 2
    force: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 1024:
            raise ConfigError(f"workers: expected 1 to 1024, got {self.workers}")
        if self.memory < 1:
            raise ConfigError(f"memory: expected a positive number of bytes, got {self.memory}")


def run_append(
    index: str | os.PathLike[str],
    open_more: Callable[[Sequence[str]], VectorSource],
    options: ExtendOptions,
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
    options: ExtendOptions,
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
        larger, smaller = (one, two) if one.n >= two.n else (two, one)
        _check_size(larger, smaller.n)
        addition = index_addition(larger, smaller, options.force)
        check_memory(options.memory, larger, smaller.n)
        return run.extend(larger, addition, (one, two), scratch)


def _check_size(larger: OpenedIndex, added: int) -> None:
    if larger.n + added > MAX_VECTORS:
        raise InputError(
            f"{larger.path}: {larger.n:,} vectors and {added:,} more; one index holds at most {MAX_VECTORS:,}"
        )


class _Run:
    """One append or merge: its output, its stages and what they took."""

    def __init__(
        self, index: str | os.PathLike[str], options: ExtendOptions, progress: Progress | None
    ) -> None:
        self.options = options
        self.progress = progress or Silent()
        self.seconds: dict[str, float] = {}
        self.memory = PeakMemory()
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        replaced = os.path.realpath(index)
        self.out = Path(os.path.realpath(index if options.out is None else options.out))
        self.in_place = str(self.out) == replaced

    @contextmanager
    def working(self) -> Iterator[Path]:
        """Take the output and yield a scratch directory beside it; BLAS runs on one thread, for equal bytes."""
        with self.memory, threadpool_limits(1), scratch_beside(self.out) as scratch:
            check_output(self.out, self.options.force or self.in_place)
            yield scratch

    @contextmanager
    def stage(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """Time and show a stage; yields what counts its steps."""
        begun = time.perf_counter()
        self.progress.start(name, total, unit)
        yield self.progress.advance
        self.seconds[name] = time.perf_counter() - begun
        self.progress.finish(f"{self.seconds[name]:.1f} s")

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
        self._publish(directory, manifest, parents, extension)
        published: dict[str, Any] = json.loads((self.out / MANIFEST_NAME).read_text())
        return published

    def _publish(
        self,
        directory: Path,
        manifest: Manifest,
        parents: tuple[OpenedIndex, ...],
        extension: Extension,
    ) -> None:
        how = self.options
        record = run_record(self.started, self.seconds, how.workers, how.memory, self.memory.bytes)
        record["distances"] = extension.distances
        record["changed_lists"] = extension.changed
        with self.stage("publish", len(manifest.files), "files") as advance:
            if self.in_place and parse_manifest(self.out).build_id != parents[0].manifest.build_id:
                raise ConfigError(
                    f"out: {self.out} was replaced meanwhile; run again to extend what is there now"
                )
            publish(directory, manifest, record, self.out, self.options.force or self.in_place, keep=False)
            advance(len(manifest.files))


def _laid_out(
    larger: OpenedIndex, addition: Addition, larger_first: bool, graph: GrowingGraph, threads: int
) -> Extended:
    """Give the tail its slots, and find entry vertices and navigation graph of the whole."""
    p, node = larger.parameters, larger.space.node
    tail = tail_order(graph, p.order, node.nodes_per_page, p.seed)
    order = np.concatenate([np.arange(graph.built, dtype=np.uint32), tail + np.uint32(graph.built)])
    slots = invert(order)
    entries = nearer_entries(graph, larger.space, larger.entries, threads)
    navigation = larger.navigation
    if navigation is not None:
        navigation = grown_navigation(graph, navigation, p.navigation, slots, p.seed, threads)
    return Extended(larger, addition, larger_first, graph, tail, order, slots, entries, navigation)
