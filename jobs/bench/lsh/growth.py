"""Part *growth*: how a query's time grows with the number of vectors, hash tables beside SRS, at one overall ratio.

Times of both are of the same blocks of queries; blocks are drawn again for the interval of the exponent, those of
all sizes alike. It holds what queries differ by, not what the machine does.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import summaries
from indexmill.jobs.bench.lsh.space import BASE, Searcher, Space, build_cost, index_facts
from indexmill.jobs.bench.lsh.tune import Row, least, tune_candidates

#: Vectors; of a trial with --rows N the same shares of 2 N.
SIZES = (100_000, 200_000, 500_000, 1_000_000, 2_000_000)
K = 1
QUERIES = 1_000
#: Queries of a block, and rounds whose median is a block's time.
BLOCK, ROUNDS = 25, 5
DRAWS, SEED = 1000, 1


def measure(space: Space) -> dict[str, Any]:
    """Tune both at each size, time them, fit exponents over the sizes at which both reach the ratio."""
    sizes = [n * space.run.rows // 1_000_000 for n in SIZES] if space.run.rows else list(SIZES)
    rows = [_at(space, n) for n in sizes]
    found: dict[str, Any] = {
        "k": K,
        "rows": [{**row, "lsh": _short(row["lsh"]), "srs": _short(row["srs"])} for row in rows],
    }
    reached = [row for row in rows if row["lsh"] is not None and row["srs"] is not None]
    found["sizes"] = [row["n"] for row in reached]
    if len(reached) > 1:
        for name in ("lsh", "srs"):
            found[f"{name}_exponent"] = exponent(found["sizes"], [row[name]["block_us"] for row in reached])
        reads = [row["lsh"]["table_reads"] + row["lsh"]["blocks"] for row in reached]
        found["reads_exponent"] = float(np.polyfit(np.log(found["sizes"]), np.log(reads), 1)[0])
    return found


def _at(space: Space, n: int) -> dict[str, Any]:
    """Measure one size; the index is removed, larger ones need the room."""
    data = space.sets.growing(n, QUERIES)
    index = space.ensure(f"grow-{n}", data, BASE)
    opened = {"index": str(index), "engine": "memory"}
    log = space.out / "growth.log"
    with Searcher(data, log) as searcher:
        tuned = tune_candidates(lambda search, k: searcher.ask("lsh", opened, search, k, "tune"), n, K)
        lsh = None
        if tuned["candidates"] is not None:
            lsh = _timed(searcher, "lsh", opened, {"candidates": tuned["candidates"], "threads": 1})
    with Searcher(data, log) as searcher:
        most, _ = least(lambda most: searcher.ask("srs", {}, {"most": most}, K, "tune"), K, n // 4)
        srs = None if most is None else _timed(searcher, "srs", {}, {"most": most})
    found = {"n": n, "index": index_facts(index), "build": build_cost(index), "lsh": lsh, "srs": srs}
    shutil.rmtree(index)
    return found


def _timed(searcher: Searcher, method: str, opened: dict[str, Any], search: dict[str, Any]) -> Row:
    """Return a row whose ``block_us`` are medians over rounds, block by block."""
    rows = [searcher.ask(method, opened, search, K, "report", block=BLOCK) for _ in range(ROUNDS)]
    return rows[-1] | {"block_us": np.median([row["block_us"] for row in rows], axis=0).tolist()}


def _short(row: Row | None) -> Row | None:
    if row is None:
        return None
    return summaries([row])[0] | {"mean_us": float(np.mean(row["block_us"]))}


def exponent(sizes: list[int], times: list[list[float]]) -> dict[str, float]:
    """Return the slope of log mean time over log n with its 95% interval; `times`: blocks of each size."""
    blocks = np.array(times)
    random = np.random.default_rng(SEED)

    def slope(chosen: Any) -> float:
        return float(np.polyfit(np.log(sizes), np.log(blocks[:, chosen].mean(axis=1)), 1)[0])

    n_blocks = blocks.shape[1]
    drawn = [slope(random.integers(0, n_blocks, n_blocks)) for _ in range(DRAWS)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {"value": slope(np.arange(n_blocks)), "low": float(low), "high": float(high)}
