"""Parts *codes*, codes of several sizes (Figure 9 of DiskANN++), and *diskann*, the reads of that program itself."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import LONG_SIZES, ratio, summaries, tuned_trial, value_at
from indexmill.jobs.bench.common.parameters import pq_bytes
from indexmill.jobs.bench.counts.graphs import PLAIN, WHOLE, Graph, at, by_recall, compared, sweep
from indexmill.jobs.bench.counts.sets import KS, given
from indexmill.jobs.bench.programs import diskann
from indexmill.jobs.bench.programs.workspace import Workspace

NAME = "text40k"
#: Bytes of a code over those of the vector as float32.
SHARES = (0.01, 0.05, 0.10, 0.25)
#: L of all searches: in the paper search parameters are fixed.
SIZE = 200
#: Numbers of neighbours of DiskANN's searches, and the names of their recalls in its rows.
_RECALLS = {1: "recall1", 10: "recall"}


def codes(run: Run) -> dict[str, Any]:
    """Search with codes of each size, with all components and without, by one list size."""
    case = given(run, NAME)
    rows = []
    for share in SHARES:
        graph = Graph(case, pq_bytes=case.code_bytes(share))
        row: dict[str, Any] = {"share": share, "pq_bytes": case.code_bytes(share)}
        for side, components in (("plain", PLAIN), ("whole", WHOLE)):
            found = graph.search(components, SIZE)
            row[f"{side}_recall"] = case.recalls(found.vector_ids)[f"recall{KS[-1]}"]
            row[f"{side}_pages_read"] = float(found.counters["pages_read"].mean())
        rows.append(row)
    return {"queries": len(case.queries), "L": SIZE, "rows": rows}


def beside_diskann(run: Run) -> dict[str, Any]:
    """Count what the program reads itself, beside our searches with codes as large as its own."""
    case = given(run, NAME)
    space = Workspace(case.data, case.out)
    diskann.ensure(space)
    with diskann.DiskAnn(space) as peer:
        _, theirs = tuned_trial(peer.search(), LONG_SIZES)
    graph = Graph(case, pq_bytes=pq_bytes(case.data.shape()[1]))
    plain, whole = sweep(graph, PLAIN), sweep(graph, WHOLE)

    def reads(recall: float, k: int) -> float | None:
        return value_at(theirs, "pages_read", recall, _RECALLS[k])

    def fewer(recall: float, k: int) -> float | None:
        return ratio(reads(recall, k), at(whole, "pages_read", recall, k))

    ks = list(_RECALLS)
    return {
        "pq_bytes": pq_bytes(case.data.shape()[1]),
        "counted": diskann.COUNTED,
        "diskann": {"at": by_recall(reads, ks), "rows": summaries(theirs)},
        "plain": compared(plain, plain),
        "whole": compared(whole, plain),
        "ratio": by_recall(fewer, ks),
    }
