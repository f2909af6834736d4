"""entries.imx: the vertices where a search may start (docs/formats/entries.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.frame import MAX_STORED_DIM, corrupt
from indexmill.formats.pagefile.reader import PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

KIND = "ENTR"


@dataclass(frozen=True, eq=False)
class EntryVertices:
    """Entry vertices of a graph (DiskANN++ section III), as slots.

    Attributes
    ----------
    medoid : int
        Slot of the vertex nearest to the mean of all vectors.
    centroids : float32 array, shape (c, dim)
    vertices : uint32 array, shape (c,)
        Slot of the vertex nearest to each centroid.
    """

    medoid: int
    centroids: NDArray[np.float32]
    vertices: NDArray[np.uint32]


def write_entries(path: str | Path, entries: EntryVertices, n_vertices: int) -> None:
    """Write entries.imx.

    Raises
    ------
    ValueError
        If there is no centroid, shapes disagree, or a slot is not below `n_vertices`.
    """
    c, dim = entries.centroids.shape
    if c < 1 or entries.vertices.shape != (c,):
        raise ValueError(f"entries: {c} centroids and vertices of shape {entries.vertices.shape}")
    if not 0 <= entries.medoid < n_vertices or entries.vertices.max() >= n_vertices:
        raise ValueError(f"entries: medoid {entries.medoid} or a vertex is not a slot below {n_vertices}")
    fields = {"n_vertices": n_vertices, "dim": dim, "medoid": entries.medoid, "n_entries": c}
    with PageFileWriter(path, KIND, fields) as file:
        file.array("centroids", entries.centroids, "<f4")
        file.array("vertices", entries.vertices, "<u4")


def read_entries(
    path: str | Path, build_id: bytes | None = None, n_vertices: int | None = None
) -> EntryVertices:
    """Read entries.imx, every page checked.

    Parameters
    ----------
    build_id : bytes, optional
        The 16 bytes that the file must have.
    n_vertices : int, optional
        The number of vertices that the file must state.

    Raises
    ------
    FormatError
        If the file is not an intact entries.imx of such a graph.
    """
    with PageFile(path, KIND, build_id) as file:
        n = file.field("n_vertices", 1, 2**32 - 1)
        if n_vertices is not None and n != n_vertices:
            raise corrupt(path, "field 'n_vertices'", n_vertices, n)
        dim = file.field("dim", 1, MAX_STORED_DIM)
        medoid = file.field("medoid", 0, n - 1)
        c = file.field("n_entries", 1)
        centroids = file.array("centroids", "<f4", c, dim, finite=True)
        vertices = file.array("vertices", "<u4", c)
    if vertices.max() >= n:
        raise corrupt(path, f"entry vertex {int(vertices.argmax())}", f"a slot below {n}", vertices.max())
    return EntryVertices(medoid, centroids, vertices)
