"""`Size` of an IVF job: a `shape` that fits its memory, with centroids that the job may name, and its cost."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.pq import N_CENTRES
from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.sources.source import VectorSource, read_queries
from indexmill.pipeline.execution.schedule import Work
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.memory import task_bytes
from indexmill.pipeline.kinds.common.metric import unit
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.ivf import memory
from indexmill.pipeline.kinds.ivf.parameters import MOST_LISTS, IvfParameters
from indexmill.pipeline.kinds.ivf.recipe import IvfRecipe
from indexmill.pipeline.kinds.ivf.seconds import Rates, stage_seconds, timed_tasks
from indexmill.pipeline.kinds.ivf.shape import IvfShape, with_batches, with_codes
from indexmill.pipeline.kinds.ivf.tasks import GRAPH_FROM
from indexmill.pipeline.kinds.rehearsal import REHEARSED, Rehearsal, few
from indexmill.pipeline.kinds.scratch import SideColumns
from indexmill.pipeline.kinds.size import ClusterSize, Job
from indexmill.pipeline.mill.stages import Mill, Stage

#: Vectors of a sample for each of its centroids at least; with fewer their residuals are shorter than those of others.
_TRAINED_ON = 32
#: Scratch space that does not grow with the input.
_SLACK = 256 << 20
#: Parameters of tiny builds, where they choose no kernels.
_SMALL = {
    "pq_bytes": 4, "batch_vectors": REHEARSED // 2, "sample_vectors": REHEARSED, "closure": 0.3, "seed": 1,
    "compute": "cpu",
}  # fmt: skip


class IvfSize(ClusterSize[IvfShape]):
    """The size of an IVF build; see `Size`.

    Attributes
    ----------
    shape : IvfShape
        With parameters that say how large batches and PQ codes are, and whether these are rotated.
    given : float32 array, shape (n_lists, dim), or None
        Centroids to use in place of trained ones.
    """

    before_kernels = ClusterSize.before_kernels | {"assign"}
    start_seconds = 1.1
    trained_in = "centroids"

    def __init__(self, job: Job, source: VectorSource) -> None:
        super().__init__(job, source)
        p = job.parameters
        assert isinstance(p, IvfParameters)
        self.given = _given_centroids(job.centroids, source, p) if job.centroids is not None else None
        resolved = p if self.given is None else p.model_copy(update={"lists": len(self.given)})
        asked = with_codes(IvfShape(*stored_vectors(source, p.metric), self.side.ids, resolved))
        self.shape = with_batches(asked, job.memory)
        memory.check_memory(self.shape, job.memory, job.executor, job.workers, asked)

    @classmethod
    def rehearsals(cls, job: Job, source: VectorSource) -> list[Rehearsal]:
        """Return a build of few lists; and one of given centroids, if the job has so many that a graph links them."""
        p = cls(job, source).shape.parameters
        small = p.model_copy(update=_SMALL | {"lists": few(p.lists, 64), "copies": min(p.copies, 2)})
        found = [Rehearsal(small.model_dump(), source.dtype.name)]
        if p.lists >= GRAPH_FROM:
            linked = small.model_copy(update={"metric": "l2"})
            found.append(Rehearsal(linked.model_dump(), source.dtype.name, centroids=GRAPH_FROM))
        return found

    def stage_bytes(self) -> dict[str, int]:
        """See `Size.stage_bytes`."""
        return memory.stage_bytes(self.shape, self.job.memory, self.job.workers)

    def stage_files(self) -> dict[str, int]:
        """See `Size.stage_files`."""
        return stage_files(self.shape, self.side)

    def timed(self, place: Path) -> Rates:
        """See `Size.timed`."""
        return timed_tasks(self.source, self.shape, place)

    def seconds_at(self, rates: Rates) -> dict[str, float]:
        """See `Size.seconds_at`."""
        return stage_seconds(rates, self.shape, self.job.memory, self.job.workers, self.stage_files())

    def training_seconds(self, rates: Rates) -> float:
        """See `Size.training_seconds`."""
        return rates.coding / self.job.workers + rates.decomposing

    def node_rates(self, place: Path) -> Rates:
        """See `ClusterSize.node_rates`: rates are those of one thread."""
        return self.timed(place)

    def works(self, rates: Rates) -> dict[str, Work]:
        """See `ClusterSize.works`."""
        job, shape, files = self.job, self.shape, self.stage_files()
        cuts = shape.cuts(job.memory)
        spans = sum(len(cut) - 1 for cut in cuts)
        seconds = stage_seconds(rates, shape, job.memory, job.workers, files)
        works = {name: Work(float(total), task_bytes=job.memory) for name, total in seconds.items()}
        alone = stage_seconds(rates, shape, job.memory, 1, files)
        for name, tasks in {"assign": spans, "pack": spans, "lists": len(cuts)}.items():
            writing = files[name] * rates.writing
            total = float(alone[name]) - writing
            works[name] = Work(total, tasks, False, task_bytes(job.memory), writing=writing)
        works["ingest"] = replace(works["ingest"], is_remote=False)
        works["pack"] = replace(works["pack"], by_share=("assign",))
        works["lists"] = replace(works["lists"], by_share=("assign", "pack"))
        works["emit"] = replace(works["emit"], linked_bytes=files["lists"])
        return works

    @property
    def pieces(self) -> int:
        """Batches."""
        return len(self.shape.batches) - 1

    @property
    def index_bytes(self) -> int:
        """See `Size.index_bytes`: the lists, which are linked, and what *emit* writes."""
        files = self.stage_files()
        return files["lists"] + files["emit"]

    def for_codes(self, parts: int) -> Self:
        """See `Size.for_codes`: with as many lists as all parts have, if sample and memory allow.

        Codes are those of residuals, which are shorter the more centroids there are. Only stages *sample* and
        *centroids* have so many lists.
        """
        p = self.shape.parameters
        most = min(p.lists * parts, self.shape.drawn // _TRAINED_ON, MOST_LISTS)
        lists = memory.most_lists(self.shape, self.job.memory, most)
        larger = copy(self)
        larger.shape = replace(self.shape, parameters=p.model_copy(update={"lists": lists}))
        return larger

    def facts(self) -> dict[str, Any]:
        """Return ``ivf``: lists, bytes of a row, batches and bytes of the index."""
        shape = self.shape
        facts = {
            "lists": shape.parameters.lists,
            "codec": shape.parameters.list_codec,
            "row_bytes": shape.list_row_bytes,
            "batches": len(shape.batches) - 1,
            "batch_vectors": min(shape.parameters.batch_vectors or shape.n, shape.n),
            "index_bytes": self.index_bytes,
        }
        return {"ivf": facts}

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> IvfRecipe:
        """See `Size.recipe`."""
        return IvfRecipe(mill, first, summary, self.shape, self.job.memory, self.given)

    def scratch_bound(self, need: int) -> int:
        """Return the bytes of the input and twice the output; see `Size.scratch_bound`."""
        side = SideColumns(2 * self.shape.id_bytes, 2 * self.shape.id_bytes)
        return 2 * sum(stage_files(self.shape, side).values()) + _SLACK


def _given_centroids(path: str, source: VectorSource, p: IvfParameters) -> NDArray[np.float32]:
    """Read centroids; under cosine they are taken as directions, as vectors are.

    Raises
    ------
    ConfigError, InputError
        If they do not suit the input.
    """
    if p.metric == "ip":
        raise ConfigError("centroids: ip adds a component to vectors that they lack; leave them out")
    given = read_queries(path).astype(np.float32)
    if given.shape[1] != source.dim:
        raise InputError(
            f"{path}: centroids of {given.shape[1]} dimensions, but the vectors have {source.dim}; name centroids that "
            "were trained on such vectors, or leave them out to have some trained"
        )
    if len(given) > MOST_LISTS:
        raise InputError(f"{path}: {len(given):,} centroids, at most {MOST_LISTS:,} make lists; give fewer")
    if p.metric == "cosine" and not (given != 0).any(axis=1).all():
        raise InputError(f"{path}: a centroid is zero, which has no direction; leave it out")
    return unit(given) if p.metric == "cosine" else given


def stage_files(shape: IvfShape, side: SideColumns) -> dict[str, int]:
    """Return the bytes in the directory of each stage when it is finished; *emit* links to the lists."""
    p, n = shape.parameters, shape.n
    batches = len(shape.batches) - 1
    copied = n * p.copies
    filled = batches * p.lists * -math.expm1(-copied / (batches * p.lists))  # lists that hold anything
    # what is left of a last page
    ends = max(PAGE_BYTES / 2, PAGE_BYTES - copied * (shape.list_row_bytes + 4) / filled)
    lists = copied * (shape.list_row_bytes + 4) * 4100 // 4096 + int(filled * ends) + 16 * batches * p.lists
    lists += 6 * PAGE_BYTES * batches
    metadata = int(n * side.metadata)
    centroids = p.lists * (shape.dim * 4 + 132 * (p.lists >= GRAPH_FROM)) + N_CENTRES * 4 * shape.dim
    centroids += shape.rotation_bytes
    rotated = p.lists * shape.dim * 4 * shape.is_rotated
    kept = n * (shape.row_bytes + 4) * 2 * p.keep_vectors  # a page holds one vector at least
    return {
        "ingest": n * shape.row_bytes + int(n * side.ids_file) + metadata,
        "sample": shape.drawn * shape.row_bytes,
        "centroids": centroids + rotated,
        "assign": 4 * copied,
        "pack": copied * (shape.list_row_bytes + 8),
        "lists": lists,
        "emit": centroids + kept + int(n * (4 + side.ids)) + metadata,
        "certify": 0,
    }
