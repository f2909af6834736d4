"""An index laid out in the scratch directory: written, with edges pruned for its pages, and certified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.index.manifest import Manifest, write_manifest
from indexmill.layout.order import Adjacency
from indexmill.pipeline.execution.allocator import give_back
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.kinds.graph.certify import measure
from indexmill.pipeline.relayout.edges import judged, prune_edges
from indexmill.pipeline.relayout.fitting import Fitted
from indexmill.pipeline.relayout.memory import certificate_threads
from indexmill.pipeline.relayout.record import PRUNED, layout_record, manifest_of
from indexmill.pipeline.relayout.rewrite import write_files
from indexmill.pipeline.relayout.tuning import GivenQueries
from indexmill.pipeline.relayout.unpacked import UnpackedIndex

#: Directories of the index to publish, and of the one it is judged against.
INDEX, _UNPRUNED = "index", "unpruned"


@dataclass(frozen=True)
class Judging:
    """Judgement of pruned edges: queries of the caller, or a number of index vectors; and the work of pruning."""

    given: GivenQueries | None
    queries: int
    work_limit: int | None


def measured(run: GenerationRun, opened: OpenedIndex, graph: Adjacency, fitted: Fitted) -> dict[str, Any]:
    """Return key ``layout`` of the manifest."""
    give_back()
    with run.stage("measure", 1, "tasks") as advance:
        layout = layout_record(opened, graph, fitted)
        advance(1)
    return layout


def write_index(
    run: GenerationRun,
    opened: OpenedIndex,
    vector_ids: NDArray[np.uint32],
    fitted: Fitted,
    layout: Mapping[str, Any],
    scratch: Path,
    lists: Adjacency | None = None,
    name: str = INDEX,
) -> Manifest:
    """Write the index laid out as `fitted` says to a directory of `scratch`; return its manifest, not yet measured."""
    give_back()
    directory = scratch / name
    directory.mkdir()
    with run.stage("emit", 2 * opened.n, "nodes") as advance:
        build_id, files = write_files(
            opened, vector_ids, fitted.order, scratch, directory, run.options.memory, advance, lists
        )
    return manifest_of(opened, layout, build_id, files, lists)


def write_pruned(
    run: GenerationRun,
    opened: OpenedIndex,
    unpacked: UnpackedIndex,
    fitted: Fitted,
    judging: Judging,
    scratch: Path,
) -> tuple[Manifest, int]:
    """Write the index with neighbour lists chosen for the pages of `fitted`.

    Returns
    -------
    manifest : Manifest
    work : int
        Units that pruning took.

    Raises
    ------
    NothingToGain
        If the reader does not read fewer pages.
    """
    assert unpacked.points is not None
    ids, threads = unpacked.vector_ids, run.options.workers
    medoid = int(ids[opened.entries.medoid])
    with run.stage("prune", 1, "tasks") as advance:
        pruned = prune_edges(
            opened,
            unpacked.graph,
            unpacked.points,
            medoid,
            fitted.order,
            judging.work_limit,
            threads,
            scratch,
        )
        advance(1)
    layout = measured(run, opened, pruned.graph, fitted)
    before, after = opened.path, scratch / INDEX
    if not np.array_equal(fitted.order, ids):
        before = scratch / _UNPRUNED
        write_manifest(before, write_index(run, opened, ids, fitted, layout, scratch, name=_UNPRUNED))
    manifest = write_index(run, opened, ids, fitted, layout, scratch, pruned.graph)
    write_manifest(after, manifest)
    with run.stage("judge", 2, "indexes") as advance:
        saved = judged(
            opened, unpacked.points, judging.given, judging.queries, before, after, threads, advance
        )
    return replace(manifest, layout={**layout, PRUNED: pruned.record | saved}), pruned.record["work"]


def certified(
    run: GenerationRun, opened: OpenedIndex, manifest: Manifest, directory: Path, points: NDArray[Any]
) -> Manifest:
    """Measure what was written as a build does, against `points`, compared rows by vector id."""
    give_back()
    with run.stage("certify", 1, "tasks") as advance:
        write_manifest(directory, manifest)
        seed, as_queries = opened.parameters.seed, opened.space.as_given
        threads = certificate_threads(opened, run.options.memory, run.options.workers)
        certificate = measure(str(directory), points, seed, threads, as_queries=as_queries)
        advance(1)
    return replace(manifest, certificate=certificate)
