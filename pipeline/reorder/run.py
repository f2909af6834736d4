"""`layout` of another engine's graph file: the same graph and vectors in a new file, whose rows have an order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError, OutputExistsError
from indexmill.formats.pagefile.atomic import atomic_write, remove_unfinished
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.pagefile.mapped import create_npy, scratch_array
from indexmill.formats.reordered.graph_file import GraphFile
from indexmill.formats.reordered.opening import open_graph_file
from indexmill.layout.order import Adjacency, InputShape
from indexmill.layout.portfolio import ORDERS, USES_POINTS
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.generations.run import RunOptions, check_need
from indexmill.pipeline.generations.scratch import emptied, scratch_directory
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.order import order_bytes, order_threads
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.disk_space import check_free, check_room
from indexmill.pipeline.mill.progress import Progress, Silent, stage_progress
from indexmill.pipeline.mill.publish import output_lock
from indexmill.pipeline.relayout.fitting import FROM_FILE, read_order

#: The order by default, and where a file does not tell what its vectors mean.
DEFAULT_ORDER, WITHOUT_POINTS = "kmeans-pages", "star"
#: Least vertices that an order places side by side. Rows straddle the pages of a file, so neighbours share pages even
#: where a row is longer than a page; and a page holds the lists of more vertices than vectors.
LEAST_GROUP = 8
#: Memory of writing a file: bytes a vertex, and buffers.
_WRITE_BYTES, _WRITE_BUFFERS = 32, 128 << 20
#: Rows copied at a time.
_STEP = 8192
_SEED = 0


@dataclass(frozen=True)
class Reordered:
    """Outcome of a run.

    Attributes
    ----------
    kind : str
        What the file holds.
    order : str
        A key of `layout.portfolio.ORDERS`, or ``"file"``.
    n_vectors : int
    group : int
        Vertices that the order placed side by side; those of a page or more.
    bytes : int
        Size of the new file.
    ids : str
        How results name vectors.
    """

    kind: str
    order: str
    n_vectors: int
    group: int
    bytes: int
    ids: str


def run_reorder(
    path: str | os.PathLike[str],
    order: str | None,
    order_file: str | os.PathLike[str] | None,
    options: RunOptions,
    progress: Progress | None = None,
) -> Reordered:
    """Write an HNSW file of faiss or hnswlib with its rows in another order to `options.out`.

    A search of the new file computes the same distances and finds the same ids; ties of equal distances may be broken
    in another way. The original is only read, and the new file appears when it is complete. What a killed run left
    beside `options.out` is removed first.

    Parameters
    ----------
    order : str, optional
        A key of `layout.portfolio.ORDERS`; by default `DEFAULT_ORDER`, or `WITHOUT_POINTS`.
    order_file : path, optional
        In place of `order`: a .npy file with the row of the original in each place.

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change, a `BudgetError` if a disk is full; nothing is left behind.
    OSError
        If the new file cannot be written for another reason; nothing is left behind.
    """
    hold_little()
    path, progress = Path(path), progress or Silent()
    out = _checked_output(path, options)
    file = open_graph_file(path)
    default = WITHOUT_POINTS if file.points is None else DEFAULT_ORDER
    name = FROM_FILE if order_file is not None else order or default
    group = max(PAGE_BYTES // file.row_bytes, LEAST_GROUP)
    _check_order(file, name)
    threads = _threads_within(file, name, group, options)
    scratch = scratch_directory(out, options.work)
    with threadpool_limits(1), output_lock(out), told_when_full(partial(_disk_full_message, out)):
        remove_unfinished(out)
        check_free(scratch, _scratch_bytes(file, name), "layout")
        check_room(out, file.size)
        with emptied(scratch):
            graph = _graph(file, scratch, progress)
            if order_file is not None:
                chosen = read_order(Path(order_file), file.n).order
            else:
                points = _points(file, scratch) if name in USES_POINTS else None
                with stage_progress(progress, "order", 1, "tasks"):
                    given = partial(scratch_array, scratch)
                    chosen = ORDERS[name].fit(graph, points, group, _SEED, threads=threads, scratch=given)
                    progress.advance(1)
                chosen = np.roll(chosen, rows_before_page(file))
            del graph
        with stage_progress(progress, "write", file.passes * file.n, "vectors"), atomic_write(out) as new:
            file.write(chosen, new, progress.advance)
    return Reordered(file.kind, name, file.n, group, file.size, file.ids)


def rows_before_page(file: GraphFile) -> int:
    """Return how many rows end before the first page boundary behind the first row.

    The last rows of an order go there, so that its groups begin where pages do, as nearly as rows let them.
    """
    return min(-file.rows_begin % PAGE_BYTES // file.row_bytes, file.n - 1)


def _disk_full_message(out: Path, path: str, reason: str) -> str:
    """Say that a disk is full, and what to do."""
    return (
        f"{path or out}: {reason}; no file was written; free some space, or name another --work or --out, and run "
        "again"
    )


def _checked_output(path: Path, options: RunOptions) -> Path:
    if options.out is None:
        raise ConfigError(
            f"out: a file is not replaced; name the new one with --out, and {path} stays as it is"
        )
    out = Path(os.path.realpath(options.out))
    if out == Path(os.path.realpath(path)):
        raise ConfigError(f"out: {out} is the file to read; name another one")
    if out.is_dir():
        raise OutputExistsError(f"out: {out} is a directory; name a file")
    if out.exists() and not options.force:
        raise OutputExistsError(f"out: {out} exists; add --force to replace it, or name another file")
    return out


def _check_order(file: GraphFile, name: str) -> None:
    if name in USES_POINTS and file.points is None:
        raise ConfigError(
            f"order: {name} compares vectors, and {file.path} ({file.kind}) does not say how; choose one made of edges "
            "alone, such as star"
        )


def _threads_within(file: GraphFile, name: str, group: int, options: RunOptions) -> int:
    """Return on how many threads the order fits the budget.

    Raises
    ------
    BudgetError
        If it does not fit on one.
    """
    writing, held = file.n * _WRITE_BYTES + _WRITE_BUFFERS, FIXED_BYTES + file.held_bytes
    if name == FROM_FILE:
        check_need(f"writing {file.n:,} vectors takes", held + writing, options.memory)
        return 1
    shape = (name, file.n, group, file.lists.width)
    need = held + max(order_bytes(*shape, 1, divided=False), writing)
    hint = "" if name == WITHOUT_POINTS else f", or take --order {WITHOUT_POINTS}"
    check_need(f"the order {name} of {file.n:,} vectors takes", need, options.memory, hint)
    return order_threads(*shape, options.workers, options.memory - held, divided=False)


def _scratch_bytes(file: GraphFile, name: str) -> int:
    """Return the size of the graph, of the vectors if the order called `name` uses them, and of what the order maps."""
    points, width = file.points, file.lists.width
    dim, dtype = (0, np.dtype(np.uint8)) if points is None else (points.shape[1], points.dtype)
    mapped = 0 if name == FROM_FILE else ORDERS[name].scratch_bytes(InputShape(file.n, width, dim, dtype))
    return file.n * (4 + 4 * width + (name in USES_POINTS) * dim * dtype.itemsize) + mapped


def _graph(file: GraphFile, scratch: Path, progress: Progress) -> Adjacency:
    """Copy the lists of level 0, checked, into mapped files."""
    neighbours = create_npy(scratch / "neighbours.npy", np.uint32, (file.n, file.lists.width))
    degrees = create_npy(scratch / "degrees.npy", np.int32, (file.n,))
    with stage_progress(progress, "read", file.n, "vectors"):
        for first, lists, lengths in file.lists.blocks():
            last = first + len(lists)
            # What stands behind the end of a list means nothing.
            neighbours[first:last] = np.where(lists < file.n, lists, 0)
            degrees[first:last] = lengths
            progress.advance(len(lists))
    return Adjacency(neighbours, degrees)


def _points(file: GraphFile, scratch: Path) -> NDArray[Any]:
    """Copy the vectors into a mapped file, where they are aligned."""
    points = file.points
    assert points is not None
    mapped = create_npy(scratch / "points.npy", points.dtype, points.shape)
    for first in range(0, file.n, _STEP):
        mapped[first : first + _STEP] = points[first : first + _STEP]
    return mapped
