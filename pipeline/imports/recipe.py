"""The stages of an import: those of a build, with the other program's results in the place of some."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from indexmill.formats.imports.index import ImportedIndex
from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.imports import tasks
from indexmill.pipeline.kinds.common import cluster
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.graph.recipe import GraphRecipe
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.mill.stages import Mill, Stage


@dataclass(frozen=True)
class Origin:
    """The index that is imported.

    Attributes
    ----------
    index : ImportedIndex
    files : list of dict
        ``name``, ``bytes`` and ``sha256`` of each of its files.
    repair : bool
        Whether vertices that cannot be reached are linked.
    """

    index: ImportedIndex
    files: list[dict[str, Any]]
    repair: bool


class ImportRecipe(GraphRecipe):
    """The web of stages behind an imported index; see `GraphRecipe`."""

    def __init__(
        self, mill: Mill, ingest: Stage, summary: InputSummary, shape: GraphShape, memory: int, origin: Origin
    ) -> None:
        self.origin = origin
        self._found: dict[str, Any] = {}
        super().__init__(mill, ingest, summary, shape, memory)

    @property
    def _digests(self) -> list[str]:
        return [file["sha256"] for file in self.origin.files]

    def _cluster(self) -> Stage:
        medoid = self.origin.index.entry
        if medoid is None:
            return super()._cluster()
        return self._call(
            "cluster", cluster.CLUSTER_VERSION, {"medoid": medoid}, [self.ingest],
            lambda: (tasks.medoid_task, medoid),
        )  # fmt: skip

    def _build(self) -> Stage:
        what = {"files": self._digests, "R": self.p.max_degree, "repair": self.origin.repair}
        return self._call(
            "build", tasks.GRAPH_VERSION, what, [self.ingest, self.cluster], self._graph_job,
            counts=self.by_vector,
        )  # fmt: skip

    def _graph_job(self) -> tuple[Any, ...]:
        entry = cluster.load_medoid(self.mill.read(self.cluster))
        index, repair = self.origin.index, self.origin.repair
        return (
            tasks.graph_task, index, self.vectors, self.p.max_degree, entry, self.p.build_list_size, repair,
        )  # fmt: skip

    def _encode(self) -> Stage:
        codes = self.origin.index.codes
        if codes is None:
            return super()._encode()
        return self._call(
            "encode", tasks.CODES_VERSION, {"files": self._digests}, [self.ingest],
            lambda: (tasks.codes_task, codes, self.vectors), counts=self.by_vector,
        )  # fmt: skip

    def _entries(self) -> Stage:
        entries = self.origin.index.entries
        if entries is None:
            return super()._entries()
        return self._call(
            "entries", tasks.CODES_VERSION, {"files": self._digests}, [self.graph],
            lambda: (tasks.entries_task, entries),
        )  # fmt: skip

    def manifest(self) -> Manifest:
        """Return what the manifest says of the emitted files, with where the graph comes from."""
        made = super().manifest()
        index = self.origin.index
        imported = {
            "from": index.kind,
            "files": self.origin.files,
            "codes": "kept" if index.codes is not None else f"trained: {index.no_codes}",
            "entries": "kept" if index.entries is not None else "computed",
            **self._found,
        }
        return replace(made, input={**made.input, "imported": imported})

    def make_graph(self) -> dict[str, Any]:
        """Make the graph and return what was found about it, which `manifest` needs and no later stage keeps."""
        self._found = tasks.load_facts(self.mill.make(self.graph))
        return self._found
