"""Measure how fast indexes over leaders assign vectors, beside brute force and faiss, and how often they agree.

Leaders are random rows of the base; vectors to assign are other rows. Every round runs each index once, so
that what else the machine does falls on all of them alike. BLAS has one thread, as in a build; threads take blocks.

The peer is faiss's `IndexFlatL2`, brute force in float32 by matrix products, on blocks and threads as ours. The
OpenBLAS in its wheel may not know a newer CPU and then runs at a fraction of its speed, so it is told the core that
numpy's found.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from indexmill.builders.leaders.assignment_error import assignment_error
from indexmill.builders.leaders.base import ExactLeaders, LeaderIndex, draw_leaders
from indexmill.builders.leaders.graph import LeaderGraph
from indexmill.builders.leaders.groups import LeaderGroups
from indexmill.builders.leaders.tree import LeaderTree
from indexmill.jobs.bench.common.benchmark import ROUNDS_OPTION, Benchmark, Run
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.programs.faiss import load_faiss
from indexmill.reader.threads import map_blocks

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


def measure(run: Run) -> dict[str, Any]:
    """Assign with every index, of bytes and of floats."""
    load_faiss()
    base = read_bin(run.sets["sift1m"].base)
    with threadpool_limits(1, user_api="blas"):
        blas = {
            Path(x["filepath"]).name: x["architecture"] for x in threadpool_info() if x["user_api"] == "blas"
        }
        return {
            "threads": THREADS,
            "leaders": run.options.leaders,
            "vectors": N_ASSIGNED,
            "rounds": run.options.rounds or ROUNDS,
            "blas": blas,
            "measured": [
                _measure(base, run.options.leaders, dtype, run.options.rounds or ROUNDS)
                for dtype in ("uint8", "float32")
            ],
        }


def _measure(base: Any, n_leaders: int, dtype: str, rounds: int) -> dict[str, Any]:
    """Build every index, then assign the same vectors with each in turn, `rounds` times."""
    drawn = draw_leaders(len(base), n_leaders, SEED)
    others = np.random.default_rng(SEED).permutation(np.setdiff1d(np.arange(len(base)), drawn))
    ends = np.cumsum([N_ASSIGNED, N_FITTING, N_COMPARED])
    assigned, fitting, compared = (
        base[np.sort(rows)].astype(dtype) for rows in np.split(others[: ends[-1]], ends[:-1])
    )
    leaders = base[drawn].astype(dtype)
    indexes: dict[str, LeaderIndex] = {}
    build_s: dict[str, float] = {}
    for name, builder in BUILDERS.items():
        builder(leaders[:1000], fitting[:100]).nearest(assigned[:100], FANOUT)  # compiles
        began = time.perf_counter()
        indexes[name] = builder(leaders, fitting)
        build_s[name] = time.perf_counter() - began
    seconds: dict[str, list[float]] = {name: [] for name in BUILDERS}
    for _ in range(rounds):
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


BENCHMARK = Benchmark[Run](
    "leaders",
    {"leaders": measure},
    options=ROUNDS_OPTION
    | {"--leaders": {"type": int, "default": 25_000, "help": "random rows of the base"}},
)

if __name__ == "__main__":
    BENCHMARK.main()
