"""Measure builds within a memory budget, in shards and on executors, and record the figures.

    python -m indexmill.jobs.bench.mill --sift1m DIR --out DIR [--parts oneshot,budget] [--keep] [--rows N]

As in `sift1m.py`, parts run in the order of `PARTS` and can be repeated alone, and one that fails stops no other. The
second set is generated, with its truth, by the first run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import parts, record, tables
from indexmill.jobs.bench.common.machine import REPOSITORY
from indexmill.jobs.bench.mill import budget as mill_budget
from indexmill.jobs.bench.mill import plan as mill_plan
from indexmill.jobs.bench.mill import ratios as mill_ratios
from indexmill.jobs.bench.mill import tables as tables_mill
from indexmill.jobs.bench.mill.space import BUDGETS, Mill, make_space
from indexmill.jobs.bench.programs.workspace import THREADS

NAME = "mill"
PAGE = REPOSITORY / "docs" / "benchmarks.md"
PARTS: dict[str, Callable[[Mill], dict[str, Any]]] = {
    "data": mill_budget.data,
    "oneshot": mill_budget.oneshot,
    "budget": mill_budget.budget,
    "limit": mill_budget.limit,
    "shards": mill_ratios.shards,
    "workers": mill_ratios.workers,
    "ray": mill_ratios.ray,
    "plan": mill_plan.measure,
}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    mill = make_space(arguments.sift1m.resolve(), out, arguments.rows)
    found = record.load(mill.results)
    about = [
        dict(zip(("name", "n_vectors", "dim", "dtype"), (name, *data.shape(), "uint8"), strict=True))
        for name, data in mill.sets.items()
    ]
    name = f"{NAME}-{arguments.rows}" if arguments.rows else NAME
    record.begin(found, mill.results, name, about, {"threads": THREADS, "budgets": BUDGETS}, [])
    if set(arguments.parts) - {"data"}:
        mill.warm_up()
    failed = parts.run_all(PARTS, arguments.parts, mill, found, mill.results)
    if not found["parts"]:
        sys.exit(f"error: {mill.results}: nothing was measured yet; name some --parts")
    found = record.load(mill.results)
    if arguments.keep and not failed:
        kept = record.keep(mill.results)
        tables.write_into(
            PAGE, tables_mill.render(found, str(kept.relative_to(REPOSITORY))), tables_mill.MARKS
        )
    else:
        print(tables_mill.render(found, str(mill.results)))
    parts.stop_after(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--sift1m", type=Path, required=True, help="folder with base.u8bin, query.u8bin and truth.gt"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder for the generated set, indexes and results.json (20 GB)",
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
