"""The index of a sample, written as any index is, so that the reader can judge layouts on it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.connect import connect_unreachable
from indexmill.builders.entries import medoid
from indexmill.builders.navigation import build_navigation, in_slot_order, navigation_sample
from indexmill.builders.scalar import Scale, fit_scale
from indexmill.formats.codes import write_codes
from indexmill.formats.entries import EntryVertices, write_entries
from indexmill.formats.graph import write_graph
from indexmill.formats.ids import write_ids
from indexmill.formats.manifest import seal_files, write_manifest
from indexmill.formats.navigation import NAVIGATION_NAME, Navigation, write_navigation
from indexmill.formats.nodes import NodeBlock, NodeFormat
from indexmill.layout.order import Adjacency
from indexmill.pipeline.extend_index import OpenedIndex
from indexmill.pipeline.relayout.region import Region, induced
from indexmill.pipeline.relayout.unpacked import UnpackedIndex

#: Candidates of the search for a vertex that leads to one nothing else leads to.
_CONNECT_LIST = 64


class Sample:
    """The part of an index that lies in a region, in memory; vertices are numbered as in the region.

    The graph is the induced one, with an edge for every vertex that nothing else leads to, and the navigation graph is
    built for it as for an index of its size; all else is what the index has.

    Parameters
    ----------
    index : OpenedIndex
    unpacked : UnpackedIndex
        With points.
    region : Region
    threads : int

    Attributes
    ----------
    graph : Adjacency
    points : uint8 or float32 array, shape (s, stored dim)
        As compared.
    current : uint32 array, shape (s,)
        Vertices by slot of the index.
    """

    def __init__(self, index: OpenedIndex, unpacked: UnpackedIndex, region: Region, threads: int) -> None:
        assert unpacked.points is not None
        self._index, self._threads = index, threads
        self.region = region
        self.points: NDArray[Any] = np.ascontiguousarray(unpacked.points[region.vertices])
        self.graph: Adjacency = induced(unpacked.graph, region.vertices)
        self._medoid = medoid(self.points, self.points.mean(axis=0, dtype=np.float64))
        connect_unreachable(self.points, *self.graph, self._medoid, _CONNECT_LIST)
        self._entry_vertices = unpacked.vector_ids[index.entries.vertices]
        self._codes, self._stored, self.current = _gather(index, unpacked.vector_ids, region.vertices)

    def write(self, directory: Path, node_dtype: str | None = None) -> Path:
        """Write the index of the sample, vertex v in slot v, to `directory`, and return that.

        Parameters
        ----------
        node_dtype : {"float16", "sq16", "sq8"}, optional
            Type of the vectors on the page; by default that of the index.
        """
        directory.mkdir()
        index, n = self._index, len(self.region)
        node, vectors, scale = self._nodes(node_dtype)
        write_graph(
            directory / "graph.imx", node, n, index.graph.metric,
            [NodeBlock(vectors, self.graph.neighbours, self.graph.degrees)],
            max_norm=index.graph.max_norm, scale=None if scale is None else (scale.minimum, scale.step),
        )  # fmt: skip
        write_codes(directory / "codes.imx", index.codes.codebook, n, [self._codes])
        write_entries(directory / "entries.imx", self._entries(), n)
        if index.navigation is not None:
            write_navigation(directory / NAVIGATION_NAME, self._navigation, n)
        write_ids(directory / "ids.imx", np.arange(n, dtype=np.uint32), None)
        build_id, files = seal_files(directory, [p.name for p in directory.iterdir()])
        facts = {**index.manifest.input, "n_vectors": n}
        manifest = replace(index.manifest, build_id=build_id, files=files, input=facts, certificate=None)
        write_manifest(directory, manifest)
        return directory

    @cached_property
    def _navigation(self) -> Navigation:
        p = self._index.parameters
        chosen = navigation_sample(p.navigation, len(self.region), p.seed)
        rows = np.ascontiguousarray(self.points[chosen])
        return in_slot_order(build_navigation(rows, seed=p.seed, threads=self._threads), chosen)

    def _nodes(self, node_dtype: str | None) -> tuple[NodeFormat, NDArray[Any], Scale | None]:
        """Format, vectors as stored, and scale."""
        node, space = self._index.graph.node_format, self._index.space
        if node_dtype is None:
            return node, self._stored, space.scale
        other = NodeFormat(node.dim, node_dtype, node.max_degree)
        rows = space.as_given(self.points)
        if not other.quantized:
            return other, rows.astype(other.element_dtype), None
        scale = fit_scale(rows.min(axis=0), rows.max(axis=0), int(node_dtype[2:]))
        return other, scale.encode(rows), scale

    def _entries(self) -> EntryVertices:
        """The centroids whose vertex lies in the region; without one, the medoid stands for itself."""
        old, vertices = self._index.entries, self.region.vertices
        places = np.minimum(np.searchsorted(vertices, self._entry_vertices), len(vertices) - 1)
        there = vertices[places] == self._entry_vertices
        if not there.any():
            own = self._index.space.as_given(self.points[self._medoid : self._medoid + 1])
            return EntryVertices(self._medoid, own.astype(np.float32), np.array([self._medoid], np.uint32))
        return EntryVertices(self._medoid, old.centroids[there], places[there].astype(np.uint32))


def _gather(
    index: OpenedIndex, vector_ids: NDArray[np.uint32], vertices: NDArray[np.uint32]
) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.uint32]]:
    """Codes and stored vectors of `vertices`, and their order by slot of the index: one read front to back."""
    node, n = index.graph.node_format, len(vertices)
    codes = np.empty((n, len(index.codes.codebook.offsets) - 1), np.uint8)
    stored = np.empty((n, node.dim), node.element_dtype)
    order, first = [], 0
    for block in index.graph.blocks():
        ids = vector_ids[first : first + len(block)]
        places = np.minimum(np.searchsorted(vertices, ids), n - 1)
        here = np.flatnonzero(vertices[places] == ids)
        if len(here):
            stored[places[here]] = block.vectors[here]
            codes[places[here]] = index.codes.read(first, len(block))[here]
            order.append(places[here])
        first += len(block)
    return codes, stored, np.concatenate(order).astype(np.uint32)
