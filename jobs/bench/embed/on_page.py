"""Part *on-page*: codes of neighbours in nodes beside codes in memory.

Reads are compared on the sentences. A read fetches a node, which may take several pages; the searches count pages. The
memory of C programs that search, and the time to open an index, are those of the first quarter of a set and of all of
it, since neither may grow with the number of vectors. One program tells its peak, which is the median of several runs;
another what it took before it opened the index. The largest set is a substitute (`sets.REPEATED`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from indexmill.formats.graph.file import GraphFile
from indexmill.jobs.bench.common.dataset import K, read_bin, write_beginning, write_bin
from indexmill.jobs.bench.common.intervals import Curve, curve_ratios, figures_at
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.embed import default, formats
from indexmill.jobs.bench.embed.sets import REPEATED, SENTENCES, Case, Embeddings
from indexmill.jobs.bench.programs import native, ours
from indexmill.jobs.bench.programs.ours import Setting

NAME = "on-page"
#: Sets whose memory is measured: embeddings, a million vectors, and three millions.
SETS = (SENTENCES, "sift1m", REPEATED)
#: The reader's setting for an index without a navigation graph.
SETTING = Setting(entry="centroids")
#: L of the C programs, whose recall is measured. They hold their queries in memory, so that they are given few.
SIZE, QUERIES = 100, 256
#: How often an index is opened, and a C program run; medians count.
OPENED, RUNS = 21, 5


def measure(space: Embeddings) -> dict[str, Any]:
    """Build indexes with codes on the page, and search and open them."""
    case = space.case(SENTENCES)
    program = native.c_example(case.space)
    rows_of_set = {name: [_facts(space.case(name), program, share) for share in (4, 1)] for name in SETS}
    formats.ensure(case)
    in_memory_reads = formats.page_reads(case.space, default.NAME)
    on_page_reads = formats.page_reads(case.space, NAME, SETTING)
    pages = rows_of_set[SENTENCES][-1]["pages_per_node"]
    curve_of = {
        "in_memory": _reads(in_memory_reads.curve, pages_per_node(case.space.index(default.NAME))),
        "on_page": _reads(on_page_reads.curve, pages),
    }
    peak_mib = {
        name: max(row["search_peak_bytes"] for row in rows) / 2**20 for name, rows in rows_of_set.items()
    }
    return {
        "queries": case.space.halves,
        "setting": SETTING.to_dict(),
        "size": SIZE,
        "c_queries": QUERIES,
        "c_runs": RUNS,
        "threads": THREADS,
        "in_memory": {
            "pages_per_node": pages_per_node(case.space.index(default.NAME)),
            **formats.facts(case.space.index(default.NAME)),
            **_cost(case, program, default.NAME),
            "recall": _recall(case, default.NAME, Setting()),
            **in_memory_reads.facts(),
        },
        "on_page": on_page_reads.facts(),
        "reads": {name: figures_at(curve) for name, curve in curve_of.items()},
        "ratio": curve_ratios(curve_of["on_page"], curve_of["in_memory"]),
        "pages_ratio": curve_ratios(on_page_reads.curve, in_memory_reads.curve),
        "sets": rows_of_set,
        "peak_mib": max(peak_mib[name] for name in SETS if name != REPEATED),
        "repeated_peak_mib": peak_mib[REPEATED],
        "open_growth": max(rows[1]["open_s"] / rows[0]["open_s"] for rows in rows_of_set.values()),
    }


def _facts(case: Case, program: Path, share: int) -> dict[str, Any]:
    """Build an index of the first 1/`share` of a set; return its size, its build's cost and its memory.

    The recall is that of the whole set alone, which has the truth of its queries.
    """
    n_vectors, name = case.space.data.shape()[0] // share, NAME if share == 1 else f"{NAME}-{share}"
    base = None if share == 1 else write_beginning(case.space.data, n_vectors, case.space.out)
    build_facts = formats.build(case, name, base=base, codes_on_page=True)
    if base is not None:
        base.unlink()
    pages = pages_per_node(case.space.index(name))
    recall = _recall(case, name, SETTING) if share == 1 else None
    return {
        "n_vectors": n_vectors,
        "pages_per_node": pages,
        **build_facts,
        **_cost(case, program, name),
        "recall": recall,
    }


def _recall(case: Case, name: str, setting: Setting) -> float:
    """Return the recall of searches as long as those of the C programs, of the reported queries."""
    with ours.Ours(case.space) as searcher:
        return float(searcher.search(name, setting)(SIZE, "report")["recall"])


def _cost(case: Case, program: Path, name: str) -> dict[str, Any]:
    """Return the memory of C programs that search an index, and the seconds in which the index opens."""
    index, options = case.space.index(name), [f"k={K}", f"L={SIZE}", f"threads={THREADS}"]
    queries = case.space.out / f"few{case.space.data.query.suffix}"
    write_bin(queries, read_bin(case.space.data.query)[:QUERIES])
    peaks = [native.memory_of_search(program, index, queries, options) for _ in range(RUNS)]
    _, resident = native.cost_of_opening(case.space, index, queries, [*options, "rounds=1"])
    queries.unlink()
    return {
        "search_peak_bytes": median(peak for peak, _ in peaks),
        "search_peaks_bytes": [peak for peak, _ in peaks],
        "search_held_bytes": peaks[0][1],
        "resident_bytes": resident,
        "open_s": open_seconds(index),
    }


def open_seconds(index: Path) -> float:
    """Return the median time to open an index whose files are in the page cache."""
    from indexmill.reader.index import Index

    times = []
    for _ in range(OPENED):
        began = time.perf_counter()
        Index(index, "pread")
        times.append(time.perf_counter() - began)
    return median(times)


def pages_per_node(index: Path) -> int:
    """Return the pages of a read."""
    with GraphFile(index / "graph.imx") as graph:
        return graph.node_format.pages_per_node


def _reads(pages: Curve, pages_per_read: int) -> Curve:
    return replace(pages, costs=pages.costs / pages_per_read)
