"""Parts *entries* and *packing*: choices of DiskANN++ that ours departs from, and numbers of centroids (Figure 11).

* The paper starts at the candidate vertex nearest to the query, with the medoid among the candidates; ours starts at
  the vertex of the nearest centroid.
* Algorithm 3 takes centres by number; ours takes the vertex next that has most neighbours without a page.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.entries import EntryVertices, read_entries, write_entries
from indexmill.formats.index.manifest import read_manifest, seal_files, write_manifest
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.counts.graphs import WHOLE, Graph, compared, sweep
from indexmill.jobs.bench.counts.sets import given
from indexmill.layout.ffd import lay_out
from indexmill.layout.metrics import layout_metrics
from indexmill.layout.order import Adjacency

NAME = "text40k"
#: Page search of the mapped order from the medoid.
STATIC = "BC"
#: Centroids; the builder allows one for 16 vertices at most.
ENTRIES = (64, 256, 1024, 2500)


def entries(run: Run) -> dict[str, Any]:
    """Search from the medoid, from the nearest of more and more centroids, and as the paper chooses."""
    case = given(run, NAME)
    graph = Graph(case)
    medoid, own = sweep(graph, STATIC), sweep(graph, WHOLE)
    found = {}
    for n in ENTRIES:
        print(f"  {case.name}: {n} centroids", file=sys.stderr, flush=True)
        found[str(n)] = compared(sweep(Graph(case, entries=n), WHOLE), medoid)
    candidates = candidate_vertices(graph)
    chosen = Graph(case, with_entries(graph, candidates, case.out / "candidates.index"))
    return {
        "queries": len(case.queries),
        "medoid": compared(medoid, medoid),
        "centroids": found,
        "own": compared(own, own),
        "candidates": {"n": len(candidates.vertices), **compared(sweep(chosen, WHOLE), own)},
    }


def candidate_vertices(graph: Graph) -> EntryVertices:
    """Return entries by which the nearest "centroid" is the nearest candidate vertex, the medoid among them."""
    own = read_entries(graph.path / "entries.imx")
    vertices = np.unique(np.append(own.vertices, np.uint32(own.medoid)))
    vectors = read_bin(graph.case.data.base)[graph.vector_ids[vertices]]
    return EntryVertices(own.medoid, np.asarray(vectors, np.float32), vertices)


def with_entries(graph: Graph, others: EntryVertices, out: Path) -> Path:
    """Write a copy of the graph's index with other entries, in place of an earlier one; return its directory."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(graph.path, out)
    write_entries(out / "entries.imx", others, len(graph.vector_ids))
    manifest = read_manifest(graph.path)
    build_id, files = seal_files(out, [entry.name for entry in manifest.files])
    write_manifest(out, replace(manifest, build_id=build_id, files=files))
    return out


def packing(run: Run) -> dict[str, Any]:
    """Search the order of Algorithm 3 as it stands, beside our star order."""
    case = given(run, NAME)
    graph = Graph(case)
    adjacency = graph.adjacency()
    stars = stars_by_number(adjacency, graph.nodes_per_page)
    orders = {"own": graph.vector_ids, "by_number": lay_out(*stars, graph.nodes_per_page)}
    rows = {name: sweep(graph.laid_out(order), WHOLE) for name, order in orders.items()}
    return {
        "queries": len(case.queries),
        "nodes_per_page": graph.nodes_per_page,
        "orders": {
            name: {
                "page_compactness": layout_metrics(
                    *adjacency, order, graph.nodes_per_page, 0.0, THREADS
                ).page_compactness,
                **compared(rows[name], rows["own"]),
            }
            for name, order in orders.items()
        },
    }


def stars_by_number(graph: Adjacency, nodes_per_page: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Pack stars with centres by number, as Algorithm 3 does.

    Returns
    -------
    vertices : uint32 array, shape (n,)
        Star by star, the centre first, then its nearest neighbours without a page.
    sizes : int64 array
        Of the stars.
    """
    has_page = np.zeros(len(graph.degrees), np.bool_)
    stars = []
    for centre, degree in enumerate(graph.degrees):
        if has_page[centre]:
            continue
        near = graph.neighbours[centre, :degree]
        star = np.append(np.uint32(centre), near[~has_page[near]][: nodes_per_page - 1])
        has_page[star] = True
        stars.append(star)
    return np.concatenate(stars), np.array([len(star) for star in stars], np.int64)
