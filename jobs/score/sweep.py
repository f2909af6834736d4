"""Sweeping one index over search list sizes, and the sweep as a table on disk."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import local_path
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.jobs.score.graph import Setting, score
from indexmill.jobs.score.queries import QuerySet

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: List sizes of a sweep, as multiples of k but at least of ten: each costs about a third more than the one before.
FACTORS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24)
#: Queries that each setting answers before it is measured.
WARM_UP_QUERIES = 50
TABLE_SUFFIXES = (".csv", ".parquet")


def default_sizes(k: int) -> list[int]:
    """List sizes of a sweep for recall@k: about geometric, from max(k, 10) to 24 times that."""
    return [round(factor * max(k, 10)) for factor in FACTORS]


def run_sweep(
    index: Index,
    queries: QuerySet,
    settings: Sequence[Setting],
    sizes: Sequence[int],
    repeat: int = 1,
    tick: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Score every setting at every size; rows by setting, then by size as given; `tick` follows each of them.

    The settings take turns at each size, so that a machine that slows down slows all of them; each has answered
    some queries before the first one counts.
    """
    for setting in settings:
        score(index, queries.part(first=WARM_UP_QUERIES), sizes[0], setting)
    rows: list[list[dict[str, Any]]] = [[] for _ in settings]
    for size in sizes:
        for setting, curve in zip(settings, rows, strict=True):
            curve.append(score(index, queries, size, setting, repeat))
            tick()
    return [row for curve in rows for row in curve]


def output_paths(out: str, force: bool) -> dict[str, Path]:
    """Files of a sweep by what they hold: ``table``, ``png`` and ``svg``.

    Parameters
    ----------
    out : str
        A directory, which takes files named ``sweep`` and is made if its name ends in a slash, or a prefix.
        ``.csv`` or ``.parquet`` at its end chooses the table's format; ``.png`` and ``.svg`` are dropped.

    Raises
    ------
    ConfigError
        If the folder does not exist, or is a URL.
    OutputExistsError
        If a file exists and `force` is false.
    """
    from indexmill.jobs.search.results import check_writable

    out = local_path(out, "out")
    if out.endswith("/"):
        Path(out).mkdir(parents=True, exist_ok=True)
    prefix = Path(out, "sweep") if Path(out).is_dir() else Path(out)
    suffix = prefix.suffix if prefix.suffix in TABLE_SUFFIXES else TABLE_SUFFIXES[0]
    if prefix.suffix in (*TABLE_SUFFIXES, ".png", ".svg"):
        prefix = prefix.with_suffix("")
    ends = {"table": suffix, "png": ".png", "svg": ".svg"}
    paths = {what: prefix.with_name(prefix.name + end) for what, end in ends.items()}
    for path in paths.values():
        check_writable(path, force)
    return paths


def write_table(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write all keys of `rows` to `path` as CSV or Parquet, by its suffix; what is not known stays empty.

    Raises
    ------
    ConfigError
        If the suffix is another.
    """
    if path.suffix == ".csv":
        text = io.StringIO()
        lines = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        lines.writeheader()
        lines.writerows(rows)
        with atomic_write(path) as file:
            file.write(text.getvalue().encode())
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist(list(rows))
        known = [
            field.with_type(pa.float64()) if pa.types.is_null(field.type) else field for field in table.schema
        ]
        with atomic_write(path) as file:
            pq.write_table(table.cast(pa.schema(known)), file)
    else:
        raise ConfigError(f"{path}: expected a name that ends in {' or '.join(TABLE_SUFFIXES)}")
