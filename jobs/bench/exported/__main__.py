"""Our index of sift1m, exported: what that costs, and how stock DiskANN searches it beside its own index.

    python -m indexmill.jobs.bench.exported --data DIR --out DIR  # prints tables; DIR/exported.json is the record
    python -m indexmill.jobs.bench.exported --data DIR --out DIR --keep  # stores the record in the repository, too

DIR is a folder of `sift1m.py`, whose index in star order and whose index of DiskANN are used; the latter is made if it
is not there. List sizes are chosen on the first half of the queries and measured on the second, in turns.
"""

from __future__ import annotations

import argparse
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
from indexmill.jobs.bench.programs import diskann
from indexmill.jobs.bench.programs.settings import DISKANN_WIDTH
from indexmill.jobs.bench.programs.workspace import THREADS, Workspace, indexmill_command

ROUNDS = 3
TARGETS = ("diskann", "faiss", "jvector")
OWN, EXPORTED = "its own index", "the export"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with base.u8bin, query.u8bin and truth.gt"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder with the indexes of sift1m.py")
    parser.add_argument("--keep", action="store_true", help="store the record in the repository")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    space = Workspace(Dataset(arguments.data.resolve()), out)
    n_vectors, dim = space.data.shape()
    path = out / "exported.json"
    found = record.load(path)
    data = {"name": "sift1m", "n_vectors": n_vectors, "dim": dim, "dtype": "uint8"}
    record.begin(found, path, "exported", data, {"threads": THREADS}, list(diskann.PACKAGES))
    diskann.ensure(space)
    for name, measure in (("export", exports), ("search", searches)):
        found["parts"][name] = record.start_part() | measure(space)
        record.save(found, path)
    print(table(found))
    if arguments.keep:
        print(record.keep(path))


def exports(space: Workspace) -> dict[str, Any]:
    """Export the index to each target; return what that cost."""
    made = {}
    index = space.require(space.index("star"))
    for target in TARGETS:
        folder = space.out / f"exported-{target}"
        command = [indexmill_command(), "export", index, "--to", target, "--out", folder, "--force", "--json"]
        usage = run_measured(command, space.out / f"{folder.name}.log")
        written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        made[target] = {**usage.to_dict(), "written_bytes": written}
    return made


def searches(space: Workspace) -> dict[str, Any]:
    """Search both indexes with DiskANN, in turns."""
    export = space.out / "exported-diskann"
    with diskann.DiskAnn(space) as own, diskann.DiskAnn(space, index=export) as exported:
        series: dict[str, Search] = {OWN: own.search(), EXPORTED: exported.search()}
        sizes = {name: sizes_at(coarse_sweep(search)) for name, search in series.items()}
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
        "diskann_width": DISKANN_WIDTH,
        "counted": diskann.COUNTED,
        "figures": figures,
        "qps_ratio": {key(r): over_rounds([_ratio(done, r) for done in rounds]) for r in RECALLS},
        "rounds": [{name: summaries(rows) for name, rows in done.items()} for done in rounds],
    }


def _ratio(done: dict[str, list[Row]], recall: float) -> float | None:
    own, exported = (value_at(done[name], "qps", recall) for name in (OWN, EXPORTED))
    return None if own is None or exported is None else exported / own


def table(found: dict[str, Any]) -> str:
    """Return the record as the tables of docs/benchmarks.md."""
    lines = ["| target | seconds | peak memory, MB | written, MB |", "|---|---|---|---|"]
    for target in TARGETS:
        cost = found["parts"]["export"][target]
        peak, written = cost["peak_bytes"] / 1e6, cost["written_bytes"] / 1e6
        lines.append(f"| {target} | {cost['wall_s']:.1f} | {peak:.0f} | {written:.0f} |")
    part = found["parts"]["search"]
    lines += ["", "| diskannpy searches | " + " | ".join(key(r) for r in RECALLS) + " |"]
    lines.append("|---|" + "---|" * len(RECALLS))
    for name in (OWN, EXPORTED):
        cells = [_cell(part, name, key(r)) for r in RECALLS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(part: dict[str, Any], name: str, recall: str) -> str:
    pages = part["figures"][name]["pages_read"][recall]
    ratio = {"value": 1.0} if name == OWN else part["qps_ratio"][recall]
    return "" if pages is None or ratio is None else f"{pages['value']:.1f}, {ratio['value']:.2f}x"


if __name__ == "__main__":
    main()
