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
from indexmill.pipeline.relayout.edges import Judging, judged, prune_edges
from indexmill.pipeline.relayout.fitting import Fitted
from indexmill.pipeline.relayout.memory import certificate_threads
from indexmill.pipeline.relayout.record import PRUNED, layout_record, manifest_of
from indexmill.pipeline.relayout.rewrite import Renewed, Rewrite
from indexmill.pipeline.relayout.unpacked import UnpackedIndex

#: Directory of the index that pruned edges are judged against.
_UNPRUNED = "unpruned"


@dataclass(frozen=True)
class Writing:
    """Writes an index to directories of the scratch directory, laid out again.

    Attributes
    ----------
    run : GenerationRun
    opened : OpenedIndex
    vector_ids : uint32 array, shape (n,)
        Vector id in each slot of `opened`.
    scratch : Path
    """

    run: GenerationRun
    opened: OpenedIndex
    vector_ids: NDArray[np.uint32]
    scratch: Path

    @property
    def directory(self) -> Path:
        """The index to publish."""
        return self.scratch / "index"

    def measured(self, graph: Adjacency, fitted: Fitted) -> dict[str, Any]:
        """Return key ``layout`` of the manifest."""
        give_back()
        with self.run.task("measure"):
            return layout_record(self.opened, graph, fitted, self.run.options.workers)

    def write(
        self, fitted: Fitted, layout: Mapping[str, Any], lists: Adjacency | None = None, name: str = "index"
    ) -> Manifest:
        """Write the index as `fitted` says to directory `name`; return its manifest, not yet measured."""
        give_back()
        directory = self.scratch / name
        directory.mkdir()
        rewrite = Rewrite(self.opened, self.vector_ids, fitted.order, self.scratch, self.run.options.memory)
        with self.run.stage("emit", 2 * self.opened.n, "nodes") as advance:
            build_id, files = rewrite.write(directory, advance, None if lists is None else Renewed(lists))
        return manifest_of(self.opened, layout, build_id, files, lists)

    def beside(self, fitted: Fitted, name: str) -> Path:
        """Return an index in the order `fitted`, to be judged: the present one, or one that is written to `name`."""
        if np.array_equal(fitted.order, self.vector_ids):
            return self.opened.path
        write_manifest(self.scratch / name, self.write(fitted, self.opened.manifest.layout, name=name))
        return self.scratch / name

    def write_pruned(self, unpacked: UnpackedIndex, fitted: Fitted, judging: Judging) -> tuple[Manifest, int]:
        """Write the index with neighbour lists chosen for the pages of `fitted`.

        Returns
        -------
        manifest : Manifest
        work : int
            Units that pruning took.

        Raises
        ------
        IndexReplaced
            If it is judged against the index itself, and another one has taken its place.
        NothingToGain
            If the reader does not read fewer pages.
        """
        assert unpacked.points is not None
        run, opened = self.run, self.opened
        with run.task("prune"):
            pruned = prune_edges(
                opened, unpacked, fitted.order, judging.work_limit, run.options.workers, self.scratch
            )
        layout = self.measured(pruned.graph, fitted)
        before = self.beside(fitted, _UNPRUNED)
        manifest = self.write(fitted, layout, pruned.graph)
        write_manifest(self.directory, manifest)
        with run.stage("judge", 2, "indexes") as advance:
            saved = judged(opened, unpacked.points, judging, before, self.directory, run, advance)
        return replace(manifest, layout={**layout, PRUNED: pruned.record | saved}), pruned.record["work"]

    def certified(self, manifest: Manifest, points: NDArray[Any]) -> Manifest:
        """Measure what was written as a build does, against `points`, compared rows by vector id."""
        give_back()
        opened, options = self.opened, self.run.options
        threads = certificate_threads(opened, options.memory, options.workers)
        with self.run.task("certify"):
            write_manifest(self.directory, manifest)
            certificate = measure(
                str(self.directory), points, opened.parameters.seed, threads, as_queries=opened.space.as_given
            )
        return replace(manifest, certificate=certificate)
