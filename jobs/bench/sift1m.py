"""Measure indexmill against DiskANN on the set ``sift1m`` and record the figures.

    python jobs/bench/sift1m.py --data DIR --out DIR [--parts build,qps] [--keep] [--rows N]

Parts run in the order of `PARTS`; each one's result is added to ``OUT/results.json`` as soon as it is there,
so a part can be repeated alone with the indexes that ``build`` left in OUT.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builds
import compactness
import disk
import graph_quality
import page_reads
import qps
import record
import startup
import tables
from dataset import Dataset, first_rows
from diskann import PACKAGES
from machine import REPOSITORY
from workspace import Workspace

NAME = "sift1m"
PAGE = REPOSITORY / "docs" / "benchmarks.md"
PARTS: dict[str, Callable[[Workspace], dict[str, Any]]] = {
    "disk": disk.measure,
    "startup": startup.measure,
    "build": builds.measure,
    "quality": graph_quality.measure,
    "reads": page_reads.measure,
    "qps": qps.measure,
    "compactness": compactness.measure,
}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    data = Dataset(arguments.data.resolve())
    name = NAME
    if arguments.rows:
        name = f"{NAME}-{arguments.rows}"
        data = first_rows(data, arguments.rows, out / "data")
    space, results = Workspace(data, out), out / "results.json"
    found = record.load(results)
    record.begin(found, space, name, list(PACKAGES))
    for part in arguments.parts:
        began = time.perf_counter()
        print(f"{part} ...", file=sys.stderr, flush=True)
        found["parts"][part] = record.start_part() | PARTS[part](space)
        found["parts"][part]["part_s"] = round(time.perf_counter() - began, 1)
        record.save(found, results)
    if not found["parts"]:
        sys.exit(f"error: {results}: nothing was measured yet; name some --parts")
    if arguments.keep:
        kept = record.keep(results)
        tables.write_into(PAGE, found, str(kept.relative_to(REPOSITORY)))
    else:
        print(tables.render(found, str(results)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with base.u8bin, query.u8bin and truth.gt"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for indexes, logs and results.json (6 GB)"
    )
    parser.add_argument(
        "--parts", type=_parts, default=list(PARTS), help=f"some of {','.join(PARTS)}; empty: none"
    )
    parser.add_argument(
        "--rows", type=int, help="try it: the first N vectors with their own truth; never recorded"
    )
    parser.add_argument(
        "--keep", action="store_true", help="store the record in the repository, write docs/benchmarks.md"
    )
    arguments = parser.parse_args()
    if arguments.rows and arguments.keep:
        parser.error("--keep stores whole runs only; leave out --rows")
    return arguments


def _parts(text: str) -> list[str]:
    wanted = [part for part in text.split(",") if part]
    unknown = sorted(set(wanted) - set(PARTS))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    return [part for part in PARTS if part in wanted]


if __name__ == "__main__":
    main()
