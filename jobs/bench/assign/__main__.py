"""Measure assignment by append files and by chunk files (eCP study, Tables 2 and 3) on the set ``sift1m``.

    python -m indexmill.jobs.bench.assign --data DIR --scratch DIR [--scratch DIR] [--keep]
    python -m indexmill.jobs.bench.assign --record FILE [--keep]

The measurement is `indexmill bench assign` with the parameters below; this script keeps its record in the repository
and writes the tables of docs/benchmarks.md from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indexmill.formats.sources.source import open_source
from indexmill.jobs.bench.common import record, tables
from indexmill.jobs.bench.common.cells import number, share, table
from indexmill.jobs.bench.common.machine import REPOSITORY
from indexmill.jobs.bench.sift1m.targets import GIB
from indexmill.jobs.bench_assign import setting as bench_assign
from indexmill.jobs.console.progress import stderr_progress

NAME = "sift1m"
LEADERS = 10_000
IN_BUFFERS = (16 << 20, 32 << 20, 64 << 20)
ROUNDS = 3
WORKERS = 2
#: Most of the time that the chunk policy may spend outside distance computation.
TARGET_OUTSIDE = 0.10
PAGE = REPOSITORY / "docs" / "benchmarks.md"
MARKS = "<!-- assign: begin -->", "<!-- assign: end -->"
_ORDINALS = "first", "second", "third", "fourth"


def measure(data: Path, scratch: list[Path], rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure, with the vectors of ``base.u8bin`` in the folder `data`; returns the record."""

    def open_input() -> Any:
        return open_source(data / "base.u8bin")

    setting = bench_assign.Setting(LEADERS, IN_BUFFERS, scratch, WORKERS, rounds)
    with stderr_progress() as progress:
        return bench_assign.make_record(open_input, setting, progress, NAME)


def render(found: Mapping[str, Any], source: str) -> str:
    """Return all tables of a record that is kept in `source`.

    Raises
    ------
    ValueError
        If it is no record of this benchmark, or of another format.
    """
    if (found.get("benchmark"), found.get("format")) != ("assign", bench_assign.FORMAT):
        raise ValueError(f"{source}: no record of this benchmark's format; measure again")
    parts = [_head(found, source)]
    for place, filesystem in enumerate(found["scratch"]):
        setup = "parts and merged file on one path"
        if place:
            setup = f"parts on the {_ORDINALS[place]} path, merged file on the first"
        runs = bench_assign.median_runs(found["runs"], place)
        parts.append(f"#### {setup[0].upper()}{setup[1:]} ({filesystem})\n\n{_runs(runs)}")
    return "\n\n".join(parts) + "\n"


def _head(found: Mapping[str, Any], source: str) -> str:
    machine, used = found["machine"], found["parameters"]
    rounds = 1 + max(run["round"] for run in found["runs"])
    rows = [
        ("date", found["started"][:10]),
        ("data", "{name}: {n_vectors:,} x {dim} {dtype}".format(**found["data"])),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / GIB:.1f} GiB"),
        ("kernel", machine["kernel"]),
        ("versions", ", ".join(f"{name} {value}" for name, value in found["versions"].items())),
        ("leaders", f"{used['leaders']:,} random vectors, seed {used['seed']}"),
        (
            "assigned by",
            f"{used['index']}, {used['agreement']:.1%} as brute force; {used['workers']} threads",
        ),
        ("rounds", f"{rounds}, in turns; figures of the round with the median total"),
        ("commit", found["commit"]),
        ("load before", f"{found['load_before']:.1f}"),
        ("record", f"`{source}`"),
    ]
    return table(("", ""), rows, "ll")


def _runs(runs: list[Mapping[str, Any]]) -> str:
    """Return a table of one line an in-buffer and policy, with ratios of times."""
    times = {
        (run["in_buffer_bytes"], run["policy"]): (run["total_s"], run["add_s"] + run["merge_s"])
        for run in runs
    }
    rows = []
    for run in runs:
        phases = run["assigning"], run["merging"]
        outside = 1 - run["distance_s"] / run["total_s"]
        met, ratios = "", ["", ""]
        if run["policy"] == "chunk":
            met = " (met)" if outside <= TARGET_OUTSIDE else " (**not met**)"
            both = zip(*(times[run["in_buffer_bytes"], policy] for policy in ("temp", "chunk")), strict=True)
            ratios = [number(temp / chunk, 2) for temp, chunk in both]
        rows.append((
            f"{run['in_buffer_bytes'] >> 20} MiB", run["policy"],
            *(number(run[name], 2) for name in ("total_s", "distance_s", "assign_s", "merge_s", "add_s", "remove_s")),
            share(outside) + met, *ratios,
            *(number(phase["operations"]) for phase in phases),
            *(number(sum(phase[name] for phase in phases) / 1e6) for name in ("bytes_written", "bytes_read")),
        ))  # fmt: skip
    names = (
        "in-buffer", "policy", "total s", "distances s", "assign s", "merge s", "policy s", "removal s",
        f"outside distances (target {TARGET_OUTSIDE:.0%})", "temp / chunk, total", "temp / chunk, policy and merge",
        "file ops, assign", "file ops, merge", "MB written", "MB read",
    )  # fmt: skip
    return table(names, rows, "ll" + "r" * 13)


def keep(found: Mapping[str, Any]) -> None:
    """Store a record in the repository and write its tables into the page."""
    record.RECORDS.mkdir(exist_ok=True)
    kept = record.RECORDS / f"{found['started'][:10]}-assign.json"
    text = render(found, str(kept.relative_to(REPOSITORY)))
    record.save(dict(found), kept)
    tables.write_into(PAGE, text, MARKS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, help="folder with base.u8bin")
    parser.add_argument("--scratch", type=Path, action="append", help="where parts are written; may repeat")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="measure everything so often (default %(default)s)"
    )
    parser.add_argument(
        "--record", type=Path, help="a record of `indexmill bench assign`, in place of measuring"
    )
    parser.add_argument(
        "--keep", action="store_true", help="store the record in the repository, write docs/benchmarks.md"
    )
    arguments = parser.parse_args()
    if (arguments.record is None) == (arguments.data is None):
        parser.error("expected either --data or --record")
    if arguments.data is not None and not arguments.scratch:
        parser.error("--scratch: missing; name a folder on the device that is to be measured")
    if arguments.record:
        found = record.load(arguments.record)
    else:
        found = measure(arguments.data, arguments.scratch, arguments.rounds)
    if arguments.keep:
        keep(found)
    else:
        print(render(found, str(arguments.record or "not kept")))


if __name__ == "__main__":
    main()
