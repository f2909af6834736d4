"""Measure how fast indexes over leaders assign vectors, beside brute force and faiss, and how often they agree.

    python -m indexmill.jobs.bench.leaders --data DIR --out DIR [--leaders 25000] [--keep]

Leaders are random rows of ``DIR/base.u8bin``; vectors to assign are other rows. Every round runs each index once, so
that what else the machine does falls on all of them alike. BLAS has one thread, as in a build; threads take blocks.

The peer is faiss's `IndexFlatL2`, brute force in float32 by matrix products, on blocks and threads as ours. The
OpenBLAS in its wheel may not know a newer CPU and then runs at a fraction of its speed, so it is told the core that
numpy's found.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from indexmill.builders.assignment_error import assignment_error
from indexmill.builders.leaders.graph import LeaderGraph
from indexmill.builders.leaders.groups import LeaderGroups
from indexmill.builders.leaders.leaders import ExactLeaders, LeaderIndex, draw_leaders
from indexmill.builders.leaders.tree import LeaderTree
from indexmill.builders.parallel import map_blocks
from indexmill.jobs.bench.common import machine, record, tables
from indexmill.jobs.bench.common.dataset import Dataset, read_bin
from indexmill.jobs.bench.common.machine import REPOSITORY
from indexmill.jobs.bench.programs.workspace import SEED, THREADS

NAME = "leaders"
PAGE = REPOSITORY / "docs" / "benchmarks.md"
MARKS = "<!-- leaders: begin -->", "<!-- leaders: end -->"
ROUNDS = 7
#: Vectors assigned in a round, vectors that fit the groups, and vectors compared with brute force.
N_ASSIGNED, N_FITTING, N_COMPARED = 65_536, 4096, 4096
FANOUT = 1
BRUTE, PEER = "brute force", "faiss IndexFlatL2"
#: Vectors of one search of the peer; no faster with more.
PEER_BLOCK = 8192


class FaissLeaders:
    """The peer as a `LeaderIndex`; each thread searches with one thread of its own."""

    def __init__(self, leaders: Any) -> None:
        self.leaders = leaders
        self._faiss = importlib.import_module("faiss")
        self._index = self._faiss.IndexFlatL2(leaders.shape[1])
        self._index.add(leaders.astype(np.float32))

    def nearest(self, vectors: Any, fanout: int = 1, threads: int = 1) -> Any:
        """See `LeaderIndex`."""

        def block(first: int, last: int) -> Any:
            self._faiss.omp_set_num_threads(1)  # holds for the calling thread only
            return self._index.search(vectors[first:last].astype(np.float32), fanout)[1].astype(np.uint32)

        return np.concatenate(list(map_blocks(block, len(vectors), PEER_BLOCK, threads)))


Builder = Callable[[Any, Any], LeaderIndex]
BUILDERS: dict[str, Builder] = {
    PEER: lambda leaders, fitting: FaissLeaders(leaders),
    BRUTE: lambda leaders, fitting: ExactLeaders(leaders),
    "groups": lambda leaders, fitting: LeaderGroups(leaders, fitting, seed=SEED, threads=THREADS),
    "graph": lambda leaders, fitting: LeaderGraph(leaders, seed=SEED, threads=THREADS),
    "tree, depth 3, beam 1": lambda leaders, fitting: LeaderTree(leaders, seed=SEED, threads=THREADS),
    "tree, depth 3, beam 64": lambda leaders, fitting: LeaderTree(
        leaders, beam=64, seed=SEED, threads=THREADS
    ),
    "tree, depth 2, beam 32": lambda leaders, fitting: LeaderTree(
        leaders, depth=2, beam=32, seed=SEED, threads=THREADS
    ),
}


def main() -> None:
    arguments = _arguments()
    _load_peer()
    base = read_bin(Dataset(arguments.data.resolve()).base)
    found = {
        "benchmark": NAME,
        "data": {"name": arguments.data.resolve().name, "n_vectors": len(base), "dim": base.shape[1]},
        "machine": machine.machine_facts(),
        "versions": machine.software_versions(),
        "parts": {},
    }
    part = record.start_part()
    with threadpool_limits(1, user_api="blas"):
        part |= {"threads": THREADS, "leaders": arguments.leaders, "vectors": N_ASSIGNED, "rounds": ROUNDS}
        part["blas"] = {Path(x["filepath"]).name: x["architecture"] for x in _blas()}
        part["measured"] = [_measure(base, arguments.leaders, dtype) for dtype in ("uint8", "float32")]
    found["parts"][NAME] = part
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    record.save(found, out / "leaders.json")
    if arguments.keep:
        kept = record.keep(out / "leaders.json")
        tables.write_into(PAGE, _page(found, part, str(kept.relative_to(REPOSITORY))), MARKS)
    else:
        print(table(part))


def _page(found: dict[str, Any], part: dict[str, Any], source: str) -> str:
    """Return what the page says of a record that is kept in `source`."""
    used = found["machine"]
    return (
        f"{part['leaders']:,} random leaders of {found['data']['name']}, {part['vectors']:,} vectors a round, medians"
        f" of {part['rounds']} rounds, {part['threads']} threads; {part['started'][:10]}, {used['cores']} cores of"
        f" {used['cpu']}, load before {part['load_before']:.1f}; record `{source}`.\n\n{table(part)}\n"
    )


def _blas() -> list[dict[str, Any]]:
    return [found for found in threadpool_info() if found["user_api"] == "blas"]


def _load_peer() -> None:
    """Import faiss with the kernels of the core that numpy's OpenBLAS found."""
    cores = {found["architecture"] for found in _blas() if found["internal_api"] == "openblas"}
    if len(cores) == 1:
        os.environ.setdefault("OPENBLAS_CORETYPE", cores.pop())
    importlib.import_module("faiss")


def _measure(base: Any, n_leaders: int, dtype: str) -> dict[str, Any]:
    """Build every index, then assign the same vectors with each in turn, `ROUNDS` times."""
    drawn = draw_leaders(len(base), n_leaders, SEED)
    others = np.random.default_rng(SEED).permutation(np.setdiff1d(np.arange(len(base)), drawn))
    ends = np.cumsum([N_ASSIGNED, N_FITTING, N_COMPARED])
    assigned, fitting, compared = (
        base[np.sort(rows)].astype(dtype) for rows in np.split(others[: ends[-1]], ends[:-1])
    )
    leaders = base[drawn].astype(dtype)
    indexes, build_s = {}, {}
    for name, builder in BUILDERS.items():
        builder(leaders[:1000], fitting[:100]).nearest(assigned[:100], FANOUT)  # compiles
        began = time.perf_counter()
        indexes[name] = builder(leaders, fitting)
        build_s[name] = time.perf_counter() - began
    seconds: dict[str, list[float]] = {name: [] for name in BUILDERS}
    for _ in range(ROUNDS):
        for name, index in indexes.items():
            began = time.perf_counter()
            index.nearest(assigned, FANOUT, THREADS)
            seconds[name].append(time.perf_counter() - began)
    brute, peer = seconds[BRUTE], seconds[PEER]
    return {
        "dtype": dtype,
        "fanout": FANOUT,
        "indexes": {
            name: {
                "build_s": build_s[name],
                "vectors_per_s": N_ASSIGNED / median(mine),
                "over_brute_force": median(b / m for b, m in zip(brute, mine, strict=True)),
                "over_peer": median(p / m for p, m in zip(peer, mine, strict=True)),
                "rounds_s": mine,
                "error": asdict(assignment_error(indexes[name], compared, FANOUT, THREADS)),
            }
            for name, mine in seconds.items()
        },
    }


def table(part: dict[str, Any]) -> str:
    """Return a Markdown table of what was measured."""
    lines = [
        "| type | fanout | index | built in s | vectors/s | over faiss | over brute force | agreement | recall "
        "| excess distance |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for measured in part["measured"]:
        for name, row in measured["indexes"].items():
            error = row["error"]
            lines.append(
                f"| {measured['dtype']} | {measured['fanout']} | {name} | {row['build_s']:.2f} "
                f"| {row['vectors_per_s']:,.0f} | {row['over_peer']:.1f} | {row['over_brute_force']:.1f} "
                f"| {error['agreement']:.4f} | {error['recall']:.4f} | {error['excess_distance']:.5f} |"
            )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with base.u8bin")
    parser.add_argument("--out", type=Path, required=True, help="folder for leaders.json")
    parser.add_argument("--leaders", type=int, default=25_000, help="random rows of the base")
    parser.add_argument(
        "--keep", action="store_true", help="store the record in the repository, write docs/benchmarks.md"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
