"""Part *on-page*: codes of neighbours in nodes beside codes in memory.

Reads are compared on the sentences. A read fetches a node, which may take several pages; the searches count pages. The
memory of a C program that searches, and the time to open an index, are those of the first quarter of a set and of all
of it, since neither may grow with the number of vectors.
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
from indexmill.jobs.bench.embed.sets import SENTENCES, Case, Embeddings
from indexmill.jobs.bench.programs import native
from indexmill.jobs.bench.programs.ours import Setting

NAME = "on-page"
#: Sets whose memory is measured; the second has a million vectors.
SETS = (SENTENCES, "sift1m")
#: The reader's setting for an index without a navigation graph.
SETTING = Setting(entry="centroids")
#: L of the C program: a recall above 0.95. It holds its queries in memory, so that it is given few.
SIZE, QUERIES = 100, 256
#: How often an index is opened; the median counts.
OPENED = 21


def measure(space: Embeddings) -> dict[str, Any]:
    """Build indexes with codes on the page, and search and open them."""
    case = space.case(SENTENCES)
    program = native.c_example(case.space)
    sizes = {name: [_facts(space.case(name), program, part) for part in (4, 1)] for name in SETS}
    formats.ensure(case)
    in_memory = formats.page_reads(case.space, default.NAME)
    mine = formats.page_reads(case.space, NAME, SETTING)
    pages = sizes[SENTENCES][-1]["pages_per_node"]
    reads = {
        "in_memory": _reads(in_memory.curve, pages_per_node(case.space.index(default.NAME))),
        "on_page": _reads(mine.curve, pages),
    }
    rows = [row for of_set in sizes.values() for row in of_set]
    return {
        "queries": case.space.halves,
        "setting": SETTING.to_dict(),
        "size": SIZE,
        "c_queries": QUERIES,
        "threads": THREADS,
        "in_memory": {
            "pages_per_node": pages_per_node(case.space.index(default.NAME)),
            **formats.facts(case.space.index(default.NAME)),
            **_cost(case, program, default.NAME),
            **in_memory.facts(),
        },
        "on_page": mine.facts(),
        "reads": {name: figures_at(found) for name, found in reads.items()},
        "ratio": curve_ratios(reads["on_page"], reads["in_memory"]),
        "sets": sizes,
        "peak_mib": max(row["search_peak_bytes"] for row in rows) / 2**20,
        "open_growth": max(of_set[1]["open_s"] / of_set[0]["open_s"] for of_set in sizes.values()),
    }


def _facts(case: Case, program: Path, part: int) -> dict[str, Any]:
    """Build an index of the first vectors of a set, one in `part` of them, and return what it takes."""
    n_vectors, name = case.space.data.shape()[0] // part, NAME if part == 1 else f"{NAME}-{part}"
    base = None if part == 1 else write_beginning(case.space.data, n_vectors, case.space.out)
    made = formats.build(case, name, base=base, codes_on_page=True)
    if base is not None:
        base.unlink()
    nodes = pages_per_node(case.space.index(name))
    return {"n_vectors": n_vectors, "pages_per_node": nodes, **made, **_cost(case, program, name)}


def _cost(case: Case, program: Path, name: str) -> dict[str, float]:
    """Return what a C program takes that searches an index, and the seconds in which the index opens."""
    index, options = case.space.index(name), [f"k={K}", f"L={SIZE}", f"threads={THREADS}"]
    queries = case.space.out / f"few{case.space.data.query.suffix}"
    write_bin(queries, read_bin(case.space.data.query)[:QUERIES])
    peak, held = native.memory_of_search(program, index, queries, options)
    queries.unlink()
    return {"search_peak_bytes": peak, "search_held_bytes": held, "open_s": open_seconds(index)}


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
