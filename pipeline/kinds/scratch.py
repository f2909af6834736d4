"""How large the work directory of a build grows: its recipe is played through on paper, stage by stage.

The same `Mill` that runs a build decides what is made when and dropped when; only the store is one that writes down
sizes in place of files. So the prediction follows the recipe, whatever stages it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indexmill.builders.quantize.pq import N_CENTRES
from indexmill.builders.vamana.entries import n_entries
from indexmill.builders.vamana.navigation import NAVIGATION_VAMANA, navigation_size
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.graph.budget import Shape, node_format, rotation_bytes
from indexmill.pipeline.kinds.graph.memory import expected_shards
from indexmill.pipeline.kinds.graph.regions.plan import region_files
from indexmill.pipeline.kinds.graph.regions.recipe import graph_recipe
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.mill.store import StageStore

#: Rows that ids and metadata are judged by.
_SIDE_ROWS = 10_000
#: Bytes of a record's key and value in a chunk file, alone and in runs of equal keys.
_PAIR_BYTES, _RUN_PAIR_BYTES = 8, 4


@dataclass(frozen=True)
class SideColumns:
    """Bytes a row of what goes with the vectors, as stored: ids in memory and on disk, metadata."""

    ids: float = 0.0
    ids_file: float = 0.0
    metadata: float = 0.0


def stage_files(shape: Shape, side: SideColumns, memory: int) -> dict[str, int]:
    """Return the bytes that each stage's directory holds when it is finished."""
    regions = {} if shape.region_bytes is None else region_files(shape, memory)
    return _files(shape, side) | regions


def _files(shape: Shape, side: SideColumns) -> dict[str, int]:
    p, n, d = shape.parameters, shape.n, shape.dim
    node, sampled = node_format(shape), navigation_size(p.navigation, n)
    codes, graph = n * min(p.pq_bytes, d), n * 4 * (p.max_degree + 1)
    entries = n_entries(p.entries, n) * 4 * (d + 1)
    navigation = sampled * 4 * (NAVIGATION_VAMANA.max_degree + 2)
    codebook = N_CENTRES * 4 * d + rotation_bytes(shape)
    metadata = int(n * side.metadata)
    members = n if p.shard_vectors is None else int(n * (1 + p.overlap))
    cells, _ = expected_shards(shape)
    return {
        "ingest": n * shape.row_bytes + int(n * side.ids_file) + metadata,
        "sample": min(p.sample_vectors, n) * shape.row_bytes,
        "cluster": cells * 4 * (d + 3),
        "comparable": n * shape.comparable_bytes,
        "assign": members * (shape.row_bytes + _RUN_PAIR_BYTES),
        "build": graph if p.shard_vectors is None else members * (4 * p.max_degree + _PAIR_BYTES),
        "unite": graph,
        "merge": graph,
        "encode": codes + codebook,
        "order": 8 * n,
        "entries": entries,
        "navigation": navigation,
        "pack": n * (node_bytes(shape) + min(p.pq_bytes, d) + _PAIR_BYTES),
        "emit": node.n_pages(n) * (PAGE_BYTES + 4)
        + codes
        + codebook
        + entries
        + navigation
        + int(n * (4 + side.ids))
        + metadata,
        "certify": 0,  # links to what emit wrote
    }


def node_bytes(shape: Shape) -> int:
    """Return the bytes of a vertex on its way to its page: vector, neighbours, degree."""
    node = node_format(shape)
    return node.dim * node.element_dtype.itemsize + 4 * node.max_degree + 4


def needed_scratch(shape: Shape, side: SideColumns, memory: int, keep: bool) -> tuple[int, dict[str, int]]:
    """Return the most bytes that the work directory of a graph build will hold, and what each stage leaves there."""

    def recipe(mill: Mill, first: Stage, summary: InputSummary) -> Recipe:
        return graph_recipe(mill, first, summary, shape, memory)

    return played(recipe, stage_files(shape, side, memory), (shape.n, shape.dim, str(shape.dtype)), keep)


def played(
    recipe: Callable[[Mill, Stage, InputSummary], Recipe],
    sizes: dict[str, int],
    vectors: tuple[int, int, str],
    keep: bool,
) -> tuple[int, dict[str, int]]:
    """Play a build through on paper; return the most bytes that its work directory holds, and what each stage leaves.

    Parameters
    ----------
    recipe : callable
        Returns the stages after ingest.
    sizes : dict
        Bytes of each stage's files.
    vectors : tuple
        Stored vectors, their components and type.
    keep : bool
        Whether stages stay for later builds.
    """
    store = _PaperStore(sizes)
    mill = _PaperMill(store, LocalExecutor(1), Silent(), keep)
    key = store.key("ingest", 0, {}, [])
    first = Stage("ingest", key, store.path("ingest", key), (), _nothing)
    n, dim, dtype = vectors
    zeros = [0.0] * dim
    mill.make(first)
    summary = InputSummary(n, dim, dtype, key, 0.0, zeros, zeros, zeros, "none")
    mill.make(recipe(mill, first, summary).certify)
    mill.executor.close()
    return store.peak_bytes, store.finished


class _PaperMill(Mill):
    """Makes every stage at once."""

    def _run(self, stage: Stage) -> None:
        self.store.finish(stage.path)


class _PaperStore(StageStore):
    """Sizes in place of directories."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.root = Path()
        self.scratch = None
        self.peak_bytes = 0
        self.finished: dict[str, int] = {}
        self._sizes = sizes
        self._there: dict[Path, int] = {}

    def is_done(self, path: Path) -> bool:
        return path in self._there

    def finish(self, path: Path) -> None:
        stage = path.name.rpartition("-")[0]
        self.finished[stage] = self._there[path] = self._sizes[stage]
        self.check_space()

    def drop(self, path: Path) -> None:
        self._there.pop(path, None)

    def used_bytes(self) -> int:
        return sum(self._there.values())


def _nothing(directory: Path) -> None:
    """Make no file."""


def side_columns(source: VectorSource) -> SideColumns:
    """Return what ids and metadata take a row, judged by the first rows of `source`."""
    if source.id_type == "none" and source.metadata_schema is None:
        return SideColumns()
    batch = next(iter(source.batches(_SIDE_ROWS)))
    rows, ids, ids_file, metadata = len(batch.vectors), 0.0, 0, 0
    if batch.ids is not None:
        ids = (
            8.0
            if pa.types.is_integer(batch.ids.type)
            else 8 + pc.sum(pc.binary_length(batch.ids)).as_py() / rows
        )
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(sink, pa.schema([("id", batch.ids.type)]), options=options) as writer:
            writer.write_batch(pa.record_batch([batch.ids], names=["id"]))
        ids_file = sink.getvalue().size
    if batch.metadata is not None and batch.metadata.num_columns:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([batch.metadata]), sink, compression="zstd")
        metadata = sink.getvalue().size
    return SideColumns(ids, ids_file / rows, metadata / rows)
