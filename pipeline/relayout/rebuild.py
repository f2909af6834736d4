"""`explain --rebuild`: the format that a build of an index's vectors would choose, beside the one that the index has.

An index keeps no input, so its nodes tell the vectors: those that a build would draw, by their vector ids. Nodes that
are codes do not hold the vectors: exact vectors apart tell them, if the index has these, else what the codes decode to.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun, RunOptions, check_need
from indexmill.pipeline.kinds.common.ingest import stored_dtype
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.builder import with_builder
from indexmill.pipeline.kinds.graph.candidates import Format, largest, open_formats
from indexmill.pipeline.kinds.graph.format import (
    Drawn,
    Tried,
    chosen,
    drawn_alone,
    drawn_ids,
    measured,
    sample_facts,
    trials,
)
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import choosing_bytes, choosing_files, in_format
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.relayout.explain import own_scratch
from indexmill.pipeline.relayout.streamed import read_slots

#: Bytes of a vector of the index while those of the sample are drawn: a number, and whether it is in the sample.
_DRAW_BYTES = 9


@dataclass(frozen=True)
class Rebuild:
    """The format of an index and that of a build, by the searches of small indexes of the same vectors.

    Attributes
    ----------
    search_memory : str
        Limit of the memory that searches of the build may hold.
    sample : dict
        See `format.sample_facts`.
    decoded : bool
        Whether the vectors are what codes decode to.
    now, chosen : Tried
    """

    search_memory: str
    sample: dict[str, Any]
    decoded: bool
    now: Tried
    chosen: Tried

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "search_memory": self.search_memory,
            **self.sample,
            "decoded": self.decoded,
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

    Reads ids.imx, and the pages of a few thousand nodes. Memory: `choosing_bytes`, and 9 bytes a vector.

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
        dtype = stored_dtype(np.dtype(opened.input_dtype), opened.graph.metric)
        now = _format(opened, dtype)
        limit = search_memory or opened.parameters.search_memory or f"{now.pq_bytes}/vector"
        shape = _shape(opened, dtype, limit, options)
        formats = open_formats(shape)
        if len(formats) == 1:
            return None
        widest = in_format(shape, largest([now, *formats]))
        need = FIXED_BYTES + choosing_bytes(widest, options.workers) + _DRAW_BYTES * opened.n
        check_need("comparing formats takes", need, options.memory)
        with run.task("sample"):
            drawn = _drawn(opened, shape.parameters, dtype)
        with own_scratch(run) as scratch:
            check_free(scratch, choosing_files(widest, len(formats) + 1), "comparison")
            return _compared(run, scratch, drawn, shape.parameters, now, formats, limit)


def _compared(
    run: GenerationRun, scratch: Path, drawn: Drawn, p: Parameters, now: Format, formats: list[Format], limit: str
) -> Rebuild:  # fmt: skip
    with run.task("formats"), trials(drawn, p.metric, scratch, run.options.workers) as tries:
        best, tried = chosen(tries, p, formats)
        known = [one for one in tried if one.format == now]
        own = known[0] if known else measured(tries, p, now)
    decoded = now.node_dtype != "same" and not p.keep_vectors
    return Rebuild(limit, sample_facts(drawn), decoded, own, best)


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


def _drawn(index: OpenedIndex, p: Parameters, dtype: np.dtype[Any]) -> Drawn:
    """Return the vectors by which a build would judge formats, from the files of `index`, and let go of its ids."""
    ids = drawn_ids(index.n, p)
    wanted = np.zeros(index.n, np.bool_)
    wanted[ids] = True
    slots = np.flatnonzero(wanted[index.vector_ids]).astype(np.uint32)
    held = index.vector_ids[slots]
    index.release_ids()
    rows = _stored(index, slots, dtype)
    by_id = np.argsort(held)
    return drawn_alone(rows[by_id[np.searchsorted(held, ids, sorter=by_id)]])


def _stored(index: OpenedIndex, slots: NDArray[np.uint32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return stored vectors by `slots`, ascending, (m, stored dim): exact ones apart, or else what the nodes tell."""
    if index.vectors is not None:
        return index.vectors.take(slots)
    rows = index.space.as_given(index.space.compared(read_slots(index, slots).vectors))
    return np.rint(rows).astype(dtype) if dtype.kind != "f" and rows.dtype.kind == "f" else rows.astype(dtype)
