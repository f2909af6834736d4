"""Results of a search as an Arrow table, and as a stream that data frames take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class Tabular:
    """Neighbours of a block of queries, in any shape, that can be laid out as rows.

    A subclass has ``ids``, ``scores``, ``vector_ids`` and ``id_type``, and tells where each query begins.
    """

    ids: NDArray[Any]
    scores: NDArray[np.float32]
    vector_ids: NDArray[np.int64]
    id_type: str

    def query_starts(self) -> NDArray[np.int64]:
        """Return the first neighbour of each query among all of them, and the end: int64 (n_queries + 1,)."""
        n_queries, k = self.vector_ids.shape
        starts: NDArray[np.int64] = np.arange(n_queries + 1, dtype=np.int64) * k
        return starts

    def to_arrow(self) -> pa.Table:
        """Return the neighbours as one row a query and rank; those that are missing have no row.

        Returns
        -------
        pyarrow.Table
            query int64, rank int32 (from 0), id int64, uint64, string or binary, vector_id int64, score float32.
        """
        import pyarrow as pa

        starts = self.query_starts()
        queries = np.repeat(np.arange(len(starts) - 1, dtype=np.int64), np.diff(starts))
        ranks = (np.arange(len(queries)) - starts[queries]).astype(np.int32)
        there = self.vector_ids.ravel() >= 0
        types = {"uint64": pa.uint64(), "string": pa.string(), "binary": pa.binary()}
        return pa.table(
            {
                "query": pa.array(queries[there]),
                "rank": pa.array(ranks[there]),
                "id": pa.array(self.ids.ravel()[there], type=types.get(self.id_type, pa.int64())),
                "vector_id": pa.array(self.vector_ids.ravel()[there]),
                "score": pa.array(self.scores.ravel()[there]),
            }
        )

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return `to_arrow` as a capsule of the Arrow C stream, which Polars, DuckDB and pandas take."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
