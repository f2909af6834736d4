"""Search results as an Arrow table, and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from indexmill.formats.errors import ConfigError, OutputExistsError
from indexmill.formats.pagefile.atomic import atomic_write

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.reader.index import Index, RangeResult, SearchResult
    from indexmill.reader.ivf import IvfIndex
    from indexmill.reader.lsh import LshIndex
    from indexmill.reader.set import IndexSet

    AnyIndex: TypeAlias = Index | LshIndex | IvfIndex

SUFFIXES = (".parquet", ".arrow")


def results_table(index: AnyIndex | IndexSet, found: SearchResult | RangeResult) -> pa.Table:
    """Lay out results as one row a query and rank; a query that reached fewer than k vertices has fewer.

    Returns
    -------
    pyarrow.Table
        The columns of `SearchResult.to_arrow`, then the metadata columns; one that shares a name with those becomes
        ``metadata_NAME``.
    """
    import pyarrow as pa

    from indexmill.formats.index.metadata import add_metadata

    table = found.to_arrow()
    columns = dict(zip(table.column_names, table.columns, strict=True))
    add_metadata(columns, index.metadata(columns["vector_id"].to_numpy()))
    return pa.table(columns)


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
