"""Measure the partition builder beside vamana and other programs: builds, graphs, growth, codes, and hard sets.

Every round builds once with `partition`, the first one with `vamana`, too; DiskANN's disk index (R = 32) and the graphs
of DiskANN, SVS and hnswlib (R = 64) are built once, each in a process of its own with as many threads, between two runs
of `calibration`. All graphs are searched by one search of ours. Indexes are built in input order, which takes no time,
so that builders are compared; with R = 32 each round builds as a user would on a disk, too (`VARIANTS`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from typing import Any

from indexmill.jobs.bench.common import generate
from indexmill.jobs.bench.common.benchmark import PAGE, ROUNDS_OPTION, Benchmark, Page, Target
from indexmill.jobs.bench.common.calibration import calibration
from indexmill.jobs.bench.common.curves import key, ratio
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.parameters import ORDER, SEED, THREADS
from indexmill.jobs.bench.partition import ablations, builds, judge, leaves, pq
from indexmill.jobs.bench.partition.builds import BUILDERS, RECALLS, SETS, SHAPES, Builds, quality
from indexmill.jobs.bench.programs import diskann, graph_quality, peers

ROUNDS = 3
#: The guides that quote the record, and what they quote: templates of the folder `guide`.
GUIDES = {
    "docs/guides/builders.md": ("default", "regions", "saturation", "passes", "codes"),
    "docs/guides/build.md": ("rotation",),
}
#: Vectors that growth is measured on; of a trial with --rows N the same shares of 2 N.
SIZES = (250_000, 500_000, 1_000_000, 2_000_000)


def case(space: Builds, name: str, max_degree: int, list_size: int) -> dict[str, Any]:
    """Build a set with our builders in turns and with its peers; costs, distances of one search, and ratios."""
    data = space.sets[name]
    shape = (max_degree, list_size)
    peers.make_environments(space.out)
    found: dict[str, Any] = {"set": name, "max_degree": max_degree, "list_size": list_size}
    found |= _ours(space, data, shape)
    entry = graph_quality.read_ours(space.index("vamana")).start
    others = peers.PROGRAMS[:1] if shape == SHAPES[0] else peers.PROGRAMS
    for peer in others:
        before = calibration(data)
        if shape == SHAPES[0]:
            cost, graph = peers.build_diskann_index(data, space.out)
        else:
            cost, graph = peers.build(peer, data, space.out, *shape, entry)
        cost["calibration_s"] = [before, calibration(data)]
        cost["mean_degree"] = float(graph.degrees.mean())
        found[peer] = cost | quality(data, graph)
    for variant in found.keys() & VARIANTS:
        found[f"{variant}_ratio"] = ratio(found[variant]["index_s"], found["diskann"]["index_s"])
    found["ratios"] = {
        builder: {
            side: _ratios(found[builder], found[side]) for side in ("vamana", *others) if side != builder
        }
        for builder in BUILDERS
    }
    space.remove()
    return found


def growth(space: Builds) -> dict[str, Any]:
    """Build drawn vectors with the partition builder, R and L of the first case; exponents of the seconds.

    Smaller sets are the beginning of larger ones (`generate`).
    """
    sizes = [n * space.rows // 1_000_000 for n in SIZES] if space.rows else SIZES
    data = Dataset(space.out / "growth")
    data.folder.mkdir(exist_ok=True)
    generate.write(data.base, generate.Manifold(SEED), generate.BASE, sizes[-1], THREADS)
    builds.warm_up(space, data)
    before = calibration(data)
    rows = []
    for n in sizes:
        base = space.first(data, n)
        made = [builds.build(space, base, "partition", *SHAPES[0]) for _ in range(space.rounds)]
        rows.append({"n": n, **builds.medians(made)})
        base.unlink()
    drift = [before, calibration(data)]
    shutil.rmtree(data.folder)
    space.remove()
    exponents = {f"{name}_exponent": builds.exponent(rows, f"{name}_s") for name in ("graph", "index")}
    return {"rows": rows, "calibration_s": drift} | exponents


def _ours(space: Builds, data: Dataset, shape: tuple[int, int]) -> dict[str, Any]:
    """Build in turns, with vamana, which takes long, in the first only; medians, distances, and memory by `plan`."""
    variants = _variants(data, shape)
    builds.warm_up(space, data, variants.values())
    before = calibration(data)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in (*variants, *BUILDERS)}
    for done in range(space.rounds):
        for name, options in variants.items():  # before the builders, whose indexes are searched in the end
            runs[name].append(builds.build(space, data.base, "partition", *shape, **options))
        for builder in BUILDERS if done == 0 else BUILDERS[:1]:
            runs[builder].append(builds.build(space, data.base, builder, *shape))
    drift = {"calibration_s": [before, calibration(data)]}
    found: dict[str, Any] = {name: builds.medians(made) | drift for name, made in runs.items()}
    for builder in BUILDERS:
        found[builder] |= quality(data, graph_quality.read_ours(space.index(builder)))
    for name, options in {"partition": dict[str, Any](), **variants}.items():
        found[name]["memory"] = builds.memory(space, data.base, "partition", *shape, **options)
    return found


def _variants(data: Dataset, shape: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """Return the further builds of a set."""
    name = "small" if data.shape()[1] > LONG else "ordered"
    return {name: VARIANTS[name]} if shape == SHAPES[0] else {}


def _ratios(mine: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    seconds = {name: ratio(mine[f"{name}_s"], other[f"{name}_s"]) for name in ("graph", "index")}
    distances = {at: ratio(value, other["distances"][at]) for at, value in mine["distances"].items()}
    return seconds | {"distances": distances}


#: Case, builder, the other side, which of their seconds are compared, and the greatest ratios of them and of distances.
_SECONDS = (
    ("sift1m-R32", "vamana", "diskann", "index", 0.5, 1.03),
    ("sift1m-R32", "partition", "diskann", "index", 0.09, 0.98),
    ("sift1m-R64", "partition", "diskann", "graph", 1 / 6, 1.03),
    ("sift1m-R64", "partition", "svs", "graph", 1 / 3, 1.03),
    ("sift1m-R64", "partition", "hnswlib", "graph", 1 / 3, 1.03),
    ("embed768-R32", "partition", "diskann", "index", 0.15, 1.0),
    ("embed768-R64", "partition", "diskann", "graph", 1 / 6, 1.03),
    ("embed768-R64", "partition", "svs", "graph", 1 / 3, 1.03),
    ("embed768-R64", "partition", "hnswlib", "graph", 1 / 4, 1.03),
)
#: Further builds of the first shape by `partition`, in the default order; of vectors of more than `LONG` components, of
#: which a page would hold one, with rotated codes and nodes of a byte a component.
VARIANTS: dict[str, dict[str, Any]] = {
    "ordered": {"order": ORDER},
    "small": {"pq_rotation": "opq", "node_dtype": "sq8", "order": ORDER},
}
LONG = 512
#: Which of them a case has, and the greatest ratio of the seconds of that index to DiskANN's.
_FURTHER = {"sift1m-R32": ("ordered", 0.09), "text40k-R32": ("ordered", None), "embed768-R32": ("small", 0.2)}
_TOLD = {"ordered": "in the default order", "small": "in the default order, with rotated codes and sq8 nodes"}
CASES = {f"{name}-R{shape[0]}": (name, *shape) for name in SETS for shape in SHAPES}
#: Stages beside graph and codes, each of which is to take at most a tenth of a build.
_SMALL_STAGES = ("ingest", "entries", "navigation", "order", "pack", "emit", "certify")
#: Error of the codes over faiss's: 1.00 in two digits, and with a rotation.
_ERRORS = {"none": 1.005, "opq": 1.01}


def _small_stages(of: str, told: str) -> Iterator[Target]:
    """Return a target for each small stage of a build, `of` its place in the record."""
    for stage in _SMALL_STAGES:
        share = f"{of}.stage_s.{stage} / {of}.wall_s"
        yield Target(f"{told}: share of stage {stage}", share, "<=", 0.1)


def _peak(case: str, build: str, told: str) -> Target:
    of = f"{case.replace('-', '_')}.{build}"
    figure = f"{of}.peak_memory_bytes / {of}.memory.planned_peak_bytes"
    return Target(f"{case}: peak memory {told} / what `plan` says", figure, "<=", 1, "x")


def _targets() -> Iterator[Target]:
    for case, mine, side, what, limit, most in _SECONDS:
        ratios = f"{case.replace('-', '_')}.ratios.{mine}.{side}"
        yield Target(f"{case}: seconds of the {what}, {mine} / {side}", f"{ratios}.{what}", "<=", limit, "x")
        for at in RECALLS:
            told = f"{case}: distances at recall@10 {key(at)}, {mine} / {side}"
            yield Target(told, f"{ratios}.distances['{key(at)}']", "<=", most, "x")
    for case in CASES:
        yield _peak(case, "partition", "of the partition builder")
    for case, (variant, greatest) in _FURTHER.items():
        of, told = case.replace("-", "_"), _TOLD[variant]
        if greatest is not None:
            said = f"{case}: seconds of the index {told}, partition / diskann"
            yield Target(said, f"{of}.{variant}_ratio", "<=", greatest, "x")
        yield _peak(case, variant, told)
        yield from _small_stages(f"{of}.partition", case)
        yield from _small_stages(f"{of}.{variant}", f"{case}, {told}")
    for i, (name, hard) in enumerate(judge.SETS.items()):
        if hard.recall is not None:
            told = f"{name}: recall from one vertex, L = {judge.SIZE}"
            yield Target(told, f"judge.rows[{i}].partition.recall", ">=", hard.recall)
    for i, name in enumerate(judge.LINKED):
        for at in RECALLS:
            told = f"{name}: distances at recall@10 {key(at)}, distant clusters linked / not linked"
            yield Target(told, f"judge.links[{i}].ratio['{key(at)}']", "<=", 1.01, "x")
    yield Target("growth of the index's seconds, n to the power of", "growth.index_exponent", "<=", 1.1)
    yield Target("sift1m: seconds of training and encoding", "pq.rows[0].indexmill.seconds", "<=", 15, "s")
    for i, (name, n_bytes, rotation) in enumerate(pq.CASES):
        told = f"{name}, {n_bytes} bytes{', rotated' if rotation == 'opq' else ''}"
        yield Target(
            f"{told}: error of the codes / faiss", f"pq.rows[{i}].error_ratio", "<=", _ERRORS[rotation], "x"
        )
        if name == "embed768":
            limit = 6 if rotation == "none" else 10
            yield Target(f"{told}: seconds of both", f"pq.rows[{i}].indexmill.seconds", "<=", limit, "s")


BENCHMARK = Benchmark[
    Builds
](
    "partition",
    {
        **{name: lambda space, how=how: case(space, *how) for name, how in CASES.items()},  # type: ignore[misc]
        "growth": growth,
        "pq": pq.measure,
        "leaves": leaves.measure,
        "judge": judge.measure,
        **{name: partial(ablations.measure, name=name) for name in ablations.ABLATIONS},
    },
    tuple(_targets()),
    sets=SETS,
    space=lambda run: Builds(run.sets, run.out, run.options.rounds or ROUNDS, run.rows),
    parameters={"shapes": SHAPES, "rounds": ROUNDS, "order": "identity", "threads": THREADS},
    peers=(diskann.PACKAGES[0], *peers.PACKAGES[:2]),
    pages=(
        Page("tables", PAGE, "partition"),
        Page("readme", "README.md", "builders"),
        *(
            Page(f"guide/{name}", guide, f"builders: {name}")
            for guide, names in GUIDES.items()
            for name in names
        ),
    ),
    options=ROUNDS_OPTION,
)

if __name__ == "__main__":
    BENCHMARK.main()
