"""DiskANN's index of sift1m, imported: what that costs, and how it is searched where it was and here.

    python -m indexmill.jobs.bench.imported --data DIR --out DIR  # prints tables; DIR/imported.json is the record
    python -m indexmill.jobs.bench.imported --data DIR --out DIR --keep  # stores the record in the repository, too

DIR is a folder of `sift1m.py`, whose index of DiskANN is used, or made. List sizes are chosen on the first half of
the queries and measured on the second, in turns.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.curves import (
    RECALLS,
    Row,
    Search,
    coarse_sweep,
    key,
    sizes_at,
    summaries,
    sweep,
    value_at,
)
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.process import run_measured
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.settings import DISKANN_WIDTH, Setting
from indexmill.jobs.bench.programs.workspace import THREADS, Workspace, indexmill_command

ROUNDS = 3
ORDERS = ("identity", "star")
#: As DiskANN searches, and as we do with as many reads in flight as pay on this device.
THEIR_SEARCH = Setting("beam", "medoid", DISKANN_WIDTH, inflight=1)
OUR_SEARCH = Setting("pipeline", "navigation", 16, inflight=16)
SERIES = {
    "imported, searched as DiskANN does": ("imported-identity", THEIR_SEARCH),
    "imported": ("imported-identity", OUR_SEARCH),
    "imported, star order": ("imported-star", OUR_SEARCH),
}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    space = Workspace(Dataset(arguments.data.resolve()), out)
    n_vectors, dim = space.data.shape()
    path = out / "imported.json"
    found = record.load(path)
    data = {"name": "sift1m", "n_vectors": n_vectors, "dim": dim, "dtype": "uint8"}
    record.begin(found, path, "imported", data, {"threads": THREADS}, list(diskann.PACKAGES))
    diskann.ensure(space)
    for name, measure in (("import", imports), ("search", searches)):
        found["parts"][name] = record.start_part() | measure(space)
        record.save(found, path)
    print(table(found))
    if arguments.keep:
        print(record.keep(path))


def imports(space: Workspace) -> dict[str, Any]:
    """Import the index in both orders; return what that cost."""
    made = {}
    for order in ORDERS:
        out = space.index(f"imported-{order}")
        usage = run_measured(
            [
                indexmill_command(), "import", "diskann", space.diskann_index / "ann", "--out", out, "--order", order,
                "--dtype", "uint8", "--workers", THREADS, "--force", "--json",
            ],
            space.out / f"{out.name}.log",
        )  # fmt: skip
        run = json.loads((out / "run.json").read_text())
        manifest = ours.manifest(out)
        made[order] = {
            **usage.to_dict(),
            "stage_s": ours.stage_seconds(out),
            "peak_memory_bytes": run["peak_memory_bytes"],
            "memory_budget_bytes": run["memory_budget_bytes"],
            "index_bytes": sum(file["bytes"] for file in manifest["files"]),
            **{name: manifest["input"]["imported"][name] for name in ("codes", "entries", "unreachable")},
        }
    return made


def searches(space: Workspace) -> dict[str, Any]:
    """Search DiskANN's index with DiskANN, and the imported ones, in turns."""
    with ours.Ours(space) as searcher, diskann.DiskAnn(space) as peer:
        series: dict[str, Search] = {"diskannpy": peer.search()}
        series |= {name: searcher.search(*how) for name, how in SERIES.items()}
        sizes = {name: sizes_at(coarse_sweep(search)) for name, search in series.items()}
        sizes["imported, searched as DiskANN does"] = sizes["diskannpy"]  # row by row the same
        rounds: list[dict[str, list[Row]]] = [
            {name: sweep(search, sizes[name]) for name, search in series.items()} for _ in range(ROUNDS)
        ]
    figures = {
        name: {
            cost: {key(r): over_rounds([value_at(done[name], cost, r) for done in rounds]) for r in RECALLS}
            for cost in ("qps", "pages_read")
        }
        for name in series
    }
    return {
        "queries": space.halves,
        "settings": {name: how.to_dict() for name, (_, how) in SERIES.items()},
        "diskann_width": DISKANN_WIDTH,
        "figures": figures,
        "qps_ratio": {
            name: {key(r): over_rounds([_ratio(done, name, r) for done in rounds]) for r in RECALLS}
            for name in series
        },
        "rounds": [{name: summaries(rows) for name, rows in done.items()} for done in rounds],
    }


def _ratio(done: dict[str, list[Row]], name: str, recall: float) -> float | None:
    theirs, mine = (value_at(done[one], "qps", recall) for one in ("diskannpy", name))
    return None if theirs is None or mine is None else mine / theirs


def table(found: dict[str, Any]) -> str:
    """Return the record as the tables of docs/guides/import.md."""
    lines = ["| | seconds | peak memory, MB | unreachable |", "|---|---|---|---|"]
    for order, cost in found["parts"]["import"].items():
        if order in ORDERS:
            peak = cost["peak_memory_bytes"] / 1e6
            lines.append(f"| {order} | {cost['wall_s']:.1f} | {peak:.0f} | {cost['unreachable']} |")
    part = found["parts"]["search"]
    lines += ["", "| | " + " | ".join(f"page reads at {key(r)}, queries a second" for r in RECALLS) + " |"]
    lines.append("|---|" + "---|" * len(RECALLS))
    for name, figures in part["figures"].items():
        cells = [_cell(figures["pages_read"][key(r)], part["qps_ratio"][name][key(r)]) for r in RECALLS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(pages: dict[str, float] | None, ratio: dict[str, float] | None) -> str:
    return "" if pages is None or ratio is None else f"{pages['value']:.1f}, {ratio['value']:.2f}x"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with base.u8bin, query.u8bin and truth.gt"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for indexes, logs and imported.json")
    parser.add_argument("--keep", action="store_true", help="store the record in the repository")
    return parser.parse_args()


if __name__ == "__main__":
    main()
