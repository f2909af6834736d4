"""The result of a join as a Parquet file: one row a query and neighbour."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.builders.panels import NOTHING
from indexmill.builders.scan import Nearest
from indexmill.formats.atomic import atomic_write
from indexmill.formats.ivf_index import IvfFiles
from indexmill.pipeline.join_search import scores_of

if TYPE_CHECKING:
    from indexmill.pipeline.join import JoinReport

#: Rows of a row group, about.
_GROUP_ROWS = 1 << 20
METADATA_KEY = b"indexmill.join"


def write_result(
    out: Path, best: Nearest, files: IvfFiles, query_ids: pa.Array | None, report: JoinReport, k: int
) -> None:
    """Write the result, all of it or nothing, and count its rows and short queries in `report`.

    Columns: ``query`` (the id, or int64 row, of the query), ``rank`` int32 from 0, ``id`` in the user's type,
    ``vector_id`` int64, ``score`` float32, ``short`` bool: whether the query has fewer than k rows. The file's metadata
    has a JSON object under ``indexmill.join``: ``index`` (build id), ``metric``, ``k``, ``nprobe``, ``queries``,
    ``short`` and ``empty``, the queries with fewer than k rows and with none.
    """
    user_ids = files.user_ids()
    there = best.ids != NOTHING
    counts = there.sum(axis=1)
    report.rows, report.short = int(counts.sum()), int((counts < k).sum())
    about = {
        "index": files.manifest.build_id,
        "metric": files.centroids.metric,
        "k": k,
        "nprobe": report.nprobe,
        "queries": len(best.ids),
        "short": report.short,
        "empty": int((counts == 0).sum()),
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
    step = max(1, _GROUP_ROWS // k)
    with atomic_write(out) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for first in range(0, len(best.ids), step):
            some = slice(first, first + step)
            part = Nearest(best.keys[some], best.ids[some])
            columns = _columns(part, there[some], first, files.centroids.metric, query_ids, user_ids)
            writer.write_table(pa.table(columns, schema=schema))


def _columns(
    part: Nearest, there: NDArray[np.bool_], first: int, metric: str, query_ids: Any, user_ids: Any
) -> list[Any]:
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
