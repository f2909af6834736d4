"""The vectors of an append: files are ingested as by a build, and checked against the index in the same pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.sources.source import VectorBatch, VectorSource
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.append.addition import Addition, Part, check_new_ids
from indexmill.pipeline.append.checked import CheckedSource, check_norms, check_range, check_source
from indexmill.pipeline.append.scratch import GrowingGraph
from indexmill.pipeline.generations.node_space import SCALE_SLACK
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.ingest import ingest, read_ids, read_summary
from indexmill.pipeline.kinds.common.metric import unit, with_added_component
from indexmill.pipeline.mill.progress import Progress

#: Rows converted at a time.
_BLOCK = 65536


def read_addition(
    index: OpenedIndex, source: VectorSource, scratch: Path, progress: Progress, replace: bool = False
) -> Addition:
    """Ingest `source` into directory `scratch`, each vector and id checked against `index`.

    With `replace`, user ids that the index has are taken, too.

    Raises
    ------
    InputError
        On the first bad row, with its file and row: what a build refuses, a user id that the index has, a
        component beyond the range of its nodes, or under inner product a norm above the index's largest.
    """
    check_source(index, source)
    checked = _checked(index, source)
    metric = index.graph.metric
    ingest(checked, "cosine" if metric == "cosine" else "l2", scratch, progress)
    ids = read_ids(scratch)
    own = np.arange(source.n_vectors, dtype=np.uint32)
    if not replace:
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
        parts=(
            Part(
                source.n_vectors,
                pq.ParquetFile(metadata) if metadata.exists() else None,
                read_summary(scratch).fingerprint,
            ),
        ),
        fill=fill,
    )


def compared(index: OpenedIndex, vectors: NDArray[Any]) -> NDArray[Any]:
    """Return ingested vectors (m, dim), of unit length under cosine, as rows that are compared in `index`."""
    if index.graph.node_format.dtype == "int8":
        return vectors.view(np.uint8) ^ np.uint8(0x80)
    rows = vectors.astype(index.space.dtype, copy=False)
    return with_added_component(rows, index.graph.max_norm) if index.graph.metric == "ip" else rows


def _checked(index: OpenedIndex, source: VectorSource) -> CheckedSource:
    """Return `source`, with the vectors compared with what `index` can hold as they stream by."""
    metric, space = index.graph.metric, index.space
    narrow = space.scale is not None or space.node.dtype == "float16"

    def check(batch: VectorBatch) -> None:
        check_batch(batch, metric)
        if metric == "ip":
            check_norms(batch, index.name, index.graph.max_norm)
        if narrow:
            rows = compared(index, unit(batch.vectors) if metric == "cosine" else batch.vectors)
            check_range(batch, rows, space.outside(rows, SCALE_SLACK), index.name, space.range_of)

    return CheckedSource(source, check if metric == "ip" or narrow else None)
