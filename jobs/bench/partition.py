"""Measure the partition builder beside vamana: whole builds in turns, the graphs by one search, and growth.

    python jobs/bench/partition.py --sift1m DIR --text40k DIR --out DIR                      # all parts
    python jobs/bench/partition.py --sift1m DIR --text40k DIR --out DIR --parts sift1m-R32   # a part again
    python jobs/bench/partition.py --sift1m DIR --text40k DIR --out DIR --rows 20000         # try it on fewer vectors
    python jobs/bench/partition.py --sift1m DIR --text40k DIR --out DIR --parts= --keep      # store the record

Folders as for `layouts.py`. ``--diskann DIR`` names a disk index that DiskANN built of all of sift1m, prefix ``ann``,
as `sift1m.py` leaves it; its graph is searched with those of its R. Every round builds once with each builder.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import diskann
import graph_quality
import numpy as np
import parts
import record
import tables_partition
from curves import key, ratio, value_at
from dataset import Dataset, first_rows, read_bin, write_bin
from layouts_cases import text_set
from machine import REPOSITORY
from process import run_measured
from workspace import ALPHA, BUILD_MEMORY, PQ_BYTES, SEED, THREADS, indexmill_command

BUILDERS = ("partition", "vamana")
#: R and L of the cases.
SHAPES = ((32, 75), (64, 128))
SETS = ("sift1m", "text40k")
ROUNDS = 3
#: Recalls at which distances are compared, and the list sizes searched until the larger one is passed.
RECALLS = (0.95, 0.99)
LIST_SIZES = (10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100, 120, 160, 220, 300, 400, 600, 800)
#: Shares of the vectors that growth is measured on.
SHARES = (4, 2, 1)
#: Rows of the builds that compile the kernels beforehand.
_WARM_UP_ROWS = 3000
PAGE = REPOSITORY / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Builds:
    """What parts work on.

    Attributes
    ----------
    sets : dict of str to Dataset
        Those of `SETS`.
    out : Path
    rounds : int
    diskann : Path, optional
        DiskANN's index of the first set.
    """

    sets: dict[str, Dataset]
    out: Path
    rounds: int
    diskann: Path | None


def case(space: Builds, name: str, max_degree: int, list_size: int) -> dict[str, Any]:
    """Build a set with both builders in turns; medians, and distances of one search over the graphs."""
    data = space.sets[name]
    _warm_up(space, data)
    runs: dict[str, list[dict[str, Any]]] = {builder: [] for builder in BUILDERS}
    for _ in range(space.rounds):
        for builder in BUILDERS:
            runs[builder].append(_build(space, data.base, builder, max_degree, list_size))
    found: dict[str, Any] = {"set": name, "max_degree": max_degree, "list_size": list_size}
    for builder in BUILDERS:
        graph = graph_quality.read_ours(_index(space, builder))
        found[builder] = _medians(runs[builder]) | _quality(data, graph)
    if space.diskann is not None and name == SETS[0]:
        graph = diskann.read_graph(space.diskann, data.shape())
        if graph.neighbours.shape[1] == max_degree:
            found["diskann"] = _quality(data, graph)
    ours = found["partition"]
    for side in ("vamana", "diskann"):
        if side in found:
            found[f"distances_to_{side}"] = {
                at: ratio(ours["distances"][at], found[side]["distances"][at]) for at in ours["distances"]
            }
    return found | {
        "graph_ratio": ratio(ours["graph_s"], found["vamana"]["graph_s"]),
        "index_ratio": ratio(ours["index_s"], found["vamana"]["index_s"]),
    }


def growth(space: Builds) -> dict[str, Any]:
    """Build parts of the first set with the partition builder, R and L of the first case; exponents of the seconds."""
    data = space.sets[SETS[0]]
    _warm_up(space, data)
    rows = []
    for share in SHARES:
        base = _first(space, data, len(read_bin(data.base)) // share)
        made = [_build(space, base, "partition", *SHAPES[0]) for _ in range(space.rounds)]
        rows.append({"n": len(read_bin(base)), **_medians(made)})
        base.unlink()
    sizes = np.log([row["n"] for row in rows])
    return {
        "rows": rows,
        **{
            f"{name}_exponent": float(np.polyfit(sizes, np.log([row[f"{name}_s"] for row in rows]), 1)[0])
            for name in ("graph", "index")
        },
    }


def _index(space: Builds, builder: str) -> Path:
    return space.out / f"partition-bench-{builder}"


def _build(space: Builds, base: Path, builder: str, max_degree: int, list_size: int) -> dict[str, Any]:
    """Build from nothing; seconds of the graph, and of the index without its certificate."""
    index = _index(space, builder)
    usage = run_measured(
        [
            indexmill_command(), "build", "--input", base, "--out", index, "--kind", "graph", "--builder", builder,
            "-R", max_degree, "-L", list_size, "--alpha", ALPHA, "--pq-bytes", PQ_BYTES, "--order", "identity",
            "--seed", SEED, "--memory", BUILD_MEMORY, "--workers", THREADS, "--force", "--json",
        ],
        index.with_suffix(".log"),
    )  # fmt: skip
    run = json.loads((index / "run.json").read_text())
    made = json.loads((index / "manifest.json").read_text())
    return {
        **usage.to_dict(),
        "stage_s": run["seconds"],
        "graph_s": run["seconds"]["build"],
        "index_s": sum(run["seconds"].values()) - run["seconds"].get("certify", 0.0),
        "peak_memory_bytes": run["peak_memory_bytes"],
        "mean_degree": made["graph"]["mean_degree"],
        "edges_added": made["graph"]["edges_added"],
    }


def _medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of times and memory, what rounds have in common, and all times of the graph."""
    names = ("wall_s", "cpu_s", "graph_s", "index_s", "peak_bytes", "peak_memory_bytes")
    middle = {name: median(run[name] for run in runs) for name in names}
    common = {name: runs[-1][name] for name in ("mean_degree", "edges_added", "stage_s")}
    return middle | common | {"rounds": [run["graph_s"] for run in runs]}


def _quality(data: Dataset, graph: diskann.Graph) -> dict[str, Any]:
    rows = graph_quality.curve(data, graph, LIST_SIZES, RECALLS[-1])
    return {"distances": {key(at): value_at(rows, "distances", at) for at in RECALLS}, "rows": rows}


def _warm_up(space: Builds, data: Dataset) -> None:
    base = _first(space, data, _WARM_UP_ROWS)
    for builder in BUILDERS:
        _build(space, base, builder, *SHAPES[0])
    base.unlink()


def _first(space: Builds, data: Dataset, rows: int) -> Path:
    base = space.out / f"first-{rows}{data.base.suffix}"
    write_bin(base, read_bin(data.base)[:rows])
    return base


PARTS: dict[str, Callable[[Builds], dict[str, Any]]] = {
    f"{name}-R{shape[0]}": partial(case, name=name, max_degree=shape[0], list_size=shape[1])
    for name in SETS
    for shape in SHAPES
} | {"growth": growth}


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
    space = Builds(sets, out, arguments.rounds, arguments.diskann)
    path = out / f"{name}.json"
    found = record.load(path)
    facts = [
        {"name": one, "n_vectors": data.shape()[0], "dim": data.shape()[1], "dtype": str(read_bin(data.base).dtype)}
        for one, data in sets.items()
    ]  # fmt: skip
    parameters = {"shapes": SHAPES, "rounds": arguments.rounds, "order": "identity", "threads": THREADS}
    record.begin(
        found, path, "partition", facts, parameters, diskann.PACKAGES[:1] if arguments.diskann else []
    )
    chosen = arguments.parts
    if chosen is None:
        chosen = [part for part in PARTS if part not in found["parts"]]
    failed = parts.run_all(PARTS, chosen, space, found, path)
    for builder in BUILDERS:
        shutil.rmtree(_index(space, builder), ignore_errors=True)
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
    parser.add_argument("--out", type=Path, required=True, help="folder for indexes, logs and the record")
    parser.add_argument("--diskann", type=Path, help="DiskANN's index of sift1m, whose graph is compared")
    parser.add_argument("--parts", type=parts.names(PARTS), help=f"measure these again: {','.join(PARTS)}")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="builds of each, of which medians are taken"
    )
    parser.add_argument("--rows", type=int, help="try it on so many vectors of each set; never kept")
    parser.add_argument(
        "--keep", action="store_true", help="store the record and write the page of benchmarks"
    )
    arguments = parser.parse_args()
    if arguments.rows and (arguments.keep or arguments.diskann):
        parser.error("--rows goes with neither --keep nor --diskann")
    return arguments


if __name__ == "__main__":
    main()
