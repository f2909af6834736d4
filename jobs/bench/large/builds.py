"""Builds of millions of generated vectors: each is planned, built, and searched by its held-out queries."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any

from indexmill.jobs.bench.common import generate, record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import RECALL, key, ratio
from indexmill.jobs.bench.common.dataset import Dataset, write_truth
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.common.process import Failed
from indexmill.jobs.bench.large.reads import index_reads, reads_of
from indexmill.jobs.bench.large.refused import reason_of
from indexmill.jobs.bench.programs import diskann, plan
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
#: How the graph of a build is cut, and the stage that only a graph in regions has.
WHOLE, REGIONS = "one piece", "regions"
_OF_REGIONS = "leaves"


@dataclass(frozen=True)
class Built:
    """A build: of how many millions of vectors, in what memory, with which parameters.

    Attributes
    ----------
    cut : str, optional
        How its graph has to be cut, where something is compared that depends on it: `WHOLE` or `REGIONS`.
    is_stepped : bool
        Whether its index stays for a part of steps, which removes it.
    """

    millions: int
    memory: str
    parameters: dict[str, Any] = field(default_factory=lambda: _PARTITION)
    cut: str | None = None
    is_stepped: bool = False

    @property
    def is_graph(self) -> bool:
        """Whether it is searched for page reads."""
        return "kind" not in self.parameters


BUILDS = {
    "n1-8GiB": Built(1, "8GiB"),
    "n10-8GiB": Built(10, "8GiB", is_stepped=True),
    "n10-2GiB": Built(10, "2GiB", cut=REGIONS, is_stepped=True),
    "n10-whole": Built(10, "14GiB", cut=WHOLE),
    "n10-vamana": Built(10, "8GiB", {"builder": "vamana"}),
    "n10-ivf": Built(10, "8GiB", _LISTS, is_stepped=True),
    "n16-4GiB": Built(16, "4GiB", is_stepped=True),
    "n30-4GiB": Built(30, "4GiB"),
    "n30-ivf": Built(30, "4GiB", _LISTS, is_stepped=True),
}
#: Millions of vectors that DiskANN indexes.
DISKANN = {"n1-diskann": 1, "n10-diskann": 10}
#: Pairs of builds by which the growth of time is told. Their memory and their cuts may differ: the page says both.
GROWTHS = {
    "1 to 10": ("n1-8GiB", "n10-8GiB"),
    "1 to 10, both in one piece": ("n1-8GiB", "n10-whole"),
    "10 to 16": ("n10-8GiB", "n16-4GiB"),
    "10 to 16, about as much memory a vector": ("n10-2GiB", "n16-4GiB"),
    "10 to 30": ("n10-8GiB", "n30-4GiB"),
    "10 to 30, lists": ("n10-ivf", "n30-ivf"),
}


def given(run: Run, millions: int) -> Dataset:
    """Return so many millions of generated vectors, made once with their truth; of a trial with N rows, as often N."""
    n = millions * (run.rows or MILLION)
    found = Dataset(run.out / f"generated-{n}")
    if not found.truth.exists():
        generate.generate(found.folder, n, QUERIES, SEED, THREADS)
        write_truth(found, THREADS)
    return found


def measure(run: Run, name: str) -> dict[str, Any]:
    """Plan, build and search an index of `BUILDS`; errors are predicted / measured - 1.

    The index is removed unless a part of steps needs it. Where memory or the disk has no room, the reason is returned.

    Raises
    ------
    RuntimeError
        If the graph is cut in another way than its figures stand for.
    """
    wanted = BUILDS[name]
    data = given(run, wanted.millions)
    space = Workspace(data, run.out)
    job = Job(space.index(name).name, data.base, wanted.memory, THREADS, parameters=wanted.parameters)
    row = {
        "n": data.shape()[0],
        "memory": wanted.memory,
        "parameters": {name: value for name, value in wanted.parameters.items() if value is not None},
    }
    plan.load_kernels(job, run.out)
    try:
        said = plan.of_job(job.write(run.out))
    except Failed as error:
        return row | {"refused": reason_of(error, run.out)}
    is_trial = run.rows is not None  # whose few vectors fit in one piece
    if not is_trial:
        check_cut(name, wanted, REGIONS if "regions" in said else WHOLE)
    index = job.index(run.out)
    try:
        made = build(job, run.out)
        if not is_trial:
            check_cut(name, wanted, cut_of(made))
        found = index_reads(space, name, wanted.is_graph)
    finally:
        if not wanted.is_stepped:
            shutil.rmtree(index, ignore_errors=True)
    stages = made["stage_s"]
    return {
        **row,
        **made,
        "cut": cut_of(made) if wanted.is_graph else None,
        "index_s": made["wall_s"] - stages.get("certify", 0.0),
        "order_s": sum(stages.get(stage, 0.0) for stage in _ORDER_STAGES),
        "to_budget": made["peak_bytes"] / parse_size(wanted.memory),
        **plan_beside(said, made),
        **found,
    }


def plan_beside(said: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row says of a plan: its figures, the seconds of its stages, and the errors of the figures."""
    return {
        "planned": plan.figures(said),
        "planned_stage_s": plan.stage_seconds(said),
        "error": plan.errors(said, made),
    }


def cut_of(made: Mapping[str, Any]) -> str:
    """Return how the graph of a build was cut, by its stages and shards."""
    if _OF_REGIONS in made["stage_s"]:
        return REGIONS
    return WHOLE if made["shards"] == 1 else f"{made['shards']} shards"


def check_cut(name: str, wanted: Built, cut: str) -> None:
    """Raise RuntimeError if a graph is cut in another way than its figures stand for."""
    if wanted.cut not in (None, cut):
        raise RuntimeError(f"{name}: in {wanted.memory} the graph is built in {cut}, expected {wanted.cut}")


def environment(run: Run) -> dict[str, Any]:
    """Make DiskANN's environment, which needs a package index, before anything of it is timed."""
    diskann.python(Workspace(given(run, 1), run.out))
    return {"packages": list(diskann.PACKAGES)}


def measure_diskann(run: Run, millions: int) -> dict[str, Any]:
    """Build DiskANN's index with the same R, L and bytes of a code, and search it; it is removed."""
    space = Workspace(given(run, millions), run.out)
    try:
        made = diskann.build(space)
        with diskann.DiskAnn(space) as peer:
            return {"n": space.data.shape()[0], **made} | reads_of(peer.search("single"), peer.search())
    finally:
        shutil.rmtree(space.diskann_index, ignore_errors=True)


def ratios(run: Run) -> dict[str, Any]:
    """Compare the builds that were measured with DiskANN, with smaller sets, and with more memory."""
    parts = record.load(run.results)["parts"]
    found = {name: part for name, part in parts.items() if "refused" not in part}
    few, many = (found.get(name) for name in GROWTHS["1 to 10"])
    within, whole = found.get("n10-2GiB"), found.get("n10-whole")
    theirs = [found.get(name) for name in DISKANN]
    reads = {"indexmill": reads_growth(few, many), "diskann": reads_growth(*theirs)}
    return {
        "to_diskann": many["index_s"] / theirs[1]["wall_s"] if many and theirs[1] else None,
        "growth": {
            name: {"from": pair[0], "to": pair[1], **growth(*(found.get(one) for one in pair))}
            for name, pair in GROWTHS.items()
        },
        "within": within["index_s"] / whole["index_s"] if within and whole else None,
        "same_bytes": float(within["build_id"] == whole["build_id"]) if within and whole else None,
        "reads": {**reads, "ratio": ratio(*reads.values())},
    }


def growth(few: dict[str, Any] | None, many: dict[str, Any] | None) -> dict[str, float | None]:
    """Return how many times the index's seconds one build takes of the other, and the power of n that this is."""
    if few is None or many is None:
        return {"times": None, "exponent": None}
    times = many["index_s"] / few["index_s"]
    return {"times": times, "exponent": log(times) / log(many["n"] / few["n"])}


def reads_growth(few: dict[str, Any] | None, many: dict[str, Any] | None) -> float | None:
    """Return page reads at recall 0.95 over those of the smaller set; None without both."""
    if few is None or many is None:
        return None
    least, most = (found["pages_read"][key(RECALL)] for found in (few, many))
    return None if least is None or most is None else ratio(most["value"], least["value"])
