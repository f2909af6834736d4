"""Stage *levels*: the graphs above level 0, each over a sample of the vectors of the level below."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.entries import medoid
from indexmill.builders.vamana.levels import draw_levels
from indexmill.formats.exports.hnsw import Level
from indexmill.pipeline.kinds.graph.tasks import BuildArguments

VERSION = 1
_FACTS = "levels.json"
_PARTS = ("vertices", "neighbours", "degrees")


def levels_task(vectors: str, p: BuildArguments, out: str, threads: int) -> None:
    """Write the upper levels, and the vertex where searches start: the medoid of the highest.

    Parameters
    ----------
    p : BuildArguments
        With the neighbours of a vertex on an upper level as `max_degree`, by which levels shrink, too.
    """
    rows = np.load(vectors, mmap_mode="r")
    levels, entry = draw_levels(len(rows), p.max_degree, p.seed), None
    for number, vertices in enumerate(levels):
        neighbours, degrees, start = _level(rows[vertices], p, threads)
        entry = int(vertices[start])
        for part, values in zip(_PARTS, (vertices, vertices[neighbours], degrees), strict=True):
            np.save(_file(Path(out), number, part), values)
    (Path(out) / _FACTS).write_text(json.dumps({"levels": len(levels), "entry": entry}))


def load_levels(directory: Path) -> tuple[list[Level], int | None]:
    """Map what `levels_task` wrote; there is no vertex to start at without upper levels."""
    facts = json.loads((directory / _FACTS).read_text())
    levels = [
        Level(*(np.load(_file(directory, number, part), mmap_mode="r") for part in _PARTS))
        for number in range(facts["levels"])
    ]
    return levels, facts["entry"]


def _level(
    rows: NDArray[Any], p: BuildArguments, threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.int32], int]:
    """Return lists, degrees and medoid of the graph of some vectors, in rows."""
    if len(rows) == 1:
        return np.zeros((1, p.max_degree), np.uint32), np.zeros(1, np.int32), 0
    start = medoid(rows, rows.mean(axis=0, dtype=np.float64))
    graph = p.build(p.taken(rows), start, threads, None)
    return graph.neighbours, graph.degrees, graph.entry


def _file(directory: Path, number: int, part: str) -> Path:
    return directory / f"{number + 1}-{part}.npy"
