"""Trace of a search, event by event, as an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

#: Kinds of events, by their number in the native reader.
KINDS = ("read", "cached", "measure", "expand")
#: Value for no vertex.
_NO_VERTEX = 2**32 - 1


def trace_table(columns: dict[str, NDArray[Any]]) -> pa.Table:
    """Return the table of `SearchResult.trace` from the native reader's columns."""
    import pyarrow as pa

    has_vertex = columns["vertex"] != _NO_VERTEX
    kinds = pa.DictionaryArray.from_arrays(columns["kind"], list(KINDS))
    return pa.table(
        {
            "query": columns["query"],
            "hop": columns["hop"],
            "page": columns["page"],
            "vertex": pa.array(columns["vertex"], mask=~has_vertex),
            "kind": kinds.dictionary_decode(),
            "distance": pa.array(columns["distance"], mask=~has_vertex),
        }
    )


def times_expanded(trace: pa.Table, n_vertices: int) -> NDArray[np.int64]:
    """Return the number of expansions of each slot in a trace: int64, shape (n_vertices,)."""
    import pyarrow.compute as pc

    expanded = trace["vertex"].filter(pc.equal(trace["kind"], "expand"))
    return np.bincount(expanded.to_numpy(), minlength=n_vertices)
