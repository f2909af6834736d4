"""Part *beyond*: hash tables that exceed the memory, by io_uring and mapped, beside SRS in the same memory.

Each side is a process in a control group (`beyond_child`). It starts without a limit; then the group may hold what SRS
holds, which has its index in memory. Hash tables hold less beside the vectors; what is left to them is page cache for a
mapped search, and io_uring reads past it. Figures 2 and 11 and section 6.5 of E2LSH on storage.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.cgroup import run_lowered
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.disk import drop_cache
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.process import module
from indexmill.jobs.bench.lsh.space import STORAGE, Searcher, Shape, Space, build_cost, index_facts
from indexmill.jobs.bench.lsh.tables import INFLIGHT
from indexmill.jobs.bench.lsh.tune import least, tune_candidates

#: Generated vectors; of a trial with --rows N the same share of N for each million. Queries, half of which tune.
VECTORS, QUERIES = 10_000_000, 1_000
#: Fewer tables than those of other parts, which would be twice as large: as `tune` recommends them for SIFT.
LEANER = Shape("leaner", {"gamma": 0.35, "width": 2.8})
K = 1
ROUNDS = 3
SRS, DIRECT, MAPPED = "srs", "io_uring", "mmap"


def measure(space: Space) -> dict[str, Any]:
    """Tune S and T' without a limit, then search in turns under that of SRS; the index is removed."""
    n = VECTORS * space.run.rows // 1_000_000 if space.run.rows else VECTORS
    data = space.sets.growing(n, QUERIES)
    index = space.ensure(f"beyond-{n}", data, LEANER)
    facts = index_facts(index)
    candidates, most = _tuned(space, data, index)
    found = {
        "k": K,
        "shape": LEANER.name,
        "index": facts,
        "build": build_cost(index),
        "candidates": candidates,
        "most": most,
    }
    if candidates is not None and most is not None:
        asked = {
            SRS: {"most": most},
            DIRECT: {"candidates": candidates, "inflight": INFLIGHT},
            MAPPED: {"candidates": candidates, "inflight": 1},
        }
        rounds = [_round(data, index, asked) for _ in range(ROUNDS)]
        found |= compared(rounds) | {"table_bytes": facts["index_bytes"]}
    shutil.rmtree(index)
    return found


def _tuned(space: Space, data: Dataset, index: Path) -> tuple[int | None, int | None]:
    """Return S and T', None where the ratio was not reached."""
    opened, n = {"index": str(index), "engine": STORAGE}, data.shape()[0]
    with Searcher(data, space.out / "beyond.log") as searcher:

        def ask(search: dict[str, Any], k: int) -> dict[str, Any]:
            return searcher.ask("lsh", opened, search | {"inflight": INFLIGHT}, k, "tune")

        candidates = tune_candidates(ask, n, K)["candidates"]
        most, _ = least(lambda most: searcher.ask("srs", {}, {"most": most}, K, "tune"), K, n // 4)
    return candidates, most


def _round(data: Dataset, index: Path, asked: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Search by each side, SRS first: the others have its limit.

    Raises
    ------
    NoLimits
        If memory cannot be limited here.
    RuntimeError
        If a side fails.
    """
    told: dict[str, dict[str, Any]] = {}
    for side, search in asked.items():
        drop_cache(index)
        command = module(sys.executable, "lsh.beyond_child", side, data.folder, index, K, json.dumps(search))
        told[side] = run_lowered(command, at_least=told[SRS]["limit_bytes"] if told else 0)
    return told


def compared(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the costs of each side, and how many times as fast io_uring is as the others, over the rounds."""
    sides = {
        side: {
            "us": over_rounds([done[side]["us"] for done in rounds]),
            "faults": over_rounds([done[side]["faults"] for done in rounds]),
            **{name: first[name] for name in ("reads", "ratio", "recall", "held_bytes", "limit_bytes")},
        }
        for side, first in rounds[0].items()
    }
    ratios = {
        side: over_rounds([done[side]["us"] / done[DIRECT]["us"] for done in rounds])
        for side in (MAPPED, SRS)
    }
    return {"sides": sides, "to": ratios, "rounds": rounds}
