"""Peak size of the work directory: the recipe of a build is played through on paper, stage by stage.

The same `Mill` that runs a build decides when a stage is made and dropped; only the store differs, which notes sizes in
place of files. So the prediction follows the recipe, whatever stages it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.shape import Shape
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.mill.stages import Mill, Stage, stages_of
from indexmill.pipeline.mill.store import StageStore

#: Rows that ids and metadata are judged by.
_SIDE_ROWS = 10_000
#: Returns the last of the stages after ingest, which the second argument is.
Last: TypeAlias = Callable[[Mill, Stage, InputSummary], Stage]


@dataclass(frozen=True)
class SideColumns:
    """Stored bytes a row of the columns beside the vectors: ids in memory and on disk, metadata."""

    ids: float = 0.0
    ids_file: float = 0.0
    metadata: float = 0.0


def played(
    last: Last,
    sizes: Mapping[str, int],
    shape: Shape,
    keep: bool,
    freed: Mapping[str, int] | None = None,
) -> tuple[int, dict[str, int]]:
    """Play a build through on paper; return the most bytes of its work directory, and the bytes of each stage.

    Parameters
    ----------
    last : callable
        Returns the last of the stages after ingest.
    sizes : mapping
        Bytes of each stage's files when it is finished.
    freed : mapping, optional
        Bytes of files that a stage has only while it runs; by default none.
    shape : Shape
    keep : bool
        Whether stages stay for later builds.
    """
    store = _PaperStore(sizes, freed or {})
    _play(last, store, shape, keep)
    return store.peak_bytes, store.finished


def inputs_of(last: Last, sizes: Mapping[str, int], shape: Shape) -> dict[str, tuple[str, ...]]:
    """Return the stages of a build in the order they are made, each with the stages whose files it reads."""
    made = _play(last, _PaperStore(sizes, {}), shape, keep=True)
    return {stage.name: tuple(needed.name for needed in stage.inputs) for stage in stages_of(made)}


def _play(last: Last, store: _PaperStore, shape: Shape, keep: bool) -> Stage:
    """Return the last stage, made."""
    mill = _PaperMill(store, LocalExecutor(1), Silent(), keep)
    key = store.key("ingest", 0, {}, [])
    first = Stage("ingest", key, store.path("ingest", key), (), _nothing)
    zeros = [0.0] * shape.dim
    mill.make(first)
    summary = InputSummary(shape.n, shape.dim, str(shape.dtype), key, 0.0, zeros, zeros, zeros, "none")
    made = last(mill, first, summary)
    mill.make(made)
    mill.executor.close()
    return made


class _PaperMill(Mill):
    """Makes every stage at once."""

    def _run(self, stage: Stage) -> None:
        self.store.finish(stage.path)


class _PaperStore(StageStore):
    """Sizes in place of directories."""

    def __init__(self, sizes: Mapping[str, int], freed: Mapping[str, int]) -> None:
        self.root = Path()
        self.scratch = None
        self.peak_bytes = 0
        self.finished: dict[str, int] = {}
        self._sizes, self._freed = sizes, freed
        self._there: dict[Path, int] = {}

    def is_done(self, path: Path) -> bool:
        return path in self._there

    def finish(self, path: Path) -> None:
        stage = path.name.rpartition("-")[0]
        self.finished[stage] = size = self._sizes[stage]
        self._there[path] = size + self._freed.get(stage, 0)
        self.check_space()
        self._there[path] = size

    def drop(self, path: Path) -> None:
        self._there.pop(path, None)

    def used_bytes(self) -> int:
        return sum(self._there.values())


def _nothing(directory: Path) -> None:
    """Make no file."""


def side_columns(source: VectorSource) -> SideColumns:
    """Return the bytes a row of ids and metadata, judged by the first rows of `source`."""
    if source.id_type == "none" and source.metadata_schema is None:
        return SideColumns()
    batch = next(iter(source.batches(_SIDE_ROWS)))
    rows, ids, ids_file, metadata = len(batch.vectors), 0.0, 0, 0
    if batch.ids is not None:
        is_number = pa.types.is_integer(batch.ids.type)
        ids = 8.0 if is_number else 8 + pc.sum(pc.binary_length(batch.ids)).as_py() / rows
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
