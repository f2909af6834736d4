"""One in-memory search over graphs that different programs built, so that only the graphs differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin, read_truth, recall_by_distance
from indexmill.jobs.bench.programs.diskann import Graph

LIST_SIZES = (10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 100, 120)


def read_ours(path: Path) -> Graph:
    """Read the graph of an index in identity order, whose slots are the vector ids.

    Raises
    ------
    ValueError
        If they are not.
    """
    from indexmill.formats.graph.index import IndexFiles

    with IndexFiles(path) as index:
        if not np.array_equal(index.vector_ids, np.arange(len(index.vector_ids))):
            raise ValueError(f"{path}: slots are not the vector ids, so its order is not identity")
        nodes = index.graph.read_all()
        return Graph(nodes.neighbours, nodes.degrees.astype(np.int32), index.entries.medoid)


def curve(
    data: Dataset, graph: Graph, sizes: Sequence[int] = LIST_SIZES, most: float = 1.0
) -> list[dict[str, Any]]:
    """Search with all queries and growing list sizes, until recall passes `most`; a row for each."""
    from indexmill.builders.vamana.greedy import search_rows

    vectors, queries = np.asarray(read_bin(data.base)), np.asarray(read_bin(data.query))
    truth = read_truth(data.truth)[1]
    rows: list[dict[str, Any]] = []
    for size in sizes:
        found = np.zeros((len(queries), K), np.uint32)
        total = search_rows(queries, vectors, graph.neighbours, graph.degrees, graph.start, size, found)
        recall = recall_by_distance(found, vectors, queries, truth)
        rows.append({"L": size, "recall": recall, "distances": total / len(queries)})
        if recall > most:
            break
    return rows
