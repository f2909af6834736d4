"""The size of the build of a set, known before its first stage: memory, scratch space and seconds of all that it does.

The input is divided, codes are trained on a sample, and parts are built one after the other. Parts have nearly equal
size (`builders.cluster.balanced`), so one of them stands for all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.builders.cluster.balanced import balanced_centroids
from indexmill.builders.nearest.products import nearest_points, origin_of
from indexmill.builders.quantize.pq import N_CENTRES
from indexmill.formats.index.setmanifest import check_n_parts
from indexmill.formats.sources.joined import DEFAULT_BATCH_ROWS, VectorBatch, VectorSource
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.kinds.common.memory import KERNEL_BYTES, LOADED_BYTES, ids_bytes
from indexmill.pipeline.kinds.common.metric import unit
from indexmill.pipeline.kinds.common.seconds import write_seconds
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.kinds.scratch import side_columns
from indexmill.pipeline.kinds.size import Size
from indexmill.pipeline.mill.clocks import fastest
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.sets.divide import SAMPLE, as_table, check_divisible, router_bytes
from indexmill.pipeline.sets.margin import QUERIES, NeighbourParts, margin_bytes
from indexmill.pipeline.spec import BuildSpec

#: Names of the stages that a set has before those of its parts.
DIVIDE, CODES = "divide", "codes"
#: Rows of the trial that divides, and seconds after which nothing is repeated.
_ROWS, _SECONDS = 4096, 3.0
#: Bytes of the files that say which format and parameters were chosen.
_CHOICE_BYTES = 8192


@dataclass(frozen=True)
class StageCost:
    """Seconds of a stage, its peak memory in all processes, and the bytes that it leaves in the work directory."""

    seconds: float
    memory_bytes: int
    scratch_bytes: int


class PartOf:
    """`VectorSource` of as many vectors as a part of a set has: in `batches` the first of `source`, in `read` any.

    Ids are those of a part: as far apart as if each so many-th vector were in it.

    Attributes
    ----------
    n_vectors : int
    """

    def __init__(self, source: VectorSource, parts: int) -> None:
        self._source, self._parts = source, parts
        self.n_vectors, self.dim, self.dtype = -(-source.n_vectors // parts), source.dim, source.dtype
        self.id_type = "int64" if source.id_type == "none" else source.id_type
        self.paths, self.metadata_schema = source.paths, source.metadata_schema

    def batches(self, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[VectorBatch]:
        """Yield the first vectors of the source, as many as the part has."""
        for batch in self._source.batches(batch_rows):
            n_rows = min(len(batch.vectors), self.n_vectors - batch.start)
            numbers = np.arange(batch.start, batch.start + n_rows, dtype=np.int64) * self._parts
            ids = pa.array(numbers) if batch.ids is None else batch.ids.slice(0, n_rows)
            metadata = None if batch.metadata is None else batch.metadata.slice(0, n_rows)
            yield replace(batch, vectors=batch.vectors[:n_rows], ids=ids, metadata=metadata)
            if batch.start + n_rows == self.n_vectors:
                return

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return vectors from all over the source."""
        return self._source.read(np.minimum(rows * self._parts, self._source.n_vectors - 1))


class SetSize:
    """Everything known of the build of a set before its first stage; each part fits the memory of the job.

    Parameters
    ----------
    spec : BuildSpec
        With `parts`.
    source : VectorSource
    place : Path
        An existing directory, where files of trials are written and removed.

    Attributes
    ----------
    part : Size
        Of a part, with the codes that all have in common.

    Raises
    ------
    ConfigError, InputError
        If parameters and input do not go together.
    BudgetError
        If the division or a part does not fit, naming the smallest budget that does.
    """

    def __init__(self, spec: BuildSpec, source: VectorSource, place: Path) -> None:
        p, parts = spec.parameters, spec.parts
        assert parts is not None
        check_n_parts(parts, source.dim)
        check_divisible(source.n_vectors, parts)
        router_bytes(source, p.metric, parts, spec.memory, spec.workers)
        self.spec, self.source, self.parts, self._place = spec, source, parts, place
        like = PartOf(source, parts)
        job = spec.model_copy(update={"parts": None, "work": None})
        asked: Size[Any] = kind_of(p).resolve(job, like)
        asked.settle(place)
        self._codes = asked.for_codes(parts) if p.has_codebook else None
        self._own_lists = self._codes is not None and self._codes is not asked
        chosen = p.model_copy(update=asked.chosen())
        self.part: Size[Any] = kind_of(p).resolve(job.model_copy(update={"parameters": chosen}), like)
        self.part.know_as(asked)

    def check_space(self, directory: Path) -> int:
        """Return the most bytes of the work directory: the vectors, finished parts, and what the last one takes.

        Raises
        ------
        BudgetError
            If a part needs more than the job allows, or the set more than the file system has free.
        """
        part, _ = self.part.check_space(directory, 0)
        beside = self._divided_bytes
        built = self._codes_bytes() + (self.parts - 1) * self.part.index_bytes
        need = beside + max(self._training_bytes(), built + part)
        check_free(directory, need)
        return need

    def stages(self) -> dict[str, StageCost]:
        """Return what each stage takes: that divides, that trains codes, and those of all parts together.

        Memory and scratch space of the latter are those of one part.
        """
        timed = self.part.timed(self._place)
        seconds = dict(self.part.seconds_at(timed))
        costs = {DIVIDE: StageCost(self._divide_seconds(), self._divide_memory(), self._divided_bytes)}
        if self._codes is not None:
            rates = self._codes.timed(self._place) if self._own_lists else timed
            memory = self._codes.peak_bytes()
            # A sample has no ids, of which *ingest* of a part takes most of its memory.
            used = [memory.get(name, 0) for name in self._training_stages() if name != "ingest"]
            costs[CODES] = StageCost(self._training_seconds(rates), max(used), self._codes_bytes())
            seconds[self.part.trained_in] -= self.part.training_seconds(timed)
        _, files = self.part.needed_scratch()
        memory = self.part.peak_bytes()
        return costs | {
            name: StageCost(self.parts * max(0.0, seconds[name]), memory.get(name, 0), held)
            for name, held in files.items()
        }

    def _divide_memory(self) -> int:
        """Return the peak memory of dividing: of fitting the router, or of a batch on its way to the parts."""
        p, source = self.spec.parameters, self.source
        fitting = router_bytes(source, p.metric, self.parts, self.spec.memory, self.spec.workers)
        batch = min(DEFAULT_BATCH_ROWS, source.n_vectors) * source.dim * source.dtype.itemsize
        margin = 0 if p.metric == "ip" else margin_bytes(source.dim, self.spec.workers)
        passing = (4 if p.metric == "cosine" else 3) * batch + margin
        passing += ids_bytes(source.n_vectors, side_columns(source).ids)
        return LOADED_BYTES + KERNEL_BYTES + max(fitting, passing)

    @cached_property
    def _divided_bytes(self) -> int:
        """Return the bytes of the files of all parts: rows of Arrow files as they are in memory."""
        batch = next(iter(self.source.batches(DEFAULT_BATCH_ROWS)))
        n_bytes: int = as_table(batch).nbytes
        return self.source.n_vectors * n_bytes // len(batch.vectors)

    def _divide_seconds(self) -> float:
        """Return the seconds of fitting the router, and of one pass over all vectors, after a short trial."""
        p, source, threads = self.spec.parameters, self.source, self.spec.workers
        deadline = time.perf_counter() + _SECONDS
        with threadpool_limits(1):
            begun = time.perf_counter()
            batch = next(iter(source.batches(_ROWS)))
            check_batch(batch, p.metric)
            reading = time.perf_counter() - begun
            vectors = unit(batch.vectors) if p.metric == "cosine" else batch.vectors
            parts = min(self.parts, len(vectors))
            centroids, weights = balanced_centroids(vectors[:512], parts, p.seed, threads)  # compiles
            begun = time.perf_counter()
            centroids, weights = balanced_centroids(vectors, parts, p.seed, threads)
            fitting = (time.perf_counter() - begun) / len(vectors) * min(SAMPLE, source.n_vectors)
            origin = origin_of(centroids, source.dtype.kind in "iu")
            kept = NeighbourParts(np.asarray(vectors[:QUERIES], np.float32), origin, threads=threads)

            def divide() -> None:
                cells = nearest_points(vectors, centroids, 1, threads, weights=weights)[:, 0]
                if p.metric != "ip":
                    kept.add(0, vectors, cells)
                table = as_table(batch)
                for number in np.unique(cells):
                    table.take(pa.array(np.flatnonzero(cells == number)))

            divide()
            passing = fastest(divide, deadline) / len(vectors)
        row = reading / len(vectors)
        drawn = min(SAMPLE, source.n_vectors) * row
        writing = self._divided_bytes * write_seconds(self._place)
        return drawn + fitting + source.n_vectors * (row + passing) + writing

    def _on_sample(self) -> Size[Any]:
        """Return the size of the stages that train codes: they are made on the sample in place of a part."""
        assert self._codes is not None
        small, parameters = copy(self._codes), self._codes.shape.parameters
        small.shape = replace(small.shape, n=min(parameters.sample_vectors, small.shape.n))
        return small

    def _training_stages(self) -> list[str]:
        """Return the stages that choose a format and train codes, and those whose files these read."""
        assert self._codes is not None
        return upstream(self._codes.inputs(), {self._codes.chosen_in, self._codes.trained_in})

    def _training_seconds(self, rates: Any) -> float:
        """Return the seconds of training codes: rows of the sample are drawn once more than a build does."""
        seconds = self._on_sample().seconds_at(rates)
        return seconds["ingest"] + sum(seconds[name] for name in self._training_stages())

    def _training_bytes(self) -> int:
        """Return the scratch space of training codes, beside the files of the parts."""
        if self._codes is None:
            return 0
        small = self._on_sample()
        files = small.stage_files()
        sample = int(small.shape.n) * self.source.dim * self.source.dtype.itemsize
        return sample + sum(files.get(name, 0) for name in self._training_stages()) + self._codes_bytes()

    def _codes_bytes(self) -> int:
        """Return the bytes of what parts have in common: a codebook, perhaps its rotation, and what was chosen."""
        if self._codes is None:
            return 0
        dim = int(self._codes.shape.dim)
        rotated = getattr(self.part.shape.parameters, "pq_rotation", "none") != "none"
        return 4 * N_CENTRES * dim + 4 * dim * dim * rotated + _CHOICE_BYTES

    def facts(self) -> dict[str, Any]:
        """Return the facts that a plan shows: parts, and what the kind says of one of them."""
        n = self.part.source.n_vectors
        return {
            "parts": {"n": self.parts, "vectors": n, "index_bytes": self.part.index_bytes},
            **self.part.facts(),
        }


def upstream(inputs: Mapping[str, tuple[str, ...]], last: Iterable[str]) -> list[str]:
    """Return those of the stages `last` that `inputs` has, and all whose files they need, in its order."""
    wanted = set(last)
    for name in reversed(list(inputs)):
        if name in wanted:
            wanted.update(inputs[name])
    return [name for name in inputs if name in wanted]
