"""Builds of millions of generated vectors: each is planned, built, and searched by its held-out queries."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from math import log
from typing import Any

from indexmill.jobs.bench.common import generate, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import LONG_SIZES, RECALL, Search, key, ratio, summaries, tuned_trial
from indexmill.jobs.bench.common.dataset import Dataset, write_truth
from indexmill.jobs.bench.common.intervals import curve, figures_at
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.common.process import indexmill, told
from indexmill.jobs.bench.plans.jobs import FIGURES, errors, load_kernels
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.job import Job, build
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.pipeline.spec import parse_size

#: Vectors of the unit in which sets are counted, and their held-out queries, half of which tune.
MILLION, QUERIES = 1_000_000, 2000
#: Stages that make a page order, in one piece or by districts.
_ORDER_STAGES = ("borders", "settle", "districts", "rests", "order")
#: A graph of the partition builder, and lists, which have no parameters of a graph.
_PARTITION = {"builder": "partition"}
_LISTS: dict[str, Any] = {
    **dict.fromkeys(
        ("builder", "R", "L", "alpha", "pq_bytes", "pq_rotation", "node_dtype", "order", "metric", "seed")
    ),
    "kind": "ivf",
}


@dataclass(frozen=True)
class Built:
    """A build: of how many millions of vectors, in what memory, with which parameters."""

    millions: int
    memory: str
    parameters: dict[str, Any] = field(default_factory=lambda: _PARTITION)

    @property
    def is_graph(self) -> bool:
        """Whether it is searched for page reads."""
        return "kind" not in self.parameters


BUILDS = {
    "n1-8GiB": Built(1, "8GiB"),
    "n10-8GiB": Built(10, "8GiB"),
    "n10-2GiB": Built(10, "2GiB"),
    "n10-whole": Built(10, "14GiB"),
    "n10-vamana": Built(10, "8GiB", {"builder": "vamana"}),
    "n10-ivf": Built(10, "8GiB", _LISTS),
    "n30-4GiB": Built(30, "4GiB"),
    "n30-ivf": Built(30, "4GiB", _LISTS),
}
#: Millions of vectors that DiskANN indexes.
DISKANN = {"n1-diskann": 1, "n10-diskann": 10}


def given(run: Run, millions: int) -> Dataset:
    """Return so many millions of generated vectors, made once with their truth; of a trial with N rows, as often N."""
    n = millions * (run.rows or MILLION)
    found = Dataset(run.out / f"generated-{n}")
    if not found.truth.exists():
        generate.generate(found.folder, n, QUERIES, SEED, THREADS)
        write_truth(found, THREADS)
    return found


def measure(run: Run, name: str) -> dict[str, Any]:
    """Plan and build an index of `BUILDS`, which stays; errors are predicted / measured - 1."""
    wanted = BUILDS[name]
    data = given(run, wanted.millions)
    space = Workspace(data, run.out)
    job = Job(space.index(name).name, data.base, wanted.memory, THREADS, parameters=wanted.parameters)
    load_kernels(job, run.out)
    said = told(indexmill("plan", job.write(run.out), json=True))
    made = build(job, run.out)
    budget_bytes = parse_size(wanted.memory)
    stages = made["stage_s"]
    row = {
        "n": data.shape()[0],
        "memory": wanted.memory,
        "parameters": {name: value for name, value in wanted.parameters.items() if value is not None},
        **made,
        "index_s": made["wall_s"] - stages.get("certify", 0.0),
        "order_s": sum(stages.get(stage, 0.0) for stage in _ORDER_STAGES),
        "to_budget": made["peak_bytes"] / budget_bytes,
        "planned": {what: said[what] for what in FIGURES},
        "error": errors(said, made),
    }
    if not wanted.is_graph:
        return row
    with ours.Ours(space) as searcher:
        return row | _reads(searcher.search(name, ours.Setting()))


def measure_diskann(run: Run, millions: int) -> dict[str, Any]:
    """Build DiskANN's index with the same R, L and bytes of a code, and search it; it is removed."""
    space = Workspace(given(run, millions), run.out)
    made = diskann.build(space)
    with diskann.DiskAnn(space) as peer:
        row = {"n": space.data.shape()[0], **made} | _reads(peer.search("single"), peer.search())
    shutil.rmtree(space.diskann_index)
    return row


def ratios(run: Run) -> dict[str, Any]:
    """Compare the builds that were measured with DiskANN, with smaller sets, and with more memory."""
    found = record.load(run.results)["parts"]
    few, many, most = (found.get(name) for name in ("n1-8GiB", "n10-8GiB", "n30-4GiB"))
    within, whole = found.get("n10-2GiB"), found.get("n10-whole")
    theirs = [found.get(name) for name in DISKANN]
    reads = {"indexmill": grown(few, many), "diskann": grown(*theirs)}
    return {
        "to_diskann": many["index_s"] / theirs[1]["wall_s"] if many and theirs[1] else None,
        "exponent": {"1 to 10": exponent(few, many), "10 to 30": exponent(many, most)},
        "within": within["index_s"] / whole["index_s"] if within and whole else None,
        "same_bytes": float(within["build_id"] == whole["build_id"]) if within and whole else None,
        "reads": {**reads, "ratio": ratio(*reads.values())},
    }


def exponent(few: dict[str, Any] | None, many: dict[str, Any] | None) -> float | None:
    """Return the power of n by which the index's seconds grow from one build to the other; None without both."""
    if few is None or many is None:
        return None
    return log(many["index_s"] / few["index_s"]) / log(many["n"] / few["n"])


def grown(few: dict[str, Any] | None, many: dict[str, Any] | None) -> float | None:
    """Return page reads at recall 0.95 over those of the smaller set; None without both."""
    if few is None or many is None:
        return None
    least, most = (found["pages_read"][key(RECALL)] for found in (few, many))
    return None if least is None or most is None else ratio(most["value"], least["value"])


def _reads(search: Search, tuning: Search | None = None) -> dict[str, Any]:
    tuned, found = tuned_trial(search, LONG_SIZES, tuning)
    return {
        "pages_read": figures_at(curve([found], "pages_read")),
        "rows": summaries(found),
        "tuning_rows": summaries(tuned),
    }
