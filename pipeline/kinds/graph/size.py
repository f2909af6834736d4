"""`Size` of a graph job: a `shape` that fits its memory, in one piece, in shards or region by region, and its cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from indexmill.builders.partition.build import FANOUTS, Fanouts
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.execution.capacity import cores_here
from indexmill.pipeline.execution.limits import MOST_NARROW
from indexmill.pipeline.execution.schedule import Work
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, task_bytes, workers_bytes
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.graph import memory
from indexmill.pipeline.kinds.graph.builder import with_builder
from indexmill.pipeline.kinds.graph.candidates import Format, largest, open_formats, trial_shape
from indexmill.pipeline.kinds.graph.default_order import order_scratch, with_order
from indexmill.pipeline.kinds.graph.districts.plan import district_bound, district_files, district_scratch
from indexmill.pipeline.kinds.graph.format import FormatRecipe, predicted_format
from indexmill.pipeline.kinds.graph.memory import expected_shards
from indexmill.pipeline.kinds.graph.parameters import graph_parameters
from indexmill.pipeline.kinds.graph.recipe import GraphRecipe
from indexmill.pipeline.kinds.graph.regions.memory import most_scratch
from indexmill.pipeline.kinds.graph.regions.plan import expected_cut, expected_parts, region_files
from indexmill.pipeline.kinds.graph.regions.recipe import graph_recipe
from indexmill.pipeline.kinds.graph.regions.sampled import sampled_cells
from indexmill.pipeline.kinds.graph.seconds import (
    Rates,
    on_node,
    stage_seconds,
    timed_kernels,
    training_seconds,
)
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.shaped.asked import LEAST_QUERIES, check_sample, opened_sample
from indexmill.pipeline.kinds.graph.shaped.labels import (
    LEAST_DEGREE,
    LabelColumn,
    check_labels,
    checked_labels,
)
from indexmill.pipeline.kinds.graph.trial import MEMORY as TRIAL_MEMORY
from indexmill.pipeline.kinds.rehearsal import REHEARSED, Rehearsal, few
from indexmill.pipeline.kinds.scratch import SideColumns, played
from indexmill.pipeline.kinds.size import ClusterSize, Job
from indexmill.pipeline.mill.stages import Mill, Stage

#: Bytes of a record's key and value in a chunk file, alone and in runs of equal keys.
_PAIR_BYTES, _RUN_PAIR_BYTES = 8, 4
#: The formats that were tried, as JSON.
_CHOICE_BYTES = 4096
#: What a process keeps after it tried formats: more compiled kernels, and memory of its allocator.
_TRIED_BYTES = 48 << 20
#: Samples, centroids, page headers: scratch space that does not grow with the input.
_SLACK = 256 << 20
#: Parameters of tiny builds, where they choose no kernels; memory of a region in such a build.
_SMALL = {
    "max_degree": 8, "build_list_size": 20, "alpha": 1.2, "pq_bytes": 4, "search_memory": None,
    "sample_vectors": REHEARSED, "overlap": 0.25, "seed": 1, "compute": "cpu",
}  # fmt: skip
_SMALL_REGION = 256 << 20


@dataclass(frozen=True)
class ShardPlan:
    """The cut of a graph: `n` shards or regions of about `vectors` each; a vector is in `mean_fanout` of them."""

    n: int
    vectors: int
    mean_fanout: float


class GraphSize(ClusterSize[GraphShape]):
    """The size of a graph build; see `Size`.

    Attributes
    ----------
    shape : GraphShape
        With parameters that name the builder and say how large shards are.
    builder : ChosenBuilder
    asked : VectorSource or None
        A sample of queries.
    formats : list of Format
        Those that are open and fit, those of the smallest nodes first; the one that is chosen, once it is.
    """

    before_kernels = ClusterSize.before_kernels | {"cluster", "assign", "carve", "regions"}
    start_seconds = 2.0
    chosen_in, trained_in = "format", "encode"
    has_cuts = True

    def __init__(
        self, job: Job, source: VectorSource, fanouts: Fanouts = FANOUTS, by_codes: bool = False
    ) -> None:
        super().__init__(job, source)
        p = graph_parameters(job.parameters)
        if p.keep_vectors and source.dtype.kind != "f":
            raise ConfigError(
                f"keep_vectors: goes with float vectors, {source.paths[0]} holds {source.dtype}, which nodes hold as "
                "they are; leave it out"
            )
        self.asked = None
        if job.query_sample is not None:
            self.asked = opened_sample(job.query_sample, job.query_column, source)
        labels = LabelColumn(0.0, 0.0)
        if job.label_column is not None:
            check_labels(p)
            labels = checked_labels(source, job.label_column)
        n_asked = 0 if self.asked is None else self.asked.n_vectors
        stated = GraphShape(
            *stored_vectors(source, p.metric),
            self.side.ids,
            p,
            n_asked=n_asked,
            label_column=job.label_column,
            label_row_bytes=labels.row_bytes,
            label_share=labels.share,
            fanouts=fanouts,
            by_codes=by_codes,
        )
        formats = open_formats(stated)
        unrotated = [one for one in formats if one.pq_rotation == "none"] or formats
        widest = with_order(in_format(stated, largest(unrotated)), job.memory)
        asked, self.builder = with_builder(widest, job.memory, job.executor, job.workers)
        self.formats = _fitting(asked, formats, job.memory) or unrotated[-1:]
        self._unmeasured: str | None = None
        if len(formats) > 1 and (need := _measuring_memory(asked, formats)) > job.memory:
            self._unmeasured = f"formats are measured from {-(-need >> 20):,} MiB of memory"
        self._tried, self._choosing_seconds = tuple(self.formats), 0.0
        self._is_open = len(self._tried) > 1
        asked = in_format(asked, largest(self.formats))
        if p.build_codes != "none" and asked.dtype.kind != "f":
            raise ConfigError(
                f"build_codes: {p.build_codes} goes with float vectors, {source.paths[0]} holds {asked.dtype}, a byte "
                "a component as well; leave it out"
            )
        self.shape = memory.fit_shards(asked, job.memory, job.executor, job.workers)
        memory.check_memory(self.shape, job.memory, job.executor, job.workers, asked)

    @classmethod
    def rehearsals(cls, job: Job, source: VectorSource) -> list[Rehearsal]:
        """Return a build that is cut as the job will be; and one in one piece, if formats are tried by such."""
        size = cls(job, source)
        p, in_regions = size.shape.parameters, size.shape.region_bytes is not None
        numbers = {"navigation": 0.1 if p.navigation else 0.0, "entries": few(p.entries, 8)}
        if job.label_column is not None:
            numbers["max_degree"] = LEAST_DEGREE
        small = p.model_copy(update=_SMALL | numbers)
        cut = small.model_copy(update={"shard_vectors": p.shard_vectors and REHEARSED // 3})
        changes = {"region_bytes": _SMALL_REGION} if in_regions else {}
        queries = 0 if size.asked is None else LEAST_QUERIES
        labels = job.label_column is not None
        found = [Rehearsal(cut.model_dump(), source.dtype.name, changes, queries=queries, labels=labels)]
        if size._is_open and (in_regions or p.shard_vectors is not None):
            whole = small.model_copy(update={"shard_vectors": None, "metric": "l2"})
            found.append(Rehearsal(whole.model_dump(), str(size.shape.dtype)))
        return found

    def check_given(self) -> None:
        """See `Size.check_given`: queries of the sample."""
        if self.asked is not None:
            check_sample(self.asked, self.shape.parameters.metric, self.shape.dtype)

    def stage_bytes(self) -> dict[str, int]:
        """See `Size.stage_bytes`."""
        job = self.job
        processes = workers_bytes(job.executor, job.workers)
        each = [
            memory.stage_bytes(in_format(self.shape, one), job.memory, job.workers, processes, expected=True)
            for one in self.formats
        ]
        stages = {name: max(stages[name] for stages in each) for name in each[0]}
        return stages | ({"format": choosing_bytes(self.shape, job.workers)} if self._is_open else {})

    def peak_bytes(self) -> dict[str, int]:
        """See `Size.peak_bytes`; with the memory that trials of formats leave to the stages after them."""
        tried, before = _TRIED_BYTES * self._is_open, {"ingest", "sample", "format"}
        return {name: own + tried * (name not in before) for name, own in super().peak_bytes().items()}

    def stage_files(self) -> dict[str, int]:
        """See `Size.stage_files`."""
        files = stage_files(self.shape, self.side, self.job.memory)
        return files | ({"format": _CHOICE_BYTES} if self._is_open else {})

    def timed(self, place: Path) -> Rates:
        """See `Size.timed`."""
        return timed_kernels(self.source, self.shape, self.job.workers, place)

    def seconds_at(self, rates: Rates) -> dict[str, float]:
        """See `Size.seconds_at`."""
        job = self.job
        processes = workers_bytes(job.executor, job.workers)
        narrow = {
            name: stage.lanes(job.memory, job.workers, processes)
            for name, stage in memory.narrow_stages(self.shape, job.memory).items()
        }
        return stage_seconds(rates, self.shape, self.stage_files(), narrow) | {
            "format": self._choosing_seconds
        }

    def training_seconds(self, rates: Rates) -> float:
        """See `Size.training_seconds`."""
        return training_seconds(rates, self.shape)

    def chosen(self) -> dict[str, Any]:
        """See `Size.chosen`: the format."""
        return self.formats[0]._asdict()

    def node_rates(self, place: Path) -> Rates:
        """See `ClusterSize.node_rates`: timed with as many threads as this machine has cores, at most."""
        threads = min(self.job.workers, cores_here())
        return on_node(timed_kernels(self.source, self.shape, threads, place), threads, self.job.workers)

    def works(self, rates: Rates) -> dict[str, Work]:
        """See `ClusterSize.works`."""
        job, shape = self.job, self.shape
        processes, cells = workers_bytes(job.executor, job.workers), expected_shards(shape)[0]
        narrow = memory.narrow_stages(shape, job.memory)
        files = self.stage_files()
        seconds = stage_seconds(rates, shape, files, dict.fromkeys(narrow, 1))
        seconds["format"] = self._choosing_seconds
        wide = {"build": cells} if shape.region_bytes is None else expected_parts(shape, job.memory)
        works = {
            name: Work(total, wide.get(name, 1), task_bytes=job.memory) for name, total in seconds.items()
        }
        crowded = job.workers / rates.threads  # tasks beside each other are slower than one alone
        for name, stage in narrow.items():
            at_once = stage.fitting(job.memory, job.workers, processes)
            writing = files[name] * rates.writing
            total = (seconds[name] - writing) * crowded
            works[name] = Work(total, stage.tasks, False, task_bytes(job.memory), at_once, writing)
        here = {name: replace(works[name], is_remote=False) for name in ("ingest", "asked") if name in works}
        return works | here

    @property
    def pieces(self) -> int:
        """Regions or shards."""
        if self.shape.region_bytes is None:
            return expected_shards(self.shape)[0]
        cut = expected_cut(self.shape, self.job.memory)
        return 1 if cut is None else cut.regions

    def refitted(self, job: Job) -> Self | None:
        """See `Size.refitted`: by `partition` alone is a graph in pieces that in one piece."""
        try:
            other = type(self)(job, self.source)
        except BudgetError:
            return None
        other._choose(self.formats[0])
        other.know_as(self)
        if other.look_closer():
            self.know_as(other)
        other._choosing_seconds = self._choosing_seconds
        p = other.shape.parameters
        cut = p.builder != "partition" or p.shard_vectors is not None
        return None if cut or p != self.shape.parameters or other._tried != self._tried else other

    def facts(self) -> dict[str, Any]:
        """Return ``builder``, ``format``, ``codes_on_page``, ``shards`` and perhaps ``regions`` (each a `ShardPlan`).

        The format has ``why``, if memory is too small to measure formats.
        """
        shape, (n, _) = self.shape, expected_shards(self.shape)
        fanout = 1.0 if n == 1 else 1 + shape.parameters.overlap
        facts: dict[str, Any] = {
            "builder": self.builder,
            "format": self.formats[0]._asdict(),
            "codes_on_page": shape.parameters.codes_on_page,
            "shards": ShardPlan(n, int(shape.n * fanout / n), fanout),
        }
        if self._unmeasured is not None:
            facts["format"]["why"] = self._unmeasured
        if shape.region_bytes is not None and (cut := expected_cut(shape, self.job.memory)) is not None:
            facts["regions"] = ShardPlan(cut.regions, cut.members, round(cut.times, 2))
        return facts

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> GraphRecipe:
        """Make *sample* and *format* where the format is open; see `Size.recipe`."""
        choosing = self._choosing(mill, first, summary)
        if choosing is not None:
            self._choose(choosing.chosen())
        return self._recipe(mill, first, summary, choosing)

    def needed_scratch(self) -> tuple[int, dict[str, int]]:
        """See `Size.needed_scratch`; where the format is open, that of the largest."""
        freed = _freed(self.shape)
        if self._is_open:
            freed["format"] = choosing_files(self.shape, len(self.formats))
        return played(self.last_stage, self.stage_files(), self.shape, self.keep, freed)

    def last_stage(self, mill: Mill, first: Stage, summary: InputSummary) -> Stage:
        """See `Size.last_stage`; the format stays open."""
        return self._recipe(mill, first, summary, self._choosing(mill, first, summary)).certify

    def _choosing(self, mill: Mill, first: Stage, summary: InputSummary) -> FormatRecipe | None:
        """Make the stages that choose the format, if it is open."""
        if not self._is_open:
            return None
        p, formats = self.shape.parameters, self.formats
        choosing = FormatRecipe(mill, first, summary, p, formats, self.job.memory)
        choosing.make()
        return choosing

    def _recipe(
        self, mill: Mill, first: Stage, summary: InputSummary, choosing: FormatRecipe | None
    ) -> GraphRecipe:
        made = None if choosing is None else choosing.made
        shape, memory = self.shape, self.job.memory
        return graph_recipe(mill, first, summary, shape, memory, made, self.asked, self._unmeasured)

    def settle(self, place: Path) -> None:
        """See `Size.settle`."""
        begun = time.perf_counter()
        p, workers = self.shape.parameters, self.job.workers
        self._choose(predicted_format(self.source, p, self.formats, place, workers))
        self._choosing_seconds = time.perf_counter() - begun
        self.look_closer()

    def _choose(self, chosen: Format) -> None:
        self.shape, self.formats = in_format(self.shape, chosen), [chosen]

    def look_closer(self) -> bool:
        """See `Size.look_closer`: carve a sample of the input, if the graph is made region by region."""
        if self.shape.region_bytes is None or self.shape.cells is not None:
            return False
        self.shape = replace(self.shape, cells=sampled_cells(self.source, self.shape))
        return self.shape.cells is not None

    def know_as(self, other: Self) -> None:
        """See `Size.know_as`: the cells of the sample."""
        self.shape = replace(self.shape, cells=other.shape.cells)

    def scratch_bound(self, need: int) -> int:
        """See `Size.scratch_bound`."""
        return scratch_bound(self.shape)


def in_format(shape: GraphShape, one: Format) -> GraphShape:
    """Return `shape` with a format."""
    return replace(shape, parameters=one.applied(shape.parameters))


def _fitting(shape: GraphShape, formats: list[Format], budget: int) -> list[Format]:
    """Return those of `formats` that fit a budget; none if their trials do not.

    As the builder, the format must not depend on the number of workers.
    """
    if len(formats) == 1:
        return formats
    if _measuring_memory(shape, formats) > budget:
        return []
    return [one for one in formats if memory.fits(in_format(shape, one), budget, "local", MOST_NARROW)]


def _measuring_memory(shape: GraphShape, formats: list[Format]) -> int:
    """Return the least budget of a build that measures `formats`."""
    return FIXED_BYTES + choosing_bytes(in_format(shape, largest(formats)), MOST_NARROW)


def choosing_bytes(shape: GraphShape, workers: int) -> int:
    """Return the memory of stage *format*: vectors and queries of the trial, and the largest stage of its builds."""
    small = trial_shape(shape)
    return 2 * small.n * small.row_bytes + max(memory.stage_bytes(small, TRIAL_MEMORY, workers).values())


def choosing_files(shape: GraphShape, formats: int) -> int:
    """Return the scratch space of stage *format*, which it frees at its end."""
    files = stage_files(trial_shape(shape), SideColumns(), TRIAL_MEMORY)
    return sum(files.values()) + formats * sum(files[name] for name in ("encode", "pack", "emit"))


def stage_files(shape: GraphShape, side: SideColumns, memory: int) -> dict[str, int]:
    """Return the bytes in the directory of each stage when it is finished."""
    p, n, d, node = shape.parameters, shape.n, shape.dim, shape.node
    graph, coded = n * 4 * (p.max_degree + 1), shape.all_codes_bytes + shape.codebook_bytes
    starts = shape.entries_bytes + shape.navigation_bytes
    metadata = int(n * side.metadata)
    members = n if p.shard_vectors is None else int(n * (1 + p.overlap))
    cells, _ = expected_shards(shape)
    pages = node.n_pages(n) + shape.kept_pages
    files = {
        "ingest": n * shape.row_bytes + int(n * side.ids_file) + metadata,
        "sample": shape.drawn * shape.row_bytes,
        "cluster": cells * 4 * (d + 3),
        "comparable": n * shape.comparable_bytes,
        "assign": members * (shape.row_bytes + _RUN_PAIR_BYTES),
        "build": graph if p.shard_vectors is None else members * (4 * p.max_degree + _PAIR_BYTES),
        "unite": graph,
        "link": graph,
        "bridge": graph,
        "labels": graph,
        "asked": shape.n_asked * max(shape.row_bytes, 4 * d),
        "nearest": shape.n_asked * 4 * shape.asked_nearest + 8 * d * d,
        "encode": coded,
        "order": 8 * n,
        "entries": shape.entries_bytes,
        "navigation": shape.navigation_bytes,
        "pack": n * (node_bytes(shape) + min(p.pq_bytes, d) + shape.kept_bytes + _PAIR_BYTES),
        "emit": pages * (PAGE_BYTES + 4) + coded + starts + int(n * (4 + side.ids)) + metadata,
        "certify": 0,  # links to what emit wrote
    }
    files |= district_files(shape)
    return files if shape.region_bytes is None else files | region_files(shape, memory)


def node_bytes(shape: GraphShape) -> int:
    """Return the bytes of a vertex on its way to its page: vector, neighbours and perhaps their codes, degree."""
    node = shape.node
    return node.dim * node.element_dtype.itemsize + (4 + node.code_bytes) * node.max_degree + 4


def needed_scratch(
    shape: GraphShape, side: SideColumns, memory: int, keep: bool
) -> tuple[int, dict[str, int]]:
    """Return the most bytes that the work directory of a graph build will hold, and those that each stage leaves."""

    def last(mill: Mill, first: Stage, summary: InputSummary) -> Stage:
        return graph_recipe(mill, first, summary, shape, memory).certify

    return played(last, stage_files(shape, side, memory), shape, keep, _freed(shape))


def _freed(shape: GraphShape) -> dict[str, int]:
    """Return the bytes of files that stages have only while they run."""
    return {"order": order_scratch(shape), **district_scratch(shape)}


def scratch_bound(shape: GraphShape) -> int:
    """Return the most bytes that the work directory of a graph build may take: about fanout * input + 2 * output.

    Fanout is 2 for a build in shards, 11 region by region, where candidates and edges of vertices come on top
    (`regions.memory.most_scratch`), and 1 otherwise. A type that the builder or the order does not take (int8, float16)
    is input twice, as it is and converted. Codes, and the maps between vertices and slots, lie beside their copies in
    the output until that is finished. Samples, which do not grow with the input, come on top. So does what the order
    takes: lists, or files of the stages that make it in districts.
    """
    fanout = 2 if shape.parameters.shard_vectors is not None else 1
    vector = fanout * shape.row_bytes + shape.comparable_bytes * shape.is_converted
    if shape.region_bytes is not None:
        p = shape.parameters
        vector += most_scratch(shape.taken_bytes, p.max_degree, p.saturate, shape.fanouts)
    sample = shape.drawn * shape.row_bytes
    beside = shape.parameters.pq_bytes + 16
    ordering = order_scratch(shape) + district_bound(shape)
    return shape.n * (vector + beside) + 2 * output_bytes(shape) + sample + ordering + _SLACK


def output_bytes(shape: GraphShape) -> int:
    """Return about how large the index will be: nodes on their pages, codes, ids."""
    pages = shape.node.n_pages(shape.n) + shape.kept_pages
    codes = shape.n * shape.parameters.pq_bytes + shape.rotation_bytes
    return pages * (PAGE_BYTES + 4) + codes + shape.n * (4 + int(2 * shape.id_bytes))
