"""Measure page layouts: what orders cost, the pages they read, and the best of them beside DiskANN; record the figures.

    python -m indexmill.jobs.bench.layouts --sift1m DIR --text40k DIR --out DIR

As in `sift1m.py`, parts run in the order of `PARTS` and can be repeated alone, and one that fails stops no other.
OUT may be a folder of `sift1m.py`: its indexes in identity order and of DiskANN are used. What is missing is made.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import parts, record
from indexmill.jobs.bench.common.machine import REPOSITORY
from indexmill.jobs.bench.layouts import command as layouts_command
from indexmill.jobs.bench.layouts import fit as layouts_fit
from indexmill.jobs.bench.layouts import reads as layouts_reads
from indexmill.jobs.bench.layouts import speed as layouts_speed
from indexmill.jobs.bench.layouts import tables as tables_layouts
from indexmill.jobs.bench.layouts import written as layouts_written
from indexmill.jobs.bench.layouts.cases import Layouts, facts, make_space
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.workspace import THREADS

NAME = "layouts"
PAGE, GUIDE = REPOSITORY / "docs" / "benchmarks.md", REPOSITORY / "docs" / "guides" / "layout.md"
CASES = ("sift1m-R32", "sift1m-R48", "text40k-R32")
#: The index that is held against DiskANN's, which has as many neighbours.
AGAINST_DISKANN = "sift1m-R32"


def indexes(space: Layouts) -> dict[str, Any]:
    """Build the indexes in identity order that are not there."""
    for case in space.cases.values():
        ours.ensure_shape(case.space, case.shape)
    return {"indexes": {name: facts(case) for name, case in space.cases.items()}}


def fit(name: str, space: Layouts) -> dict[str, Any]:
    return layouts_fit.measure(space.cases[name])


def command(name: str, space: Layouts) -> dict[str, Any]:
    return layouts_command.measure(space.cases[name])


def reads(name: str, space: Layouts) -> dict[str, Any]:
    return layouts_reads.measure(space.cases[name])


def auto(name: str, space: Layouts) -> dict[str, Any]:
    return layouts_written.auto(space.cases[name])


def prune(name: str, space: Layouts) -> dict[str, Any]:
    return layouts_written.prune(space.cases[name], space.earlier(f"reads-{name}")["best"])


def speed(space: Layouts) -> dict[str, Any]:
    best = space.earlier(f"reads-{AGAINST_DISKANN}")["best"]
    return layouts_speed.measure(space.cases[AGAINST_DISKANN], best)


PARTS: dict[str, Callable[[Layouts], dict[str, Any]]] = {
    "indexes": indexes,
    **{f"fit-{name}": partial(fit, name) for name in CASES},
    **{f"command-{name}": partial(command, name) for name in CASES},
    **{f"reads-{name}": partial(reads, name) for name in CASES},
    **{f"auto-{name}": partial(auto, name) for name in CASES},
    **{f"prune-{name}": partial(prune, name) for name in CASES},
    "speed": speed,
}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    space = make_space(arguments.sift1m.resolve(), arguments.text40k.resolve(), out, arguments.rows)
    found = record.load(space.results)
    name = f"{NAME}-{arguments.rows}" if arguments.rows else NAME
    shapes = {
        case: {"R": one.shape.max_degree, "pq_bytes": one.shape.pq_bytes} for case, one in space.cases.items()
    }
    record.begin(
        found,
        space.results,
        name,
        _sets(space),
        {"threads": THREADS, "indexes": shapes},
        list(diskann.PACKAGES),
    )
    failed = parts.run_all(PARTS, arguments.parts, space, found, space.results)
    if not found["parts"]:
        sys.exit(f"error: {space.results}: nothing was measured yet; name some --parts")
    found = record.load(space.results)
    missing = sorted(
        {f"{part}-{tables_layouts.GUIDE_CASE}" for part in ("fit", "reads")} - set(found["parts"])
    )
    if arguments.keep and missing:
        sys.exit(f"error: --keep: {', '.join(missing)}: not measured yet, and the guide shows them")
    if arguments.keep and not failed:
        kept = record.keep(space.results)
        tables_layouts.write_pages(found, str(kept.relative_to(REPOSITORY)), PAGE, GUIDE)
    else:
        print(tables_layouts.render(found, str(space.results)))
    parts.stop_after(failed)


def _sets(space: Layouts) -> list[dict[str, Any]]:
    """Return name and shape of each set; several indexes may be of one."""
    sets: dict[str, dict[str, Any]] = {}
    for name, case in space.cases.items():
        n_vectors, dim = case.space.data.shape()
        dtype = {".u8bin": "uint8", ".fbin": "float32"}[case.space.data.base.suffix]
        of = name.rsplit("-", 1)[0]
        sets[of] = {"name": of, "n_vectors": n_vectors, "dim": dim, "dtype": dtype}
    return list(sets.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--sift1m", type=Path, required=True, help="folder with base.u8bin, query.u8bin and truth.gt"
    )
    parser.add_argument(
        "--text40k", type=Path, required=True, help="folder with base.parquet, query.parquet and truth.gt"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for indexes, orders, logs and layouts.json (8 GB)"
    )
    parser.add_argument(
        "--parts",
        type=parts.names(PARTS),
        default=list(PARTS),
        help=f"some of {','.join(PARTS)}; empty: none",
    )
    parser.add_argument("--rows", type=int, help="try it: N vectors of each set; never recorded")
    parser.add_argument(
        "--keep", action="store_true", help="store the record in the repository, write docs/benchmarks.md"
    )
    arguments = parser.parse_args()
    if arguments.rows and arguments.keep:
        parser.error("--keep stores whole runs only; leave out --rows")
    return arguments


if __name__ == "__main__":
    main()
