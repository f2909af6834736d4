"""Vectors that are added to lists or tables: ingested, checked, and put into the form that the index stores."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.formats.sources.source import VectorBatch, VectorSource
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.append.addition import Extendable, check_new_ids
from indexmill.pipeline.append.checked import CheckedSource, check_norms
from indexmill.pipeline.kinds.common.ingest import ingest, read_ids, read_summary
from indexmill.pipeline.kinds.common.metric import unit, with_added_component
from indexmill.pipeline.mill.progress import Progress

#: Rows put into their form at a time.
_BLOCK = 8192


class StoredForm(NamedTuple):
    """How an index stores vectors: its metric, the largest norm under ip, and the dimensions of a stored vector."""

    metric: str
    max_norm: float
    dim: int

    def of(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return ingested vectors (m, dim), of unit length under cosine, as they are stored."""
        if self.metric == "ip":
            return with_added_component(vectors.astype(np.float32, copy=False), self.max_norm)
        return vectors


@dataclass(frozen=True)
class NewVectors:
    """Vectors to be added, in the order of the input.

    Attributes
    ----------
    stored : array, shape (m, dim)
        As an index stores them; may be mapped.
    user_ids : pyarrow Array or None
    metadata : pyarrow ParquetFile or None
    fingerprint : str
        64 hex digits that stand for the vectors, ids and metadata.
    origins : list of (first vector, path, row of it)
        Where they come from.
    """

    stored: NDArray[Any]
    user_ids: pa.Array | None
    metadata: pq.ParquetFile | None
    fingerprint: str
    origins: list[tuple[int, str, int]]

    def place_of(self, vector: int) -> str:
        """Return the file and the row of a vector, as errors name them."""
        first, path, row = self.origins[bisect_right(self.origins, vector, key=lambda origin: origin[0]) - 1]
        return f"{path}: row {row + vector - first}"


def read_vectors(
    index: Extendable, form: StoredForm, source: VectorSource, scratch: Path, progress: Progress, replace: bool,
    check_form: Callable[[VectorBatch, NDArray[Any]], None] | None = None,
) -> NewVectors:  # fmt: skip
    """Ingest `source` into directory `scratch`, each vector and id checked against `index`.

    Parameters
    ----------
    check_form : callable, optional
        Refuses vectors of a batch by what would be stored of them.

    Raises
    ------
    InputError
        On the first bad row, with its file and row: what a build refuses, a user id that the index has unless
        `replace`, what `check_form` refuses, or under inner product a norm above the index's largest.
    """

    def check(batch: VectorBatch) -> None:
        check_batch(batch, form.metric)
        if form.metric == "ip":
            check_norms(batch, index.name, form.max_norm)
        if check_form is not None:
            check_form(batch, form.of(unit(batch.vectors) if form.metric == "cosine" else batch.vectors))

    checked = CheckedSource(source, check if form.metric == "ip" or check_form is not None else None)
    ingest(checked, "cosine" if form.metric == "cosine" else "l2", scratch, progress)
    ids = read_ids(scratch)
    if not replace:
        check_new_ids(index, ids, checked.origins, np.arange(source.n_vectors, dtype=np.uint32))
    stored = np.load(scratch / "vectors.npy", mmap_mode="r")
    if form.metric == "ip":
        longer = create_npy(scratch / "stored.npy", np.dtype(np.float32), (len(stored), form.dim))
        for first in range(0, len(stored), _BLOCK):
            longer[first : first + _BLOCK] = form.of(stored[first : first + _BLOCK])
        stored = longer
    metadata = scratch / METADATA_NAME
    table = pq.ParquetFile(metadata) if metadata.exists() else None
    return NewVectors(stored, ids, table, read_summary(scratch).fingerprint, checked.origins)
