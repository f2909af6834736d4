"""Measure indexmill against DiskANN on the set ``sift1m`` and record the figures.

    python -m indexmill.jobs.bench.sift1m --data DIR --out DIR [--parts build,qps] [--keep] [--rows N]

Parts run in the order of `PARTS`; each one's result is added to ``OUT/results.json`` as soon as it is there, so a part
can be repeated alone. Indexes that are in OUT are used, and those that a part misses are built; only the part
``build``, which measures that, always builds anew. A part that fails is reported in the end and stops no other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import disk, parts, record, tables
from indexmill.jobs.bench.common.dataset import Dataset, first_rows
from indexmill.jobs.bench.common.machine import REPOSITORY
from indexmill.jobs.bench.programs import graph_quality
from indexmill.jobs.bench.programs.diskann import PACKAGES
from indexmill.jobs.bench.programs.workspace import BUILD_MEMORY, THREADS, Workspace
from indexmill.jobs.bench.sift1m import (
    ablation,
    bandwidth,
    builds,
    compactness,
    completion,
    cpu,
    device_limit,
    latency,
    memory,
    page_reads,
    plots,
    qps,
    readme,
    startup,
)

NAME = "sift1m"
PAGE, README = REPOSITORY / "docs" / "benchmarks.md", REPOSITORY / "README.md"
IMAGES = REPOSITORY / "docs" / "images"
PARTS: dict[str, Callable[[Workspace], dict[str, Any]]] = {
    "disk": disk.measure,
    "startup": startup.measure,
    "build": builds.measure,
    "quality": graph_quality.measure,
    "reads": page_reads.measure,
    "qps": qps.measure,
    "latency": latency.measure,
    "cpu": cpu.measure,
    "ablation": ablation.measure,
    "bandwidth": bandwidth.measure,
    "completion": completion.measure,
    "device": device_limit.measure,
    "memory": memory.measure,
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
    space = Workspace(data, out)
    found = record.load(space.results)
    n_vectors, dim = data.shape()
    about = {"name": name, "n_vectors": n_vectors, "dim": dim, "dtype": "uint8"}
    record.begin(
        found, space.results, name, about, {"threads": THREADS, "memory": BUILD_MEMORY}, list(PACKAGES)
    )
    failed = parts.run_all(PARTS, arguments.parts, space, found, space.results)
    if not found["parts"]:
        sys.exit(f"error: {space.results}: nothing was measured yet; name some --parts")
    found = record.load(space.results)
    missing = sorted(set(readme.PARTS) - set(found["parts"]))
    if arguments.keep and missing:
        sys.exit(f"error: --keep: {', '.join(missing)}: not measured yet, and the README shows them")
    if arguments.keep and not failed:
        kept = record.keep(space.results)
        plots.write_all(found, IMAGES)
        tables.write_into(PAGE, tables.render(found, str(kept.relative_to(REPOSITORY)), "images"))
        tables.write_into(README, readme.render(found))
    else:
        plots.write_all(found, out / "images")
        print(tables.render(found, str(space.results), str(out / "images")))
    parts.stop_after(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with base.u8bin, query.u8bin and truth.gt"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for indexes, logs and results.json (6 GB)"
    )
    parser.add_argument(
        "--parts",
        type=parts.names(PARTS),
        default=list(PARTS),
        help=f"some of {','.join(PARTS)}; empty: none",
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


if __name__ == "__main__":
    main()
