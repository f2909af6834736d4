"""navigation.imx: a small graph over a sample of the vertices (docs/formats/navigation.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.pagefile.frame import corrupt
from indexmill.formats.pagefile.reader import PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

#: Name of the file in an index directory; an index without it has no navigation graph.
NAVIGATION_NAME = "navigation.imx"
KIND = "NAVI"
#: Most neighbours of a vertex, as in graph.imx.
MAX_DEGREE = 512
#: Most vertices of a navigation graph: a search keeps a flag in the last bit of a local position.
MAX_SAMPLE = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Navigation:
    """A graph over sampled vertices, without vectors: a search scores slots by their PQ codes.

    Attributes
    ----------
    slots : uint32 array, shape (n_sample,)
        Slot of each sampled vertex, strictly ascending; an index into this array is a *local position*.
    offsets : uint32 array, shape (n_sample + 1,)
        ``neighbours[offsets[v]:offsets[v + 1]]`` are the neighbours of local position v.
    neighbours : uint32 array, shape (n_edges,)
        Local positions, distinct within a list.
    entry : int
        Local position where a search starts: the medoid of the sample.
    max_degree : int
        Upper limit of the length of a list.
    """

    slots: NDArray[np.uint32]
    offsets: NDArray[np.uint32]
    neighbours: NDArray[np.uint32]
    entry: int
    max_degree: int


def write_navigation(path: str | Path, navigation: Navigation, n_vertices: int) -> None:
    """Write navigation.imx for an index of `n_vertices` vertices.

    Raises
    ------
    ValueError
        If the graph violates the rules of `Navigation`, or a slot is not below `n_vertices`.
    """
    found = _fault(navigation, n_vertices)
    if found is not None:
        where, expected, got = found
        raise ValueError(f"navigation: {where}: expected {expected}, got {got}")
    fields = {
        "n_vertices": n_vertices,
        "n_sample": len(navigation.slots),
        "max_degree": navigation.max_degree,
        "n_edges": len(navigation.neighbours),
        "entry": navigation.entry,
    }
    with PageFileWriter(path, KIND, fields) as file:
        for name in ("slots", "offsets", "neighbours"):
            file.array(name, getattr(navigation, name), "<u4")


def read_navigation(
    path: str | Path, build_id: bytes | None = None, n_vertices: int | None = None
) -> Navigation:
    """Read navigation.imx, every page and every value checked.

    Parameters
    ----------
    build_id : bytes, optional
        The 16 bytes that the file must have.
    n_vertices : int, optional
        The number of vertices that the file must state.

    Raises
    ------
    FormatError
        If the file is not an intact navigation.imx of such a graph.
    """
    with PageFile(path, KIND, build_id) as file:
        n = file.field("n_vertices", 1, 2**32 - 1)
        if n_vertices is not None and n != n_vertices:
            raise corrupt(path, "field 'n_vertices'", n_vertices, n)
        sample = file.field("n_sample", 1, min(n, MAX_SAMPLE))
        max_degree = file.field("max_degree", 1, MAX_DEGREE)
        edges = file.field("n_edges", 0, min(sample * max_degree, 2**32 - 1))
        entry = file.field("entry", 0, sample - 1)
        counts = {"slots": sample, "offsets": sample + 1, "neighbours": edges}
        slots, offsets, neighbours = (file.array(name, "<u4", count) for name, count in counts.items())
    navigation = Navigation(slots, offsets, neighbours, entry, max_degree)
    found = _fault(navigation, n)
    if found is not None:
        raise corrupt(path, *found)
    return navigation


def _fault(navigation: Navigation, n_vertices: int) -> tuple[str, str, object] | None:
    """Return where a graph violates the specification, what is expected and what was found; None if it is valid."""
    slots, offsets, neighbours = (
        a.astype(np.int64) for a in (navigation.slots, navigation.offsets, navigation.neighbours)
    )
    sample, most = len(slots), navigation.max_degree
    if not 1 <= sample <= MAX_SAMPLE:
        return "section 'slots'", f"1..{MAX_SAMPLE} slots", sample
    if not 1 <= most <= MAX_DEGREE:
        return "max_degree", f"1..{MAX_DEGREE}", most
    if not 0 <= navigation.entry < sample:
        return "entry", f"a local position below {sample}", navigation.entry
    if (np.diff(slots) <= 0).any() or slots[-1] >= n_vertices:
        return "section 'slots'", f"ascending slots below {n_vertices}", "another list"
    if len(offsets) != sample + 1 or offsets[0] != 0 or offsets[-1] != len(neighbours):
        return "section 'offsets'", f"{sample + 1} offsets from 0 to {len(neighbours)}", "another list"
    degrees = np.diff(offsets)
    if degrees.min() < 0 or degrees.max() > most:
        v = int(np.argmax((degrees < 0) | (degrees > most)))
        return f"offset {v + 1}", f"0..{most} more than offset {v}", int(degrees[v])
    if len(neighbours) and neighbours.max() >= sample:
        at = int(neighbours.argmax())
        return f"neighbour {at}", f"a local position below {sample}", int(neighbours[at])
    pairs = np.sort(np.repeat(np.arange(sample), degrees) * sample + neighbours)
    twice = np.flatnonzero(pairs[1:] == pairs[:-1])
    if len(twice):
        return f"local position {pairs[twice[0]] // sample}", "different neighbours", "a neighbour twice"
    return None
