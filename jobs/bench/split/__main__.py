"""Divide joins among a host and the drives it holds: by workers slowed to given rates, and in simulation.

    python -m indexmill.jobs.bench.split --data DIR --out DIR [--rows 1000000]
    python -m indexmill.jobs.bench.split --data DIR --out DIR --keep  # stores the record, writes the page's tables

No drive computes here. Part *emulated* is a real join of real batches whose loads and searches wait until a drive of
the paper, scaled down, would be through; part *simulated* is a discrete-event simulation of the paper's platform, in
which nothing is loaded. About 3 minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from indexmill.formats.ivf.index import IvfFiles
from indexmill.jobs.bench.common import parts, record
from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin
from indexmill.jobs.bench.common.machine import REPOSITORY
from indexmill.jobs.bench.common.process import run_measured
from indexmill.jobs.bench.programs.workspace import indexmill_command
from indexmill.jobs.bench.split import paper as split_paper
from indexmill.jobs.bench.split import tables as tables_split
from indexmill.pipeline.join.join import run_join
from indexmill.pipeline.join.options import JoinOptions
from indexmill.pipeline.join.plan import plan_join
from indexmill.pipeline.join.platform import Worker
from indexmill.pipeline.join.simulate import spread

LISTS, NPROBE, BATCHES, DRIVES, ROUNDS = 64, 4, 200, 8, 3
#: Seconds that the host alone is slowed to.
HOST_SECONDS = 17.0
PAGE = REPOSITORY / "docs" / "benchmarks.md"


@dataclass
class Space:
    """What parts work on.

    Attributes
    ----------
    data : Dataset
    out : Path
    rows : int
    """

    data: Dataset
    out: Path
    rows: int


def emulated(space: Space) -> dict[str, Any]:
    """Run the join of a host, of drives, and of both, slowed to the paper's rates over a scale, in turns."""
    index = _index(space)
    queries = np.array(read_bin(space.data.query))
    crews = _crews(index, queries)
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in crews}
    for _ in range(ROUNDS):
        for kind, crew in crews.items():
            runs[kind].append(_run(space, index, queries, crew))
    seconds = {kind: median(one["seconds"] for one in found) for kind, found in runs.items()}
    return {
        "queries": len(queries),
        "batches": BATCHES,
        "drives": DRIVES,
        "seconds": seconds,
        "hybrid_to_host": seconds["host"] / seconds["hybrid"],
        "hybrid_to_drives": seconds["drives"] / seconds["hybrid"],
        "spread": max(one["spread"] for one in runs["hybrid"]),
        "off": max(one["off"] for one in runs["hybrid"]),
        "runs": runs,
    }


def _index(space: Space) -> Path:
    index = space.out / "split.ivf"
    base = space.out / "split.npy"
    batch = space.rows // BATCHES
    if not (index / "manifest.json").exists() or IvfFiles(index).batch_sizes() != [batch] * BATCHES:
        np.save(base, read_bin(space.data.base)[: batch * BATCHES])
        run_measured(
            [
                indexmill_command(), "build", "--kind", "ivf", "--input", base, "--lists", LISTS, "--out", index,
                "--batch-vectors", batch, "--force", "--json",
            ],
            index.with_suffix(".log"),
        )  # fmt: skip
        base.unlink()
    return index


def _crews(index: Path, queries: Any) -> dict[str, list[Worker]]:
    """Return the paper's workers with rates such that its host takes `HOST_SECONDS` for these batches and queries."""
    rates = split_paper.fit_rates()
    probe = [Worker("unit", 1.0, 1.0, overlap=False)]
    (share,) = plan_join(queries, index, JoinOptions(K, NPROBE, platform=probe)).shares
    n_bytes = sum(entry.bytes for entry in IvfFiles(index).batches) / 1e6
    compares = share.seconds - n_bytes  # of which the unit worker does a million a second
    paper = split_paper.costs(1e9, 1, 1)
    host, drive = (split_paper.crew(rates, DRIVES, kind)[0] for kind in ("host", "drives"))
    whole = host.load_seconds(paper.n_bytes[0]) + host.search_seconds(paper.compares[0])

    def slowed(worker: Worker, name: str) -> Worker:
        scale = HOST_SECONDS / whole
        load = n_bytes / (scale * worker.load_seconds(paper.n_bytes[0]))
        compare = compares / (scale * worker.search_seconds(paper.compares[0]))
        return replace(worker, name=name, load_mb_s=load, compare_m_s=compare, throttle=True)

    drives = [slowed(drive, f"drive-{i}") for i in range(DRIVES)]
    return {"host": [slowed(host, "host")], "drives": drives, "hybrid": [slowed(host, "host"), *drives]}


def _run(space: Space, index: Path, queries: Any, crew: list[Worker]) -> dict[str, Any]:
    report = run_join(queries, index, space.out / "split.parquet", JoinOptions(K, NPROBE, platform=crew))
    assert report.workers is not None
    seconds = [one.seconds for one in report.workers]
    planned = [one.predicted_seconds for one in report.workers]
    return {
        "seconds": max(seconds),
        "spread": spread(seconds),
        "off": max(abs(took - said) / said for took, said in zip(seconds, planned, strict=True)),
        "worker_seconds": seconds,
        "planned_seconds": planned,
        "planned_batches": [one.planned for one in report.workers],
        "batches": [len(one.batches) for one in report.workers],
    }


def simulated(space: Space) -> dict[str, Any]:
    """Simulate the paper's platform at its size."""
    rates = split_paper.fit_rates()
    return {
        "host_compare_m_s": rates.host,
        "drive_compare_m_s": rates.drive,
        "virtual_memory": split_paper.virtual_memory(rates, 5e7, 0.25),
        "scaling": split_paper.scaling(rates, 5e7),
        "hybrids": split_paper.hybrids(rates),
        "energy": split_paper.energy(rates),
    }


PARTS: dict[str, Callable[[Space], dict[str, Any]]] = {"emulated": emulated, "simulated": simulated}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    data = Dataset(arguments.data.resolve())
    space = Space(data, out, arguments.rows)
    path = out / "split.json"
    found = record.load(path)
    about = {"name": "sift1m", "n_vectors": arguments.rows, "dim": data.shape()[1], "dtype": "uint8"}
    parameters = {"lists": LISTS, "nprobe": NPROBE, "batches": BATCHES, "k": K}
    record.begin(found, path, "split", about, parameters, [])
    failed = parts.run_all(
        PARTS, list(PARTS) if arguments.parts is None else arguments.parts, space, found, path
    )
    found = record.load(path)
    if arguments.keep and not failed:
        kept = record.keep(path)
        tables_split.write_page(found, str(kept.relative_to(REPOSITORY)), PAGE)
    elif found.get("parts"):
        print(tables_split.render(found, str(path)))
    parts.stop_after(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with base.u8bin and query.u8bin")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the index, its log and split.json"
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="vectors of the part that is emulated")
    parser.add_argument("--parts", type=parts.names(PARTS), help=f"measure these: {','.join(PARTS)}")
    parser.add_argument(
        "--keep", action="store_true", help="store the record and write the page of benchmarks"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
