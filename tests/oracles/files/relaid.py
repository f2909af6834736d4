"""An index written anew with its slots in another order, slowly, through `indexmill.formats` alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.graph.codes import write_codes
from indexmill.formats.graph.entries import EntryVertices, write_entries
from indexmill.formats.graph.file import write_graph
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.graph.navigation import NAVIGATION_NAME, Navigation, write_navigation
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import seal_files, write_manifest
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME, write_vectors


def write_relaid(source: Path, target: Path, order: NDArray[np.integer]) -> None:
    """Write the index in `source` to `target` so that slot s holds what slot ``order[s]`` held."""
    target.mkdir(parents=True)
    new = {int(old): s for s, old in enumerate(order)}
    with IndexFiles(source) as index:
        nodes, file = index.graph.read_all(), index.graph
        neighbours = np.zeros_like(nodes.neighbours)
        for s, old in enumerate(order):
            for j in range(nodes.degrees[old]):
                neighbours[s, j] = new[int(nodes.neighbours[old, j])]
        codes = None if nodes.codes is None else nodes.codes[order]
        block = NodeBlock(nodes.vectors[order], neighbours, nodes.degrees[order], codes)
        n, scale = file.n_vertices, file.scale()
        write_graph(
            target / "graph.imx",
            file.node_format,
            n,
            file.metric,
            [block],
            max_norm=file.max_norm,
            scale=scale,
        )
        write_codes(target / "codes.imx", index.codebook, n, [index.codes[order]])
        entries = index.entries
        vertices = np.array([new[int(v)] for v in entries.vertices], np.uint32)
        write_entries(
            target / "entries.imx", EntryVertices(new[entries.medoid], entries.centroids, vertices), n
        )
        user_ids = None if index.user_ids is None else index.user_ids.take(pa.array(order))
        write_ids(target / "ids.imx", index.vector_ids[order], user_ids)
        if index.vectors is not None:
            stored, row = index.vectors.read(0, n), index.vectors.row_format
            write_vectors(target / VECTORS_NAME, row, n, file.metric, stored[order], file.max_norm)
        if index.navigation is not None:
            write_navigation(target / NAVIGATION_NAME, _navigation(index.navigation, new), n)
        if (source / METADATA_NAME).exists():
            shutil.copyfile(source / METADATA_NAME, target / METADATA_NAME)
        names = [p.name for p in target.iterdir()]
        build_id, files = seal_files(target, names)
        write_manifest(target, replace(index.manifest, build_id=build_id, files=files))


def _navigation(old: Navigation, new: dict[int, int]) -> Navigation:
    slots = [new[int(slot)] for slot in old.slots]
    ranks = {slot: rank for rank, slot in enumerate(sorted(slots))}
    lists: list[list[int]] = [[] for _ in slots]
    for local, slot in enumerate(slots):
        inside = old.neighbours[old.offsets[local] : old.offsets[local + 1]]
        lists[ranks[slot]] = [ranks[slots[int(other)]] for other in inside]
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint32)
    neighbours = np.array([other for one in lists for other in one], np.uint32)
    entry = ranks[slots[old.entry]]
    return Navigation(np.array(sorted(slots), np.uint32), offsets, neighbours, entry, old.max_degree)
