"""Search results as an Arrow table, and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, OutputExistsError
from indexmill.formats.pagefile.atomic import atomic_write

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.reader.index import Index, RangeResult, SearchResult
    from indexmill.reader.ivf import IvfIndex
    from indexmill.reader.lsh import LshIndex

    AnyIndex: TypeAlias = Index | LshIndex | IvfIndex

SUFFIXES = (".parquet", ".arrow")


def results_table(index: AnyIndex, found: SearchResult | RangeResult) -> pa.Table:
    """Lay out results as one row a query and rank; a query that reached fewer than k vertices has fewer.

    Returns
    -------
    pyarrow.Table
        query int64, rank int32 (from 0), id in the user's type, vector_id int64, score float32, then the
        metadata columns; one that shares a name with those becomes ``metadata_NAME``.
    """
    import pyarrow as pa

    from indexmill.formats.index.metadata import add_metadata

    there = found.vector_ids.ravel() >= 0
    queries, ranks = _places(found)
    vector_ids = found.vector_ids.ravel()[there]
    columns = {
        "query": pa.array(queries[there]),
        "rank": pa.array(ranks[there]),
        "id": pa.array(found.ids.ravel()[there], type=id_type(index)),
        "vector_id": pa.array(vector_ids),
        "score": pa.array(found.scores.ravel()[there]),
    }
    add_metadata(columns, index.metadata(vector_ids))
    return pa.table(columns)


def _places(found: SearchResult | RangeResult) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Query and rank of each result, row after row."""
    from indexmill.reader.index import RangeResult

    if isinstance(found, RangeResult):
        starts = found.starts
    else:
        n_queries, k = found.vector_ids.shape
        starts = np.arange(n_queries + 1, dtype=np.int64) * k
    queries = np.repeat(np.arange(len(starts) - 1, dtype=np.int64), np.diff(starts))
    return queries, (np.arange(len(queries)) - starts[queries]).astype(np.int32)


def id_type(index: AnyIndex) -> pa.DataType:
    """Arrow type of the index's user ids."""
    import pyarrow as pa

    kinds = {"uint64": pa.uint64(), "string": pa.string(), "binary": pa.binary()}
    return kinds.get(index.native.id_type, pa.int64())


def check_result_path(path: Path, force: bool) -> None:
    """Refuse a result file before any work is done for it.

    Raises
    ------
    ConfigError
        If the suffix is unknown or the folder does not exist.
    OutputExistsError
        If the file exists and `force` is false.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"out: {path}: expected a name that ends in {' or '.join(SUFFIXES)}")
    check_writable(path, force)


def check_writable(path: Path, force: bool) -> None:
    """Refuse a file in no folder, a directory, or one that exists unless `force`.

    Raises
    ------
    ConfigError, OutputExistsError
    """
    if not path.parent.is_dir():
        raise ConfigError(f"out: {path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise OutputExistsError(f"out: {path} is a directory; name a file")
    if path.exists() and not force:
        raise OutputExistsError(f"out: {path} exists; pass --force to replace it or name another file")


def write_results(table: pa.Table, path: Path) -> None:
    """Write `table` to `path` as Parquet or as an Arrow file, by its suffix; all of it or nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic_write(path) as file:
        if path.suffix == ".parquet":
            pq.write_table(table, file, compression="zstd")
        else:
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
