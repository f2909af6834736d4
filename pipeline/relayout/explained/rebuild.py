"""`explain --rebuild`: the format that a build of an index's vectors would choose, beside the one that the index has.

An index keeps no input, so its nodes tell the vectors: those that a build would draw, by their vector ids. Nodes that
are codes do not hold the vectors: exact vectors apart tell them, if the index has these, else what the codes decode to.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.kinds.common.ingest import stored_dtype
from indexmill.pipeline.kinds.common.judge import TARGET_RECALL
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, check_need
from indexmill.pipeline.kinds.graph.builder import with_builder
from indexmill.pipeline.kinds.graph.candidates import LEAST_VECTORS, Format, largest, open_formats
from indexmill.pipeline.kinds.graph.format import (
    WORTHWHILE,
    FormatSample,
    Tried,
    at,
    chosen,
    compared,
    drawn_alone,
    drawn_ids,
    measured,
    sample_facts,
    trial_indexes,
)
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import choosing_bytes, choosing_files, in_format
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.relayout.explained.explanation import own_scratch
from indexmill.pipeline.relayout.explained.streamed import read_slots

#: Bytes of a vector of the index, beside its ids, while those of the sample are drawn: a number, and whether it is in
#: the sample, by vector id and by slot.
_DRAW_BYTES = 10


@dataclass(frozen=True)
class Rebuild:
    """The format of an index and that of a build, by the searches of small indexes of the same vectors.

    Attributes
    ----------
    search_memory : str
        Limit of the memory that searches of the build may hold.
    codes_on_page : bool
        Whether nodes hold the codes of their neighbours, those of the index and of the build alike.
    sample : dict
        See `format.sample_facts`.
    recall : float
        What both are compared at.
    decoded : bool
        Whether the vectors are what codes decode to.
    now, chosen : Tried
    """

    search_memory: str
    codes_on_page: bool
    sample: dict[str, Any]
    recall: float
    decoded: bool
    now: Tried
    chosen: Tried

    @property
    def saves(self) -> float:
        """Share of the page reads that the build saves; negative if its searches read more."""
        return 1 - self.chosen.pages_read / self.now.pages_read

    @property
    def is_worthwhile(self) -> bool:
        """Whether the build reads clearly less at the recall of both, or reaches it, which the index does not."""
        if self.chosen.recall < self.recall:
            return False
        return self.now.recall < self.recall or self.chosen.pages_read <= WORTHWHILE * self.now.pages_read

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "search_memory": self.search_memory,
            "codes_on_page": self.codes_on_page,
            **self.sample,
            "decoded": self.decoded,
            "saves": round(self.saves, 4),
            "worthwhile": self.is_worthwhile,
            "now": self.now.facts(),
            "chosen": self.chosen.facts(),
        }


def run_rebuild(
    index: str | os.PathLike[str],
    options: RunOptions,
    search_memory: str | None = None,
    progress: Progress | None = None,
) -> Rebuild | None:
    """Compare the format of the index at `index` with the one that a build would choose.

    Reads ids.imx, and the pages of a few thousand nodes. Memory: ids.imx and 10 bytes a vector, or `choosing_bytes`
    if that is more; trials have as many of the workers as it holds.

    Parameters
    ----------
    search_memory : str, optional
        As `--search-memory` of a build; by default that of the index, or as many bytes as its codes have.

    Returns
    -------
    Rebuild or None
        None if the vectors are so few that a build would measure nothing.

    Raises
    ------
    BudgetError
        If `search_memory` holds no codes, or memory or disk do not hold the trials, naming what is needed.
    ConfigError
        If scratch files cannot be written.
    CorruptFile
        If a page that is read is damaged.
    """
    hold_little()
    run = GenerationRun(index, options, progress)
    with threadpool_limits(1), OpenedIndex(index) as opened:
        if opened.n < LEAST_VECTORS:
            return None
        dtype = stored_dtype(np.dtype(opened.input_dtype), opened.graph.metric)
        now = _format(opened, dtype)
        limit = search_memory or opened.parameters.search_memory or f"{now.pq_bytes}/vector"
        shape = _shape(opened, dtype, limit, options)
        formats = open_formats(shape)
        widest = [in_format(shape, one) for one in (now, largest(formats))]
        workers = _workers_within(opened, widest, options)
        with run.task("sample"):
            drawn = _drawn(opened, shape.parameters, dtype)
        with own_scratch(run) as scratch:
            space = max(choosing_files(one, len(formats) + 1) for one in widest)
            check_free(scratch, space, "comparison")
            with run.task("formats"), trial_indexes(drawn, scratch, workers) as tries:
                p, found = shape.parameters, chosen(tries, shape.parameters, formats)
                known = [one for one in found.tried if one.format == now]
                own = known[0] if known else measured(tries, p, now)
                at_target = [at(tries, p, one, TARGET_RECALL) for one in (own, found.best)]
                (own, best), recall = compared(tries, p, at_target)
        decoded = now.node_dtype != "same" and opened.vectors is None
        return Rebuild(limit, p.codes_on_page, sample_facts(drawn, recall), recall, decoded, own, best)


def _workers_within(index: OpenedIndex, widest: Sequence[GraphShape], options: RunOptions) -> int:
    """Return how many workers trials of indexes as large as any of `widest` have memory for, at most those given.

    Raises
    ------
    BudgetError
        If they have none for one worker.
    """

    def need(workers: int) -> int:
        trials = max(choosing_bytes(one, workers) for one in widest)
        return FIXED_BYTES + max(index.ids_bytes + _DRAW_BYTES * index.n, trials)

    workers = next((some for some in range(options.workers, 1, -1) if need(some) <= options.memory), 1)
    check_need("comparing formats takes", need(workers), options.memory)
    return workers


def _format(index: OpenedIndex, dtype: np.dtype[Any]) -> Format:
    """Return the format of an index of vectors that are stored as `dtype`."""
    node, codebook = index.graph.node_format, index.codes.codebook
    return Format(
        pq_bytes=len(codebook.offsets) - 1,
        pq_rotation="none" if codebook.rotation is None else "opq",
        node_dtype="same" if node.dtype == dtype.name else node.dtype,
        max_degree=node.max_degree,
    )


def _shape(index: OpenedIndex, dtype: np.dtype[Any], limit: str, options: RunOptions) -> GraphShape:
    """Return the shape of a build like that of `index` whose job leaves the format open."""
    others = index.parameters.model_dump(exclude={*Format._fields, "shard_vectors", "sample_vectors"})
    p = Parameters.model_validate(others | {"search_memory": limit, "order": index.order})
    shape = GraphShape(index.n, index.graph.node_format.dim, dtype, 0.0, p)
    return with_builder(shape, options.memory, "local", options.workers)[0]


def _drawn(index: OpenedIndex, p: Parameters, dtype: np.dtype[Any]) -> FormatSample:
    """Return the vectors by which a build would judge formats, from the files of `index`, and let go of its ids."""
    ids = drawn_ids(index.n, p)
    wanted = np.zeros(index.n, np.bool_)
    wanted[ids] = True
    slots = np.flatnonzero(wanted[index.vector_ids]).astype(np.uint32)
    held = index.vector_ids[slots]
    index.release_ids()
    rows = _stored(index, slots, dtype)
    by_id = np.argsort(held)
    return drawn_alone(rows[by_id[np.searchsorted(held, ids, sorter=by_id)]], p.metric)


def _stored(index: OpenedIndex, slots: NDArray[np.uint32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return stored vectors by `slots`, ascending, (m, stored dim): exact ones apart, or else what the nodes tell."""
    if index.vectors is not None:
        return index.vectors.take(slots)
    rows = index.space.as_given(index.space.compared(read_slots(index, slots).vectors))
    return np.rint(rows).astype(dtype) if dtype.kind != "f" and rows.dtype.kind == "f" else rows.astype(dtype)
