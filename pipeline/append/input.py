"""The vectors of an append: files are ingested as by a build, and checked against the index in the same pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.sources.file import Vectors
from indexmill.formats.sources.source import DEFAULT_BATCH_ROWS, VectorBatch, VectorSource
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.append.addition import Addition, check_alike, check_new_ids, column_types
from indexmill.pipeline.append.scratch import GrowingGraph
from indexmill.pipeline.generations.node_space import SCALE_SLACK
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.ingest import ingest, read_ids, read_summary
from indexmill.pipeline.kinds.common.metric import unit
from indexmill.pipeline.mill.progress import Progress

#: Rows converted at a time.
_BLOCK = 65536
#: A norm may exceed M by this share before it counts as larger: sums of one vector differ in their last digits.
_NORM_SLACK = 1e-9


def check_source(index: OpenedIndex, source: VectorSource) -> None:
    """Refuse an input whose dimension, type, ids or metadata columns are not those of `index`.

    Raises
    ------
    InputError
        Naming the first file.
    """
    schema = None if index.metadata is None else index.metadata.schema_arrow
    convert = "convert the input or build an index of its own"
    check_alike(
        index,
        source.paths[0],
        [
            ("dimension", index.dim, source.dim, convert),
            ("dtype", index.input_dtype, str(source.dtype), convert),
            ("id type", index.id_type, source.id_type, "name a fitting column with --id-column, or none"),
            ("metadata columns", column_types(schema), column_types(source.metadata_schema), convert),
        ],
    )


def read_addition(index: OpenedIndex, source: VectorSource, scratch: Path, progress: Progress) -> Addition:
    """Ingest `source` into directory `scratch`, each vector and id checked against `index`.

    Raises
    ------
    InputError
        On the first bad row, with its file and row: what a build refuses, a user id that the index has, a
        component beyond the range of its nodes, or under inner product a norm above the index's largest.
    """
    check_source(index, source)
    checked = _CheckedSource(source, index)
    metric = index.graph.metric
    ingest(checked, "cosine" if metric == "cosine" else "l2", scratch, progress)
    ids = read_ids(scratch)
    own = np.arange(source.n_vectors, dtype=np.uint32)
    check_new_ids(index, ids, checked.origins, own)
    metadata = scratch / METADATA_NAME

    def fill(graph: GrowingGraph, advance: Callable[[int], None]) -> None:
        vectors = np.load(scratch / "vectors.npy", mmap_mode="r")
        for first in range(0, len(vectors), _BLOCK):
            rows = compared(index, vectors[first : first + _BLOCK])
            graph.vectors[graph.present + first : graph.present + first + len(rows)] = rows
            advance(len(rows))

    return Addition(
        n=source.n_vectors,
        vector_ids=own,
        user_ids=ids,
        metadata=pq.ParquetFile(metadata) if metadata.exists() else None,
        fingerprint=read_summary(scratch).fingerprint,
        fill=fill,
    )


def compared(index: OpenedIndex, vectors: NDArray[Any]) -> NDArray[Any]:
    """Return ingested vectors (m, dim), of unit length under cosine, as rows that are compared in `index`."""
    if index.graph.node_format.dtype == "int8":
        return vectors.view(np.uint8) ^ np.uint8(0x80)
    rows = vectors.astype(index.space.dtype, copy=False)
    return with_added_component(rows, index.graph.max_norm) if index.graph.metric == "ip" else rows


def with_added_component(rows: NDArray[Any], max_norm: float) -> NDArray[np.float32]:
    """Append ``sqrt(M^2 - |x|^2)`` to each of `rows`, float32 (m, dim), M the index's largest norm."""
    rest = np.maximum(max_norm**2 - np.einsum("ij,ij->i", rows, rows, dtype=np.float64), 0)
    return np.hstack([rows, np.sqrt(rest).astype(np.float32)[:, None]])


class _CheckedSource:
    """A source whose batches are checked against an index as they stream by; notes where they come from."""

    def __init__(self, source: VectorSource, index: OpenedIndex) -> None:
        self._source, self._index = source, index
        self.n_vectors, self.dim, self.dtype = source.n_vectors, source.dim, source.dtype
        self.id_type, self.paths, self.metadata_schema = source.id_type, source.paths, source.metadata_schema
        self.origins: list[tuple[int, str, int]] = []

    def batches(self, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[VectorBatch]:
        """See `VectorSource.batches`."""
        for batch in self._source.batches(batch_rows):
            self.origins.append((batch.start, batch.path, batch.first_row))
            self._check(batch)
            yield batch

    def read(self, rows: NDArray[np.int64]) -> Vectors:
        """See `VectorSource.read`."""
        return self._source.read(rows)

    def _check(self, batch: VectorBatch) -> None:
        metric, space = self._index.graph.metric, self._index.space
        narrow = space.scale is not None or space.node.dtype == "float16"
        if metric != "ip" and not narrow:
            return
        check_batch(batch, metric)
        if metric == "ip":
            self._check_norms(batch)
        if narrow:
            rows = compared(self._index, unit(batch.vectors) if metric == "cosine" else batch.vectors)
            bad = np.argwhere(space.outside(rows, SCALE_SLACK))
            if len(bad):
                row, j = bad[0]
                raise InputError(
                    f"{batch.path}: row {batch.first_row + row}: component {j} is {rows[row, j]:g}; nodes of "
                    f"{self._index.path} hold {space.range_of(int(j))}; build the index again with these vectors"
                )

    def _check_norms(self, batch: VectorBatch) -> None:
        wide = batch.vectors.astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide, dtype=np.float64))
        most = self._index.graph.max_norm
        bad = np.flatnonzero(norms > most * (1 + _NORM_SLACK))
        if len(bad):
            raise InputError(
                f"{batch.path}: row {batch.first_row + bad[0]}: norm {norms[bad[0]]:g}; under inner product "
                f"{self._index.path} takes norms up to {most:g}, the largest it was built with, on which every "
                "distance in it depends; build the index again with these vectors"
            )
