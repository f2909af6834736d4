"""Stage *ingest*: one streaming pass that checks the input and writes it in one form.

Outputs: ``vectors.npy`` (n, dim) in vector-id order, in the type the graph is built on; ``ids.arrow`` and
``metadata.parquet`` if the input has them; ``input.json`` with shape, statistics and the fingerprint.

Metrics (see docs/formats/graph.md): cosine stores float32 vectors of unit length; inner product stores
float32 vectors with the component ``sqrt(M^2 - |x|^2)`` appended, so that both are searched by Euclidean
distance (Bachrach et al., 2014).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.pagefile.atomic import copy_file
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.formats.sources.source import VectorBatch, VectorSource
from indexmill.formats.sources.stream import StreamedSource
from indexmill.formats.sources.validate import check_batch, check_unique_ids
from indexmill.pipeline.kinds.common.metric import added_component, unit
from indexmill.pipeline.kinds.common.shared import Shared
from indexmill.pipeline.mill.progress import Progress

VERSION = 4
#: Bytes of a batch of vectors.
BATCH_BYTES = 8 << 20
#: Slots are u32 inside one graph.
MAX_VECTORS = 2**32 - 2


@dataclass(frozen=True)
class InputSummary:
    """Facts of the input that ingest found.

    Attributes
    ----------
    n_vectors, dim : int
        As read; inner product stores one dimension more.
    dtype : str
        Type of the input's components.
    fingerprint : str
        SHA-256 of stored vectors, ids and metadata.
    max_norm : float
        M, the largest Euclidean norm (metric ip; else 0).
    mean, minimum, maximum : list of float
        Of each stored component; of a part of a set, `minimum` and `maximum` are those of the set.
    id_type : str
    codes : str or None
        Of a part of a set, the digest of what its parts have in common.
    """

    n_vectors: int
    dim: int
    dtype: str
    fingerprint: str
    max_norm: float
    mean: list[float]
    minimum: list[float]
    maximum: list[float]
    id_type: str
    codes: str | None = None


def check_metric(source: VectorSource, metric: str) -> None:
    """Refuse inner product on integers, and inputs too large for one graph.

    Raises
    ------
    ConfigError, InputError
    """
    if metric == "ip" and source.dtype.kind != "f":
        raise ConfigError(
            f"metric: ip needs float vectors, but {source.paths[0]} holds {source.dtype}; use l2 or convert the input"
        )
    if source.n_vectors > MAX_VECTORS:
        raise InputError(
            f"{source.n_vectors:,} vectors: one index holds at most {MAX_VECTORS:,}; split the input"
        )


def batch_rows(dim: int) -> int:
    """Return the rows of a batch; part of the fingerprint where there are ids or metadata."""
    return max(1, BATCH_BYTES // (4 * dim))


def stored_dtype(dtype: np.dtype[Any], metric: str) -> np.dtype[Any]:
    """Return the type vectors are stored in: as they are, or float32 where the metric changes them."""
    return dtype if metric == "l2" else np.dtype(np.float32)


def signature(source: VectorSource) -> list[str]:
    """Return text that tells one input from another, without reading it where that is possible.

    Local files are told by path, size and time of change, streams by what was hashed when they were copied; anything
    else is read and hashed.
    """
    if isinstance(source, StreamedSource):
        return [source.digest]
    if all(os.path.isfile(path) for path in source.paths):
        stats = [(os.path.abspath(path), os.stat(path)) for path in source.paths]
        return [f"{path} {s.st_size} {s.st_mtime_ns}" for path, s in stats]
    digest = hashlib.sha256()
    for batch in source.batches(batch_rows(source.dim)):
        digest.update(batch.vectors.data)
        if batch.ids is not None:
            _hash_arrow(digest, pa.record_batch([batch.ids], names=["id"]))
        if batch.metadata is not None:
            _hash_arrow(digest, batch.metadata)
    return [f"{source.n_vectors} {source.dim} {source.dtype}", digest.hexdigest()]


def ingest(
    source: VectorSource, metric: str, out: Path, progress: Progress, unit_slack: float = 0.0,
    shared: Shared | None = None,
) -> None:  # fmt: skip
    """Read, check and write all of `source` into directory `out`; `unit_slack` is that of `metric.unit`.

    Parameters
    ----------
    shared : Shared, optional
        What the set has in common of which the input is a part.

    Raises
    ------
    InputError
        On the first bad row, with its file and row.
    """
    check_metric(source, metric)
    n, dim = source.n_vectors, source.dim
    dtype = stored_dtype(source.dtype, metric)
    vectors = create_npy(out / "vectors.npy", dtype, (n, dim + 1 if metric == "ip" else dim))
    squared_norms = np.zeros(n, np.float64) if metric == "ip" else None
    rest = _SideColumns(source, out)
    for batch in source.batches(batch_rows(source.dim)):
        check_batch(batch, metric)
        rows = slice(batch.start, batch.start + len(batch.vectors))
        vectors[rows, :dim] = unit(batch.vectors, unit_slack) if metric == "cosine" else batch.vectors
        if squared_norms is not None:
            own = vectors[rows, :dim]
            squared_norms[rows] = np.einsum("ij,ij->i", own, own, dtype=np.float64)
        rest.write(batch)
        progress.advance(len(batch.vectors))
    rest.close()
    max_norm = 0.0
    if squared_norms is not None:
        largest = float(squared_norms.max()) if shared is None else shared.range.squared_norm
        max_norm = float(np.sqrt(largest))
        vectors[:, dim] = added_component(squared_norms, largest)
    vectors.flush()
    summary = _summary(source, vectors, rest, max_norm)
    if shared is not None:
        minimum, maximum, _ = shared.range
        summary = replace(summary, minimum=minimum, maximum=maximum, codes=shared.digest)
        for file in shared.files:
            copy_file(file, out / file.name)
    write_summary(summary, out)


def _summary(
    source: VectorSource, vectors: NDArray[Any], rest: _SideColumns, max_norm: float
) -> InputSummary:
    digest = hashlib.sha256(f"{vectors.dtype} {vectors.shape}".encode())
    total = np.zeros(vectors.shape[1], np.float64)
    low, high = np.full(vectors.shape[1], np.inf), np.full(vectors.shape[1], -np.inf)
    step = batch_rows(source.dim)
    for first in range(0, len(vectors), step):
        block = np.ascontiguousarray(vectors[first : first + step])
        digest.update(block.data)
        total += block.sum(axis=0, dtype=np.float64)
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
    for side in rest.digests():
        digest.update(side)
    return InputSummary(
        n_vectors=source.n_vectors,
        dim=source.dim,
        dtype=str(source.dtype),
        fingerprint=digest.hexdigest(),
        max_norm=max_norm,
        mean=(total / len(vectors)).tolist(),
        minimum=low.tolist(),
        maximum=high.tolist(),
        id_type=source.id_type,
    )


def write_summary(summary: InputSummary, directory: Path) -> None:
    """Write ``input.json``."""
    (directory / "input.json").write_text(json.dumps(asdict(summary)))


def read_summary(directory: Path) -> InputSummary:
    """Read what `ingest` wrote to ``input.json``."""
    return InputSummary(**json.loads((directory / "input.json").read_text()))


def read_ids(directory: Path) -> pa.Array | None:
    """Return the user ids in vector-id order, or None if the input had none."""
    path = directory / "ids.arrow"
    if not path.exists():
        return None
    with pa.OSFile(str(path)) as file:
        ids = pa.ipc.open_file(file).read_all().column("id")
    # past 2 GiB, offsets need 64 bits
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return ids.cast(wide.get(ids.type, ids.type)).combine_chunks()


class _SideColumns:
    """Ids and metadata, written as they stream by; ids are kept to find duplicates."""

    def __init__(self, source: VectorSource, out: Path) -> None:
        self._source = source
        self._hashes = [hashlib.sha256(), hashlib.sha256()]
        self._ids: list[pa.Array] = []
        self._origins: list[tuple[int, str, int]] = []
        self._out = out
        schema = source.metadata_schema
        self._metadata = None
        if schema is not None and len(schema):
            self._metadata = pq.ParquetWriter(out / METADATA_NAME, schema, compression="zstd")

    def write(self, batch: VectorBatch) -> None:
        if batch.ids is not None:
            self._ids.append(batch.ids)
            self._origins.append((batch.start, batch.path, batch.first_row))
            _hash_arrow(self._hashes[0], pa.record_batch([batch.ids], names=["id"]))
        if self._metadata is not None and batch.metadata is not None:
            self._metadata.write_batch(batch.metadata)
            _hash_arrow(self._hashes[1], batch.metadata)

    def close(self) -> None:
        if self._metadata is not None:
            self._metadata.close()
        if not self._ids:
            return
        ids = pa.chunked_array(self._ids)
        check_unique_ids(ids, self._origins)
        table = pa.table({"id": ids})
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            pa.OSFile(str(self._out / "ids.arrow"), "w") as file,
            pa.ipc.new_file(file, table.schema, options=options) as w,
        ):
            w.write_table(table)

    def digests(self) -> list[bytes]:
        return [h.digest() for h in self._hashes]


def _hash_arrow(digest: Any, batch: pa.RecordBatch) -> None:
    """Feed a batch's values to a hash, whatever slice of larger buffers it is."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    digest.update(sink.getvalue())
