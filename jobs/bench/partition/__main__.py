"""Measure the partition builder beside vamana and other programs: builds, graphs, growth, and codes.

    python -m indexmill.jobs.bench.partition --sift1m DIR --text40k DIR --out DIR  # all parts
    python -m indexmill.jobs.bench.partition --sift1m DIR --text40k DIR --out DIR --parts sift1m-R32  # a part again
    python -m indexmill.jobs.bench.partition --sift1m DIR --text40k DIR --out DIR --rows 20000
    python -m indexmill.jobs.bench.partition --sift1m DIR --text40k DIR --out DIR --parts= --keep  # store the record

Folders as for `layouts.py`. Every round builds once with each of our builders; DiskANN's disk index (R = 32) and the
graphs of DiskANN, SVS and hnswlib (R = 64) are built once, each in a process of its own with as many threads, between
two runs of `calibration`. All graphs are searched by one search of ours.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import generate, parts, record
from indexmill.jobs.bench.common.curves import key, ratio, value_at
from indexmill.jobs.bench.common.dataset import Dataset, first_rows
from indexmill.jobs.bench.common.machine import REPOSITORY
from indexmill.jobs.bench.layouts.cases import text_set
from indexmill.jobs.bench.partition import builds as partition_builds
from indexmill.jobs.bench.partition import pq as partition_pq
from indexmill.jobs.bench.partition import tables as tables_partition
from indexmill.jobs.bench.partition.builds import BUILDERS, SETS, SHAPES, Builds
from indexmill.jobs.bench.programs import calibration, diskann, graph_quality, peers
from indexmill.jobs.bench.programs.workspace import SEED, THREADS

ROUNDS = 3
#: Recalls at which distances are compared, and the list sizes searched until the larger one is passed.
RECALLS = (0.95, 0.99)
LIST_SIZES = (10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100, 120, 160, 220, 300, 400, 600, 800)
#: Vectors that growth is measured on; of a trial with --rows N the same shares of 2 N.
SIZES = (250_000, 500_000, 1_000_000, 2_000_000)
PAGE = REPOSITORY / "docs" / "benchmarks.md"


def case(space: Builds, name: str, max_degree: int, list_size: int) -> dict[str, Any]:
    """Build a set with our builders in turns and with its peers; costs, distances of one search, and ratios."""
    data = space.sets[name]
    shape = (max_degree, list_size)
    peers.make_environments(space.out)
    found: dict[str, Any] = {"set": name, "max_degree": max_degree, "list_size": list_size}
    found |= _ours(space, data, shape)
    found["memory"] = partition_builds.memory(space, data.base, "partition", *shape)
    entry = graph_quality.read_ours(space.index("vamana")).start
    others = peers.PROGRAMS[:1] if shape == SHAPES[0] else peers.PROGRAMS
    for peer in others:
        before = calibration.seconds(data)
        if shape == SHAPES[0]:
            cost, graph = peers.build_diskann_index(data, space.out)
        else:
            cost, graph = peers.build(peer, data, space.out, *shape, entry)
        cost["calibration_s"] = [before, calibration.seconds(data)]
        cost["mean_degree"] = float(graph.degrees.mean())
        found[peer] = cost | _quality(data, graph)
    found["ratios"] = {
        builder: {
            side: _ratios(found[builder], found[side]) for side in ("vamana", *others) if side != builder
        }
        for builder in BUILDERS
    }
    return found


def growth(space: Builds) -> dict[str, Any]:
    """Build drawn vectors with the partition builder, R and L of the first case; exponents of the seconds.

    Smaller sets are the beginning of larger ones (`generate`).
    """
    sizes = [n * space.rows // 1_000_000 for n in SIZES] if space.rows else SIZES
    data = Dataset(space.out / "growth")
    data.folder.mkdir(exist_ok=True)
    generate.write(data.base, generate.Manifold(SEED), generate.BASE, sizes[-1], THREADS)
    partition_builds.warm_up(space, data)
    before = calibration.seconds(data)
    rows = []
    for n in sizes:
        base = space.first(data, n)
        made = [partition_builds.build(space, base, "partition", *SHAPES[0]) for _ in range(space.rounds)]
        rows.append({"n": n, **partition_builds.medians(made)})
        base.unlink()
    drift = [before, calibration.seconds(data)]
    shutil.rmtree(data.folder)
    exponents = {
        f"{name}_exponent": partition_builds.exponent(rows, f"{name}_s") for name in ("graph", "index")
    }
    return {"rows": rows, "calibration_s": drift} | exponents


def _ours(space: Builds, data: Dataset, shape: tuple[int, int]) -> dict[str, Any]:
    """Build in turns, with vamana once where only the first builder is compared; medians, and distances."""
    partition_builds.warm_up(space, data)
    before = calibration.seconds(data)
    runs: dict[str, list[dict[str, Any]]] = {builder: [] for builder in BUILDERS}
    for done in range(space.rounds):
        for builder in BUILDERS if done == 0 or shape == SHAPES[0] else BUILDERS[:1]:
            runs[builder].append(partition_builds.build(space, data.base, builder, *shape))
    drift = [before, calibration.seconds(data)]
    found: dict[str, Any] = {}
    for builder in BUILDERS:
        quality = _quality(data, graph_quality.read_ours(space.index(builder)))
        found[builder] = partition_builds.medians(runs[builder]) | {"calibration_s": drift} | quality
    return found


def _ratios(mine: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    seconds = {name: ratio(mine[f"{name}_s"], other[f"{name}_s"]) for name in ("graph", "index")}
    distances = {at: ratio(value, other["distances"][at]) for at, value in mine["distances"].items()}
    return seconds | {"distances": distances}


def _quality(data: Dataset, graph: diskann.Graph) -> dict[str, Any]:
    rows = graph_quality.curve(data, graph, LIST_SIZES, RECALLS[-1])
    return {"distances": {key(at): value_at(rows, "distances", at) for at in RECALLS}, "rows": rows}


PARTS: dict[str, Callable[[Builds], dict[str, Any]]] = {
    f"{name}-R{shape[0]}": partial(case, name=name, max_degree=shape[0], list_size=shape[1])
    for name in SETS
    for shape in SHAPES
} | {"growth": growth, "pq": partition_pq.measure}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    sets = {
        "sift1m": Dataset(arguments.sift1m.resolve()),
        "text40k": text_set(arguments.text40k.resolve(), out / "text40k"),
    }
    name = "partition"
    if arguments.rows:
        name = f"partition-{arguments.rows}"
        sets = {one: first_rows(data, arguments.rows, out / f"{one}-rows") for one, data in sets.items()}
    space = Builds(sets, out, arguments.rounds, arguments.rows)
    path = out / f"{name}.json"
    found = record.load(path)
    facts = [
        {"name": one, "n_vectors": data.shape()[0], "dim": data.shape()[1], "dtype": str(data.dtype())}
        for one, data in sets.items()
    ]
    parameters = {"shapes": SHAPES, "rounds": arguments.rounds, "order": "identity", "threads": THREADS}
    record.begin(found, path, "partition", facts, parameters, [diskann.PACKAGES[0], *peers.PACKAGES[:2]])
    chosen = arguments.parts
    if chosen is None:
        chosen = [part for part in PARTS if part not in found["parts"]]
    failed = parts.run_all(PARTS, chosen, space, found, path)
    for builder in BUILDERS:
        shutil.rmtree(space.index(builder), ignore_errors=True)
    found = record.load(path)
    if arguments.keep and not failed:
        kept = record.keep(path)
        tables_partition.write_page(found, str(kept.relative_to(REPOSITORY)), PAGE)
    elif found.get("parts"):
        sys.stdout.write(tables_partition.render(found, str(path)))
    parts.stop_after(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--sift1m", type=Path, required=True, help="folder with base, query and truth.gt")
    parser.add_argument(
        "--text40k", type=Path, required=True, help="folder with base.parquet, query.parquet and truth.gt"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for environments, indexes, logs and the record (4 GB)"
    )
    parser.add_argument("--parts", type=parts.names(PARTS), help=f"measure these again: {','.join(PARTS)}")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="builds of each of ours, of which medians are taken"
    )
    parser.add_argument("--rows", type=int, help="try it on so many vectors of each set; never kept")
    parser.add_argument(
        "--keep", action="store_true", help="store the record and write the page of benchmarks"
    )
    arguments = parser.parse_args()
    if arguments.rows and arguments.keep:
        parser.error("--rows does not go with --keep")
    return arguments


if __name__ == "__main__":
    main()
