"""The index of a sample, written as any index is, so that the reader can judge layouts on it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.scalar import Scale, fit_scale
from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.entries import medoid
from indexmill.builders.vamana.navigation import build_navigation, in_slot_order, navigation_sample
from indexmill.formats.graph.codes import write_codes
from indexmill.formats.graph.entries import EntryVertices
from indexmill.formats.graph.file import write_graph
from indexmill.formats.graph.navigation import Navigation
from indexmill.formats.graph.nodes import NodeBlock, NodeFormat
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import seal_files, write_manifest
from indexmill.layout.order import Adjacency
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.graph.emit import write_starts
from indexmill.pipeline.relayout.region import Region, induced, places_of
from indexmill.pipeline.relayout.unpacked import UnpackedIndex

#: Candidates of the search for a vertex that leads to one nothing else leads to.
_CONNECT_LIST = 64


class SampleNodes(NamedTuple):
    """The part of an index that covers a region; vertices are numbered as in the region.

    Attributes
    ----------
    points : uint8 or float32 array, shape (s, stored dim)
        As compared.
    stored : array of the stored type, shape (s, stored dim)
    graph : Adjacency
        The induced one.
    codes : uint8 array, shape (s, M)
    current : uint32 array, shape (s,)
        Vertices by slot of the index.
    entries : int64 array, shape (entries of the index,)
        Vertex of each; -1 if it lies elsewhere.
    """

    points: NDArray[Any]
    stored: NDArray[Any]
    graph: Adjacency
    codes: NDArray[np.uint8]
    current: NDArray[np.uint32]
    entries: NDArray[np.int64]


class Sample:
    """The part of an index that lies in a region, in memory; vertices are numbered as in the region.

    The graph is the induced one, with an edge for every vertex that nothing else leads to, and the navigation graph is
    built for it as for an index of its size; all else is what the index has.

    Parameters
    ----------
    index : OpenedIndex
    region : Region
    nodes : SampleNodes
        Their graph is changed.
    threads : int

    Attributes
    ----------
    graph, points, current, codes
        As in `SampleNodes`.
    """

    def __init__(self, index: OpenedIndex, region: Region, nodes: SampleNodes, threads: int) -> None:
        self._index, self._threads, self.region = index, threads, region
        self.points, self._stored, self.graph, self.codes, self.current, self._entry_vertices = nodes
        self._medoid = medoid(self.points, self.points.mean(axis=0, dtype=np.float64))
        connect_unreachable(self.points, *self.graph, self._medoid, _CONNECT_LIST)

    def write(self, directory: Path, node_dtype: str | None = None) -> Path:
        """Write the index of the sample, vertex v in slot v, to `directory`, and return that.

        It has no exact vectors apart: what searches read of those does not depend on the order of nodes.

        Parameters
        ----------
        node_dtype : {"float16", "sq16", "sq8"}, optional
            Type of the vectors on the page; by default that of the index.
        """
        directory.mkdir()
        index, n = self._index, len(self.region)
        node, vectors, scale = self._nodes(node_dtype)
        listed = np.arange(self.graph.neighbours.shape[1]) < self.graph.degrees[:, None]
        beside = self.codes[np.where(listed, self.graph.neighbours, 0)] if node.code_bytes else None
        write_graph(
            directory / "graph.imx", node, n, index.graph.metric,
            [NodeBlock(vectors, self.graph.neighbours, self.graph.degrees, beside)],
            max_norm=index.graph.max_norm, scale=None if scale is None else (scale.minimum, scale.step),
        )  # fmt: skip
        write_codes(directory / "codes.imx", index.codes.codebook, n, [self.codes])
        write_starts(directory, n, self._entries(), None if index.navigation is None else self._navigation)
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
        other = NodeFormat(node.dim, node_dtype, node.max_degree, node.code_bytes)
        rows = space.as_given(self.points)
        if not other.quantized:
            return other, rows.astype(other.element_dtype), None
        scale = fit_scale(rows.min(axis=0), rows.max(axis=0), int(node_dtype[2:]))
        return other, scale.encode(rows), scale

    def _entries(self) -> EntryVertices:
        """The centroids whose vertex lies in the region; without one, the medoid stands for itself."""
        old, there = self._index.entries, self._entry_vertices >= 0
        if not there.any():
            own = self._index.space.as_given(self.points[self._medoid : self._medoid + 1])
            return EntryVertices(self._medoid, own.astype(np.float32), np.array([self._medoid], np.uint32))
        return EntryVertices(
            self._medoid, old.centroids[there], self._entry_vertices[there].astype(np.uint32)
        )


def nodes_within(index: OpenedIndex, unpacked: UnpackedIndex, region: Region) -> SampleNodes:
    """Return the part of `unpacked`, with points, that lies in `region`, vertices of which are vector ids."""
    assert unpacked.points is not None
    vertices = region.vertices
    codes, stored, current = _gather(index, unpacked.vector_ids, vertices)
    return SampleNodes(
        np.ascontiguousarray(unpacked.points[vertices]), stored, induced(unpacked.graph, vertices), codes, current,
        places_of(unpacked.vector_ids[index.entries.vertices], vertices),
    )  # fmt: skip


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
        places = places_of(ids, vertices)
        here = np.flatnonzero(places >= 0)
        if len(here):
            stored[places[here]] = block.vectors[here]
            codes[places[here]] = index.codes.read(first, len(block))[here]
            order.append(places[here])
        first += len(block)
    return codes, stored, np.concatenate(order).astype(np.uint32)
