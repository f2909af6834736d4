"""The pages that single queries read, hop by hop: what the page explorer of a report draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.compare.contenders import Contender
from indexmill.jobs.score.graph import Setting, stores_exact_vectors
from indexmill.jobs.score.hits import drop_own, right_answers
from indexmill.jobs.score.queries import QuerySet

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.reader.index import SearchResult

#: Queries whose paths are kept.
PATH_QUERIES = 50


def record_paths(contender: Contender, queries: QuerySet, L: int, setting: Setting) -> pa.Table:
    """Search `queries` once more and write down each read, each expanded vertex and each result.

    Returns
    -------
    pyarrow.Table
        ``index`` (string); ``query``, ``hop`` (uint32) and ``page`` (uint64); ``kind``: those of
        `SearchResult.trace`, in the order of events, then ``result``, the k vertices returned, nearest first, whose
        hop is null; ``slot`` (uint32; null for a read); ``distance`` (float32; of a result its score); ``right``
        (bool; null unless a result).
    """
    import pyarrow as pa

    extra = 0 if queries.own is None else 1
    found = contender.index.search(queries.vectors, setting.k + extra, L=L, trace=True, **setting.options())
    trace = found.trace
    assert trace is not None
    events = pa.table(
        {
            "query": trace["query"],
            "hop": trace["hop"],
            "page": trace["page"],
            "kind": trace["kind"],
            "slot": trace["vertex"],
            "distance": trace["distance"],
            "right": pa.nulls(len(trace), pa.bool_()),
        }
    )
    table = pa.concat_tables([events, _results(contender, found, queries, setting.k)])
    names = pa.repeat(contender.name, len(table)).dictionary_encode()
    return table.add_column(0, "index", names)


def _results(contender: Contender, found: SearchResult, queries: QuerySet, k: int) -> pa.Table:
    """Return the k results of each query, without its own row, as rows of the table of paths."""
    import pyarrow as pa

    index = contender.index
    right = right_answers(found, queries, k, index.metric, stores_exact_vectors(index))
    slots, scores = found.slots, found.scores
    if queries.own is not None:
        slots = drop_own(found.vector_ids, slots, queries.own)[1]
        scores = drop_own(found.vector_ids, scores, queries.own)[1]
    slots, scores = slots[:, :k], scores[:, :k]
    query, place = np.nonzero(slots >= 0)
    there = slots[query, place]
    return pa.table(
        {
            "query": pa.array(query.astype(np.uint32)),
            "hop": pa.nulls(len(there), pa.uint32()),
            "page": pa.array(page_of(contender, there)),
            "kind": pa.repeat("result", len(there)),
            "slot": pa.array(there.astype(np.uint32)),
            "distance": pa.array(scores[query, place]),
            "right": pa.array(right[query, place]),
        }
    )


def page_of(contender: Contender, slots: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Pages of `slots`, int64 (n,), as a trace counts them; uint64 (n,)."""
    per_page = contender.index.native.nodes_per_page
    return (slots // per_page if per_page else slots).astype(np.uint64)
