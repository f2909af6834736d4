"""`layout`: an order for a finished index, its files written again in that order, the next generation published."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.errors import BudgetError
from indexmill.layout.portfolio import ORDERS, USES_POINTS
from indexmill.pipeline.allocator import give_back, hold_little
from indexmill.pipeline.budget import FIXED_BYTES
from indexmill.pipeline.extend_index import OpenedIndex
from indexmill.pipeline.generation import GenerationRun, RunOptions
from indexmill.pipeline.progress import Progress
from indexmill.pipeline.relayout.fitting import FROM_FILE, Fitted, fit, read_order
from indexmill.pipeline.relayout.record import layout_record, manifest_of
from indexmill.pipeline.relayout.rewrite import write_files
from indexmill.pipeline.relayout.unpacked import UnpackedIndex, drop_graph, map_array, unpack

AUTO = "auto"
#: Bytes a vertex while an order is fitted, that of the result included; the rest of the portfolio also holds the
#: reverse graph, which takes 4 bytes an edge.
_ORDER_BYTES = {"identity": 12, "random": 20, "star": 30, FROM_FILE: 24}
_OTHER_ORDER_BYTES = 100
#: Nodes on their way into chunk files, and from there to pages.
_BUFFER_BYTES = 48 << 20


@dataclass(frozen=True)
class LayoutRequest:
    """What to lay an index out by; all of it may reach the bytes.

    Attributes
    ----------
    order : str
        A key of `layout.portfolio.ORDERS`.
    order_file : path, optional
        In place of `order`: a .npy file with the vector id in each slot.
    work : int, optional
        Units that fitting may take (`layout.order.Work`).
    """

    order: str = "star"
    order_file: str | os.PathLike[str] | None = None
    work: int | None = None

    @property
    def name(self) -> str:
        """What the manifest calls the order."""
        return self.order if self.order_file is None else FROM_FILE


def run_layout(
    index: str | os.PathLike[str],
    request: LayoutRequest,
    options: RunOptions,
    progress: Progress | None = None,
) -> dict[str, Any] | None:
    """Lay an index out again and publish the next generation.

    Vectors, codes, neighbour lists, ids and metadata stay what they are, so the files are those that a build of that
    order would have written. Memory beside the page cache is that of the order: for star packing 30 bytes a vertex.

    Returns
    -------
    dict or None
        The manifest, as published; None if the index is laid out in this order already and nothing was written.

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change; the index is then as it was.
    """
    hold_little()
    run = GenerationRun(index, options, progress)
    with run.working() as scratch, OpenedIndex(index) as opened:
        _check_memory(opened, request.name, options.memory)
        unpacked = _unpack(run, opened, scratch, request.order in USES_POINTS)
        with run.stage("order", 1, "tasks") as advance:
            fitted = _fit(opened, unpacked, request, options, scratch)
            advance(1)
        return _publish(run, opened, unpacked, fitted, scratch)


def _unpack(run: GenerationRun, opened: OpenedIndex, scratch: Path, with_points: bool) -> UnpackedIndex:
    with run.stage("unpack", opened.n, "vectors") as advance:
        unpacked = unpack(opened, scratch, with_points, advance)
    give_back()
    return unpacked


def _fit(
    opened: OpenedIndex, unpacked: UnpackedIndex, request: LayoutRequest, options: RunOptions, scratch: Path
) -> Fitted:
    if request.order_file is not None:
        return read_order(Path(request.order_file), opened.n)
    per_page = max(opened.graph.node_format.nodes_per_page, 1)
    return fit(
        request.order, unpacked, per_page, opened.parameters.seed, options.workers, request.work, scratch
    )


def _publish(
    run: GenerationRun, opened: OpenedIndex, unpacked: UnpackedIndex, fitted: Fitted, scratch: Path
) -> dict[str, Any] | None:
    """Write and publish the index laid out as `fitted` says, unless it is so already."""
    if run.in_place and np.array_equal(fitted.order, unpacked.vector_ids):
        return None
    order = map_array(scratch / "order.npy", fitted.order)
    fitted = Fitted(**{**vars(fitted), "order": order})
    give_back()
    with run.stage("measure", 1, "tasks") as advance:
        layout = layout_record(opened, unpacked.graph, fitted)
        advance(1)
    vector_ids = unpacked.vector_ids
    del unpacked
    drop_graph(scratch)
    give_back()
    directory = scratch / "index"
    directory.mkdir()
    with run.stage("emit", 2 * opened.n, "nodes") as advance:
        build_id, files = write_files(
            opened, vector_ids, order, scratch, directory, run.options.memory, advance
        )
    manifest = manifest_of(opened, layout, build_id, files)
    return run.publish(directory, manifest, opened.manifest.build_id, {"work": fitted.work})


def _check_memory(opened: OpenedIndex, name: str, memory: int) -> None:
    """Refuse a layout that does not fit `memory` bytes.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    each = _ORDER_BYTES.get(name, _OTHER_ORDER_BYTES + 4 * opened.graph.node_format.max_degree)
    user_ids = 3 * opened.ids_bytes if opened.user_ids is not None else 0
    need = FIXED_BYTES + max(_BUFFER_BYTES + user_ids, opened.n * each + (4 << 20))
    if need > memory:
        raise BudgetError(
            f"memory: the order {name} of {opened.n:,} vectors takes {need:,} bytes beside the page cache, and the "
            f"budget is {memory:,}; give at least {need:,} bytes with --memory, or take --order star"
        )


__all__ = ["AUTO", "ORDERS", "LayoutRequest", "run_layout"]
