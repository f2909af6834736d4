"""What a build of a hierarchical graph takes, known before anything is read."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

from indexmill.formats.errors import BudgetError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.hnsw.parameters import HnswJob
from indexmill.pipeline.hnsw.stored import raw_source
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.shape import GraphShape, built_bytes, leaf_work_bytes
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.spec import BuildSpec

#: Standard deviations by which a drawn level may exceed its mean.
_DEVIATIONS = 6
_MIB = 1 << 20


def check_fits(job: HnswJob, memory: int, workers: int, work: Path) -> None:
    """Refuse a build that does not fit; nothing is read or written.

    Parameters
    ----------
    work : Path
        An existing directory on the disk that the build writes to.

    Raises
    ------
    BudgetError
        Naming the memory or the space that is needed.
    ConfigError, InputError
        If the numbers of the job do not go together.
    """
    check_free(work, job.n * job.dim * job.built_dtype.itemsize)  # at once, where counting would take seconds
    size = resolved(job, job.spec(memory, workers), raw_source(job, None))
    size.check_space(work, 0)


def resolved(job: HnswJob, spec: BuildSpec, source: VectorSource) -> GraphSize:
    """Return the size of level 0, whose memory holds the levels above it, too.

    Raises
    ------
    ConfigError, InputError, BudgetError
    """
    size = GraphSize(spec, source)
    need = FIXED_BYTES + levels_bytes(size.shape, job.m, spec.workers)
    if need > spec.memory:
        raise BudgetError(
            f"memory: level 1 of {job.n:,} vectors needs {need:,} bytes in one piece, the budget is {spec.memory:,}; "
            f"give at least {-(-need // _MIB):,}MiB, or a larger m"
        )
    return size


def levels_bytes(shape: GraphShape, m: int, workers: int) -> int:
    """Return the memory of the graph of level 1, the largest of those above level 0, from rows that are copied."""
    n = min(shape.n, int(shape.n / m + _DEVIATIONS * sqrt(shape.n / m)) + 1)
    upper = replace(
        shape, parameters=shape.parameters.model_copy(update={"max_degree": m}), region_bytes=None
    )
    drawn = 0 if shape.is_taken else n * shape.row_bytes
    return 17 * shape.n // m + drawn + built_bytes(n, upper) + workers * leaf_work_bytes(upper)
