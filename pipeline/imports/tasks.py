"""Tasks of an import in the place of those of a build: they write the other program's graph, codes and entries."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.vamana.adopt import adopt_lists
from indexmill.builders.vamana.connect import connect_unreachable, count_unreachable
from indexmill.formats.errors import InputError
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.imports.index import ImportedCodes, ImportedEntries, ImportedIndex
from indexmill.formats.imports.mapped import damaged_codes
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.kinds.common.encode import save_codebook
from indexmill.pipeline.kinds.graph.tasks import write_facts

GRAPH_VERSION = 2
CODES_VERSION = 2
#: Facts that the graph task learnt; the manifest tells them.
FACTS = "imported.json"
#: Vectors that codes are compared with, and codes copied at a time.
_COMPARED, _BLOCK = 10_000, 262_144
#: Codes of these vectors leave less than their variance; codes of others leave about twice as much.
_OTHER_ERROR = 1.2


def medoid_task(medoid: int, out: str, threads: int) -> None:
    """Write ``cluster.json`` with the vertex that the other program starts at."""
    (Path(out) / "cluster.json").write_text(json.dumps({"medoid": medoid}))


def graph_task(
    index: ImportedIndex,
    vectors: str,
    max_degree: int,
    entry: int,
    list_size: int,
    repair: bool,
    out: str,
    threads: int,
    advance: Any = None,
) -> None:
    """Write the graph as `pipeline.kinds.graph.tasks.save_graph` does, and what was found about it.

    Lists are sorted, nearest first; with `repair`, edges are added to what `entry` does not reach. The arrays are
    mapped files. Memory: a block of lists, and 5 bytes a vertex while the graph is walked.

    Parameters
    ----------
    vectors : str
        File of the vectors.
    max_degree : int
        R, at least the longest list of `index`.

    Raises
    ------
    InputError
        If a list is longer: the files have changed since they were measured.
    """
    directory = Path(out)
    n = index.vectors.n_rows
    neighbours = create_npy(directory / "neighbours.npy", np.uint32, (n, max_degree))
    degrees = create_npy(directory / "degrees.npy", np.int32, (n,))
    width = min(index.lists.width, max_degree)
    for block in index.lists.blocks():
        rows = slice(block.first, block.first + len(block.degrees))
        if block.degrees.max() > max_degree:
            vertex = block.first + int(block.degrees.argmax())
            raise InputError(
                f"{index.files[0]}: vertex {vertex:,}: expected at most {max_degree} neighbours as before, got "
                f"{block.degrees.max()}; it has changed while it was imported; run again when it is finished"
            )
        inside = np.arange(width) < block.degrees[:, None]
        neighbours[rows, :width] = np.where(inside, block.neighbours[:, :width], np.uint32(0))
        degrees[rows] = block.degrees
        if advance is not None:
            advance(len(block.degrees))
    rows_compared = np.load(vectors, mmap_mode="r")
    dropped = adopt_lists(rows_compared, neighbours, degrees, threads)
    unreachable, added = count_unreachable(neighbours, degrees, entry), 0
    if unreachable and repair:
        added = connect_unreachable(rows_compared, neighbours, degrees, entry, list_size)
    neighbours.flush()
    degrees.flush()
    write_facts(directory, entry, added, [n])
    found = {"unreachable": unreachable, "repaired": bool(added), "dropped_neighbours": dropped}
    (directory / FACTS).write_text(json.dumps(found))


def codes_task(codes: ImportedCodes, vectors: str, out: str, threads: int, advance: Any = None) -> None:
    """Write codebook and codes as `pipeline.kinds.common.encode.encode_task` does.

    A codebook of the user's components gets the one that inner product adds: for each centre of the last chunk the
    mean over the vectors that have it, which is the best there is for these codes.

    Raises
    ------
    CorruptFile
        If a code names no centre, or the codes are not those of the vectors.
    """
    rows = np.load(vectors, mmap_mode="r")
    _check_codes(codes)
    if codes.codebook.pivots.shape[1] < rows.shape[1]:
        codes = replace(codes, codebook=_with_added_component(codes, rows))
    book = codes.codebook
    _check_belonging(codes, rows)
    kept = create_npy(Path(out) / "codes.npy", np.uint8, codes.codes.shape)
    for first in range(0, len(kept), _BLOCK):
        block = codes.codes[first : first + _BLOCK]
        kept[first : first + len(block)] = block
        if advance is not None:
            advance(len(block))
    kept.flush()
    save_codebook(book, Path(out))


def _check_codes(codes: ImportedCodes) -> None:
    """Refuse codes that name no centre."""
    n_centres = len(codes.codebook.pivots)
    for first in range(0, len(codes.codes), _BLOCK):
        block = codes.codes[first : first + _BLOCK]
        if block.max() >= n_centres:
            row = first + int(np.argmax((block >= n_centres).any(axis=1)))
            where = f"byte {codes.begin + row * block.shape[1]:,}: code of vector {row:,}"
            raise damaged_codes(codes.path, where, f"values below {n_centres}", codes.codes[row].max())


def _with_added_component(codes: ImportedCodes, rows: NDArray[Any]) -> Codebook:
    """Return the codebook with one component more, see `codes_task`; a centre that no code names has their mean."""
    book = codes.codebook
    sums, counts = np.zeros(len(book.pivots)), np.zeros(len(book.pivots))
    for first in range(0, len(rows), _BLOCK):
        last = codes.codes[first : first + _BLOCK, -1]
        sums += np.bincount(last, rows[first : first + _BLOCK, -1], len(sums))
        counts += np.bincount(last, minlength=len(sums))
    means = np.where(counts > 0, sums / np.maximum(counts, 1), sums.sum() / len(rows))
    offsets = book.offsets.copy()
    offsets[-1] += 1
    pivots = np.column_stack([book.pivots, means]).astype(np.float32)
    if book.rotation is None:
        return Codebook(pivots, offsets)
    rotation = np.eye(pivots.shape[1], dtype=np.float32)  # which leaves the component that is added as it is
    rotation[:-1, :-1] = book.rotation
    return Codebook(pivots, offsets, rotation)


def _check_belonging(codes: ImportedCodes, rows: NDArray[Any]) -> None:
    """Refuse codes that stand for other vectors than `rows`, by the error of at most 10,000 evenly spaced ones."""
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), _COMPARED)).astype(np.int64)
    book = codes.codebook
    sample = book.rotated(rows[chosen]).astype(np.float64)
    total = float(np.square(sample - book.decoded(codes.codes[chosen])).sum())
    spread = float(np.square(sample - sample.mean(axis=0)).sum())
    scale = float(np.square(sample).sum())
    if total > _OTHER_ERROR * spread + 1e-6 * scale:
        raise damaged_codes(
            codes.path,
            "codes (are all files of one index, and is the dtype right?)",
            f"a squared error of at most {spread / len(chosen):.4g}, the variance of the vectors",
            f"{total / len(chosen):.4g}",
        )


def entries_task(entries: ImportedEntries, out: str, threads: int) -> None:
    """Write centroids and their vertices as `pipeline.kinds.graph.entries.entries_task` does."""
    np.save(Path(out) / "centroids.npy", entries.centroids)
    np.save(Path(out) / "vertices.npy", entries.vertices)


def load_facts(directory: Path) -> dict[str, Any]:
    """Read what `graph_task` learnt."""
    facts: dict[str, Any] = json.loads((directory / FACTS).read_text())
    return facts
