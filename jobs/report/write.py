"""A report as a folder: index.html, report.json and Parquet tables of every number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.formats.errors import ConfigError
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.jobs.compare.run import Comparison
from indexmill.jobs.report.markup import finite
from indexmill.jobs.report.page import render

PAGE, SUMMARY = "index.html", "report.json"
SWEEP, QUERIES, PATHS = "sweep.parquet", "queries.parquet", "paths.parquet"


def check_folder(path: Path) -> None:
    """Refuse, before anything is measured, a folder that a report cannot be written to.

    Raises
    ------
    ConfigError
        If `path` is a file or has no parent folder, or is meant to be a page of its own.
    """
    if path.suffix in (".html", ".htm"):
        raise ConfigError(
            f"--out: {path}: a report is a folder; pass --out {path.with_suffix('')}/ and open {PAGE} in it"
        )
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--out: {path}: is a file; a report is a folder: choose another name")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--out: {path}: the folder {path.parent} does not exist; create it first")


def write_report(comparison: Comparison, folder: Path) -> Path:
    """Write a report into `folder`, replacing one that is there; return the path of its page.

    Each file appears whole or not at all, the page last.
    """
    folder.mkdir(exist_ok=True)
    with atomic_write(folder / SUMMARY) as file:
        file.write(json.dumps(finite(comparison.result), indent=1, allow_nan=False).encode("utf-8"))
    with atomic_write(folder / SWEEP) as file:
        pq.write_table(pa.Table.from_pylist(comparison.result["sweep"]), file, compression="zstd")
    with atomic_write(folder / QUERIES) as file:
        batches = query_batches(comparison)
        first = next(batches)
        with pq.ParquetWriter(file, first.schema, compression="zstd") as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
    with atomic_write(folder / PATHS) as file:
        pq.write_table(comparison.paths, file, compression="zstd")
    with atomic_write(folder / PAGE) as file:
        file.write(render(comparison.result, comparison.paths).encode("utf-8", "replace"))
    return folder / PAGE


def query_batches(comparison: Comparison) -> Iterator[pa.RecordBatch]:
    """Yield every query of every run.

    Columns are ``index, again, policy, L, run, query, recall``, the reader's counters, and ``point``: whether the run
    was not of the sweep, but of the point that is looked at query by query.
    """
    parts = [(m, False) for m in comparison.measurements] + [(m, True) for m in comparison.chosen]
    for measurement, point in parts:
        row = measurement.row
        for number, run in enumerate(measurement.runs):
            n = len(run.hits)
            same: dict[str, Any] = {
                "index": pa.repeat(row["index"], n),
                "again": pa.repeat(row["again"], n),
                "point": pa.repeat(point, n),
                "policy": pa.repeat(row["policy"], n),
                "L": pa.repeat(pa.scalar(row["L"], pa.uint32()), n),
                "run": pa.repeat(pa.scalar(number, pa.uint16()), n),
                "query": pa.array(np.arange(n, dtype=np.uint32)),
                "recall": pa.array(run.hits / np.float32(row["k"]), pa.float32()),
            }
            counters = {name: pa.array(values) for name, values in run.counters.items()}
            yield pa.RecordBatch.from_pydict(same | counters)
