"""Parts of one set: components of DiskANN++, types of nodes, widths, and the phases of searches (Tables III and VI)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Row
from indexmill.jobs.bench.counts import phases
from indexmill.jobs.bench.counts.graphs import COMPONENTS, PLAIN, WHOLE, Graph, compared, sweep
from indexmill.jobs.bench.counts.sets import Case
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH

#: Types of nodes beside that of the vectors.
NODES = ("sq16", "sq8")
#: Vertices that a search chooses in a hop; the paper's.
WIDTHS = (2, 4, 8)


def measure(run: Run, make: Callable[[Run], Case]) -> dict[str, Any]:
    """Search one graph with each component, with each width, and with smaller nodes."""
    case = make(run)
    graph = Graph(case)
    swept = {}
    for name in COMPONENTS:
        print(f"  {case.name}: {name}", file=sys.stderr, flush=True)
        swept[name] = sweep(graph, name)
    widths = {}
    for width in WIDTHS:
        print(f"  {case.name}: width {width}", file=sys.stderr, flush=True)
        plain, whole = (
            swept[name] if width == DISKANN_WIDTH else sweep(graph, name, width) for name in (PLAIN, WHOLE)
        )
        widths[str(width)] = {"plain": compared(plain, plain), "whole": compared(whole, plain)}
    return {
        **_beside_smaller_nodes(graph, swept),
        "widths": widths,
        "phases": phases.phases(graph, swept),
        "far": phases.far_queries(graph, swept),
    }


def measure_nodes(run: Run, make: Callable[[Run], Case]) -> dict[str, Any]:
    """Search one graph with each component, and with smaller nodes."""
    graph = Graph(make(run))
    return _beside_smaller_nodes(graph, {name: sweep(graph, name) for name in COMPONENTS})


def _beside_smaller_nodes(graph: Graph, swept: dict[str, list[Row]]) -> dict[str, Any]:
    """Return what a record keeps of a set and of its searches, and those with smaller nodes."""
    case, plain = graph.case, swept[PLAIN]
    per_page = {"same": graph.nodes_per_page}
    nodes = {"same": compared(swept[WHOLE], plain)}
    for dtype in NODES:
        smaller = Graph(case, node_dtype=dtype)
        per_page[dtype] = smaller.nodes_per_page
        nodes[dtype] = compared(sweep(smaller, WHOLE), plain)
    return {
        "n_vectors": len(graph.vector_ids),
        "dim": case.data.shape()[1],
        "queries": len(case.queries),
        "pq_bytes": case.code_bytes(),
        "nodes_per_page": per_page,
        "components": {name: compared(rows, plain) for name, rows in swept.items()},
        "nodes": nodes,
    }


def measure_generated(run: Run, make: Callable[[Run], Case]) -> dict[str, Any]:
    """Search one graph with all components and without (Figure 10c)."""
    graph = Graph(make(run))
    plain = sweep(graph, PLAIN)
    return {
        "n_vectors": len(graph.vector_ids),
        "queries": len(graph.case.queries),
        "nodes_per_page": graph.nodes_per_page,
        "plain": compared(plain, plain),
        "whole": compared(sweep(graph, WHOLE), plain),
    }
