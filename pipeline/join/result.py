"""The result of a join as a Parquet file: one row for each pair of a query and a neighbour."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.builders.lists.scan import Nearest
from indexmill.builders.nearest.panels import NOTHING
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.pipeline.join.options import JoinReport
from indexmill.pipeline.join.search import scores_of

#: Rows of a row group, about.
GROUP_ROWS = 1 << 18
METADATA_KEY = b"indexmill.join"


def group_queries(k: int) -> int:
    """Return the queries of a row group."""
    return max(1, GROUP_ROWS // k)


def write_result(
    out: Path,
    blocks: Callable[[], Iterable[Nearest]],
    files: IvfFiles,
    query_ids: pa.Array | None,
    report: JoinReport,
) -> None:
    """Write the result, all of it or nothing, and count its rows and short queries in `report`.

    Columns: ``query`` (the id, or int64 row, of the query), ``rank`` int32 from 0, ``id`` in the user's type,
    ``vector_id`` int64, ``score`` float32, ``short`` bool: whether the query has fewer than k rows. The file's metadata
    has a JSON object under ``indexmill.join``: ``index`` (build id), ``generation``, ``metric``, ``k``, ``nprobe``,
    ``queries``, ``short`` and ``empty``, the queries with fewer than k rows and with none.

    Parameters
    ----------
    blocks : callable
        Yields the nearest of all queries in order, `group_queries` at a time.
    """
    user_ids = files.user_ids()
    k, metric = report.k, files.centroids.metric
    empty = _count(report, blocks())
    about = {
        "index": files.manifest.build_id,
        "generation": files.manifest.generation,
        "metric": metric,
        "k": k,
        "nprobe": report.nprobe,
        "queries": report.queries,
        "short": report.short,
        "empty": empty,
    }
    query_type = pa.int64() if query_ids is None else query_ids.type
    id_type = pa.int64() if user_ids is None else user_ids.type
    schema = pa.schema(
        [
            ("query", query_type), ("rank", pa.int32()), ("id", id_type), ("vector_id", pa.int64()),
            ("score", pa.float32()), ("short", pa.bool_()),
        ],
        metadata={METADATA_KEY: json.dumps(about).encode()},
    )  # fmt: skip
    first = 0
    with atomic_write(out) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for part in blocks():
            columns = _columns(part, first, metric, query_ids, user_ids)
            writer.write_table(pa.table(columns, schema=schema))
            first += len(part.ids)


def _count(report: JoinReport, blocks: Iterable[Nearest]) -> int:
    """Count rows and short queries; returns how many have none."""
    report.rows = report.short = empty = 0
    for part in blocks:
        counts = (part.ids != NOTHING).sum(axis=1)
        report.rows += int(counts.sum())
        report.short += int((counts < report.k).sum())
        empty += int((counts == 0).sum())
    return empty


def _columns(part: Nearest, first: int, metric: str, query_ids: Any, user_ids: Any) -> list[Any]:
    there = part.ids != NOTHING
    rows, ranks = np.nonzero(there)
    short: NDArray[np.bool_] = there.sum(axis=1) < there.shape[1]
    vector_ids = part.ids[there].astype(np.int64)
    queries = pa.array(rows + first)
    return [
        queries if query_ids is None else query_ids.take(queries),
        pa.array(ranks.astype(np.int32)),
        pa.array(vector_ids) if user_ids is None else user_ids.take(pa.array(vector_ids)),
        pa.array(vector_ids),
        pa.array(scores_of(part.keys[there], metric)),
        pa.array(short[rows]),
    ]
