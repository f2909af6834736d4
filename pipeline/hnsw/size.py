"""Memory and disk space of a build of a hierarchical graph, predicted from its numbers alone."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np

from indexmill.formats.errors import BudgetError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.hnsw.parameters import HnswJob
from indexmill.pipeline.hnsw.recipe import file_stage
from indexmill.pipeline.hnsw.stored import raw_source
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph.shape import GraphShape, built_bytes, leaf_work_bytes
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.spec import BuildSpec

#: Standard deviations by which a drawn level may exceed its mean.
_DEVIATIONS = 6
_MIB = 1 << 20


def check_fits(job: HnswJob, memory: int, workers: int, work: Path, held: int = 0, freed: int = 0) -> None:
    """Refuse a build that does not fit; nothing is read or written.

    Parameters
    ----------
    work : Path
        An existing directory on the disk that the build writes to.
    held : int
        Bytes there of an earlier try, which are used again or freed.
    freed : int
        Bytes there of the running build, which are removed before this one begins.

    Raises
    ------
    BudgetError
        Naming the memory or the space that is needed.
    ConfigError, InputError
        If the numbers of the job do not go together.
    """
    at_last = sum(last_files(job).values())  # known at once, where a plan would take seconds
    check_free(work, at_last - held, freed=freed)
    check_free(work, needed_disk(job, memory, workers) - held, freed=freed)


def needed_disk(job: HnswJob, memory: int, workers: int) -> int:
    """Return the most bytes that the files of a build take at a time.

    Raises
    ------
    BudgetError
        If the build does not fit memory.
    ConfigError, InputError
        If the numbers of the job do not go together.
    """
    return resolved(job, job.spec(memory, workers), raw_source(job, None)).needed_scratch()[0]


class HnswSize(GraphSize):
    """Size of level 0, with the files of the whole build.

    Parameters
    ----------
    job : HnswJob
    spec : BuildSpec
        Of level 0.
    source : VectorSource
    """

    def __init__(self, job: HnswJob, spec: BuildSpec, source: VectorSource) -> None:
        super().__init__(spec, source, job.fanouts, by_codes=True)
        self._hnsw = job

    def stage_files(self) -> dict[str, int]:
        """See `Size.stage_files`."""
        return last_files(self._hnsw) | super().stage_files()

    def last_stage(self, mill: Mill, first: Stage, summary: InputSummary) -> Stage:
        """See `Size.last_stage`: that of the file, for which no page of level 0 is packed."""
        return file_stage(self._hnsw, self.recipe(mill, first, summary), [], None)


def resolved(job: HnswJob, spec: BuildSpec, source: VectorSource) -> HnswSize:
    """Return the size of level 0, whose memory holds the levels above it, too.

    Raises
    ------
    ConfigError, InputError, BudgetError
    """
    size = HnswSize(job, spec, source)
    need = FIXED_BYTES + levels_bytes(size.shape, job.m, spec.workers)
    if need > spec.memory:
        raise BudgetError(
            f"memory: level 1 of {job.n:,} vectors needs {need:,} bytes in one piece, the budget is {spec.memory:,}; "
            f"give at least {-(-need // _MIB):,}MiB, or a larger m"
        )
    return size


def last_files(job: HnswJob) -> dict[str, int]:
    """Return the bytes of the stages that lie in the work directory when the file is finished, beside level 0's own."""
    n, m = job.n, job.m
    upper = n / (m - 1)  # a level has one vertex in m of the level below
    drawn = int(upper + _DEVIATIONS * sqrt(upper)) + 1
    kept = job.dim * np.dtype(job.component).itemsize * job.has_vectors
    return {
        "ingest": n * job.dim * job.built_dtype.itemsize,
        "levels": drawn * 4 * (m + 2),
        "ids": job.ids_bytes,
        # a level, the end of its places, the places of level 0, and an int64 id
        "file": n * (4 + 8 + 4 * 2 * m + 8 + kept) + drawn * 4 * m,
    }


def levels_bytes(shape: GraphShape, m: int, workers: int) -> int:
    """Return the memory of the graph of level 1, the largest of those above level 0, from rows that are copied."""
    n = min(shape.n, int(shape.n / m + _DEVIATIONS * sqrt(shape.n / m)) + 1)
    upper = replace(
        shape, parameters=shape.parameters.model_copy(update={"max_degree": m}), region_bytes=None
    )
    drawn = 0 if shape.is_taken else n * shape.row_bytes
    return 17 * shape.n // m + drawn + built_bytes(n, upper) + workers * leaf_work_bytes(upper)
