"""Measure hash tables on storage beside SRS, QALSH, a cost model and the other kinds of index; record the figures.

    python -m indexmill.jobs.bench.lsh --sift1m DIR --text40k DIR --out DIR

As in `sift1m.py`, parts run in the order of `PARTS` and can be repeated alone, and one that fails stops no other.
What a part needs of an earlier one it reads from the record, OUT/lsh.json. Indexes that are missing are built.
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
from indexmill.jobs.bench.lsh import blocks as lsh_blocks
from indexmill.jobs.bench.lsh import growth as lsh_growth
from indexmill.jobs.bench.lsh import insertions as lsh_insertions
from indexmill.jobs.bench.lsh import kinds as lsh_kinds
from indexmill.jobs.bench.lsh import page as tables_lsh
from indexmill.jobs.bench.lsh import speed as lsh_speed
from indexmill.jobs.bench.lsh import storage as lsh_storage
from indexmill.jobs.bench.lsh import sync as lsh_sync
from indexmill.jobs.bench.lsh import tables as lsh_tables
from indexmill.jobs.bench.lsh.sets import facts, make_sets
from indexmill.jobs.bench.lsh.space import SHAPES, Space
from indexmill.jobs.bench.lsh.tune import KS, TARGET

NAME = "lsh"
PAGE = REPOSITORY / "docs" / "benchmarks.md"
SETS = ("sift1m", "text40k", "rand", "gauss")


PARTS: dict[str, Callable[[Space], dict[str, Any]]] = {
    "build": lsh_insertions.measure,
    **{f"tables-{name}": partial(lsh_tables.measure, name) for name in SETS},
    **{f"speed-{name}": partial(lsh_speed.measure, name) for name in SETS},
    "storage": lsh_storage.measure,
    "simulated": lsh_storage.simulated,
    "synchronous": lsh_sync.measure,
    "blocks": lsh_blocks.measure,
    "growth": lsh_growth.measure,
    "kinds": lsh_kinds.measure,
}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    sets = make_sets(arguments.sift1m.resolve(), arguments.text40k.resolve(), out / "data", arguments.rows)
    space = Space(sets, out, arguments.rows)
    found = record.load(space.results)
    shapes = {shape.name: shape.options for shape in SHAPES.values()}
    record.begin(
        found,
        space.results,
        f"{NAME}-{arguments.rows}" if arguments.rows else NAME,
        [facts(name, space.data(name)) for name in SETS],
        {"ratio": TARGET, "k": list(KS), "shapes": shapes, "inflight": lsh_tables.INFLIGHT},
        [],
    )
    failed = parts.run_all(PARTS, arguments.parts, space, found, space.results)
    if not found["parts"]:
        sys.exit(f"error: {space.results}: nothing was measured yet; name some --parts")
    found = record.load(space.results)
    if arguments.keep and not failed:
        kept = record.keep(space.results)
        tables_lsh.write_page(found, str(kept.relative_to(REPOSITORY)), PAGE)
    else:
        print(tables_lsh.render(found, str(space.results)))
    parts.stop_after(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--sift1m", type=Path, required=True, help="folder with base.u8bin, query.u8bin and truth.gt"
    )
    parser.add_argument(
        "--text40k", type=Path, required=True, help="folder with base.parquet, query.parquet and truth.gt"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for sets, indexes, logs and lsh.json (25 GB)"
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
