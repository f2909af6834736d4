"""Part *on-page*: codes of neighbours in nodes beside codes in memory.

Reads are compared on the sentences. A read fetches a node, which may take several pages; the searches count pages. The
memory of C programs that search, and the time to open an index, are those of the first quarter of a set and of all of
it, since neither may grow with the number of vectors. The programs search reported queries with the least L that
reaches the recall on the tuning queries, and a quarter with the L of all. L matters: where pages hold several nodes, a
query keeps all pages that it has read. One program tells its peak, which is the median of several runs; another what it
took before it opened the index. Both indexes of a set are opened in turns. The largest set is a substitute
(`sets.REPEATED`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
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
#: Reported queries that the C programs search. They hold these in memory, so that they are given few.
QUERIES = 256
#: The smaller index of a set has one of so many vectors.
QUARTER = 4
#: How often an index is opened, and a C program run; medians count.
OPENED, RUNS = 21, 5


def measure(space: Embeddings) -> dict[str, Any]:
    """Build indexes with codes on the page, and search and open them; those indexes are removed in the end."""
    case = space.case(SENTENCES)
    program = native.c_example(case.space)
    rows_of_set = {name: _both(space.case(name), program) for name in SETS}
    formats.ensure(case)
    in_memory_reads = formats.page_reads(case.space, default.NAME)
    on_page_reads = formats.page_reads(case.space, NAME, SETTING)
    shutil.rmtree(case.space.index(NAME))
    in_memory = case.space.index(default.NAME)
    at_recall = _at_recall(case, default.NAME, Setting())
    curve_of = {
        "in_memory": _reads(in_memory_reads.curve, pages_per_node(in_memory)),
        "on_page": _reads(on_page_reads.curve, rows_of_set[SENTENCES][-1]["pages_per_node"]),
    }
    peak_mib = {
        name: max(row["search_peak_bytes"] for row in rows) / 2**20 for name, rows in rows_of_set.items()
    }
    return {
        "queries": case.space.halves,
        "setting": SETTING.to_dict(),
        "c_queries": QUERIES,
        "c_runs": RUNS,
        "threads": THREADS,
        "in_memory": {
            "pages_per_node": pages_per_node(in_memory),
            **formats.facts(in_memory),
            **at_recall,
            **_memory(case, program, default.NAME, at_recall["size"]),
            "open_s": open_seconds([in_memory])[0],
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


def _both(case: Case, program: Path) -> list[dict[str, Any]]:
    """Build indexes of the first quarter of a set and of all of it; return size, cost of the build and memory of each.

    Only the sentences' index of all vectors, which is searched once more, is left. The recall is that of all vectors
    alone, since the truth is theirs.
    """
    names = (f"{NAME}-{QUARTER}", NAME)
    built = [_built(case, name, share) for name, share in zip(names, (QUARTER, 1), strict=True)]
    at_recall = _at_recall(case, NAME, SETTING)
    told = [{**at_recall, "recall": None}, at_recall]
    memory = [_memory(case, program, name, at_recall["size"]) for name in names]
    opened = open_seconds([case.space.index(name) for name in names])
    for name in names if case.name != SENTENCES else names[:1]:
        shutil.rmtree(case.space.index(name))
    return [
        {**facts, **found, **held, "open_s": seconds}
        for facts, found, held, seconds in zip(built, told, memory, opened, strict=True)
    ]


def _built(case: Case, name: str, share: int) -> dict[str, Any]:
    """Build an index of the first 1/`share` of a set; return its size and its build's cost."""
    n_vectors = case.space.data.shape()[0] // share
    base = None if share == 1 else write_beginning(case.space.data, n_vectors, case.space.out)
    build_facts = formats.build(case, name, base=base, codes_on_page=True)
    if base is not None:
        base.unlink()
    return {
        "n_vectors": n_vectors,
        "pages_per_node": pages_per_node(case.space.index(name)),
        **build_facts,
    }


def _at_recall(case: Case, name: str, setting: Setting) -> dict[str, Any]:
    """Return the list size that the C programs take of an index, and its recall of the reported queries."""
    with ours.Ours(case.space) as searcher:
        search = searcher.search(name, setting)
        size = formats.least_size(search)
        return {"size": size, "recall": float(search(size, "report")["recall"])}


def _memory(case: Case, program: Path, name: str, size: int) -> dict[str, Any]:
    """Return the memory of C programs that search an index for the first reported queries."""
    index, options = case.space.index(name), [f"k={K}", f"L={size}", f"threads={THREADS}"]
    queries, first = case.space.out / f"few{case.space.data.query.suffix}", case.space.halves["report"][0]
    write_bin(queries, read_bin(case.space.data.query)[first : first + QUERIES])
    peaks = [native.memory_of_search(program, index, queries, options) for _ in range(RUNS)]
    _, resident = native.cost_of_opening(case.space, index, queries, [*options, "rounds=1"])
    queries.unlink()
    return {
        "search_peak_bytes": median(peak for peak, _ in peaks),
        "search_peaks_bytes": [peak for peak, _ in peaks],
        "search_held_bytes": peaks[0][1],
        "resident_bytes": resident,
    }


def open_seconds(indexes: Sequence[Path]) -> list[float]:
    """Return the median time to open each index; they are opened in turns, with their files in the page cache."""
    from indexmill.reader.index import Index

    times: list[list[float]] = [[] for _ in indexes]
    for _ in range(OPENED):
        for index, seconds in zip(indexes, times, strict=True):
            began = time.perf_counter()
            Index(index, "pread")
            seconds.append(time.perf_counter() - began)
    return [median(seconds) for seconds in times]


def pages_per_node(index: Path) -> int:
    """Return the pages of a read."""
    with GraphFile(index / "graph.imx") as graph:
        return graph.node_format.pages_per_node


def _reads(pages: Curve, pages_per_read: int) -> Curve:
    return replace(pages, costs=pages.costs / pages_per_read)
