"""Parts *growth* and *growth-storage*: how a query's time grows with the number of vectors, at one overall ratio.

Part *growth* has hash tables in memory beside SRS; part *growth-storage* has them on a simulated XLFDD beside memory,
and in memory with L = n^0.09 tables (Figure 14 of E2LSH on storage).

Times of both are of the same blocks of queries; blocks are drawn again for the interval of the exponent, those of
all sizes alike. It holds what queries differ by, not what the machine does.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import summaries
from indexmill.jobs.bench.lsh.space import BASE, Searcher, Shape, Space, build_cost, index_facts
from indexmill.jobs.bench.lsh.storage import FEW_IN_FLIGHT, PROFILE
from indexmill.jobs.bench.lsh.tune import Row, least, tune_candidates

#: Vectors; of a trial with --rows N the same shares of 2 N.
SIZES = (100_000, 200_000, 500_000, 1_000_000, 2_000_000)
K = 1
QUERIES = 1_000
#: Queries of a block, and rounds whose median is a block's time.
BLOCK, ROUNDS = 25, 5
DRAWS, SEED = 1000, 1
#: The paper's small rho, and values of gamma with it, from cheap to dear: few tables must let many candidates through.
SMALL_RHO, SMALL_GAMMAS = 0.09, (0.4, 0.3, 0.2, 0.1)


def measure(space: Space) -> dict[str, Any]:
    """Tune both at each size, time them, fit exponents over the sizes at which both reach the ratio."""
    rows = [_at(space, n) for n in _sizes(space)]
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


def _sizes(space: Space) -> list[int]:
    return [n * space.run.rows // 1_000_000 for n in SIZES] if space.run.rows else list(SIZES)


def on_storage(space: Space) -> dict[str, Any]:
    """Tune in memory at each size, time there and on the device; exponents over the sizes that reach the ratio."""
    rows = [_stored_at(space, n) for n in _sizes(space)]
    kept = [
        {name: _short(one) if isinstance(one, dict) else one for name, one in row.items()} for row in rows
    ]
    found: dict[str, Any] = {"k": K, "profile": PROFILE.name, "small_rho": SMALL_RHO, "rows": kept}
    for name in ("memory", "storage", "small"):
        reached = [row for row in rows if row[name] is not None]
        if len(reached) > 1:
            found[f"{name}_exponent"] = exponent(
                [row["n"] for row in reached], [row[name]["block_us"] for row in reached]
            )
    return found


def _stored_at(space: Space, n: int) -> dict[str, Any]:
    """Measure one size; indexes are removed."""
    data, few = space.sets.growing(n, QUERIES), max(1, round(n**SMALL_RHO))
    small = [Shape("small", {"n_tables": few, "gamma": gamma}) for gamma in SMALL_GAMMAS]
    found: dict[str, Any] = {"n": n, "small_tables": few, "memory": None, "storage": None, "small": None}
    with Searcher(data, space.out / "growth-storage.log") as searcher:
        for shape in (BASE, *small):
            index = space.ensure(f"grow-{n}", data, shape)
            opened = {"index": str(index), "engine": "memory"}
            tuned = _tuned(searcher, opened, n)
            if tuned is not None:
                search = {"candidates": tuned, "threads": 1, "inflight": FEW_IN_FLIGHT}
                found["memory" if shape is BASE else "small"] = _timed(searcher, "lsh", opened, search)
                if shape is BASE:
                    device = {"index": str(index), "engine": f"simulated:{PROFILE}"}
                    found["storage"] = _timed(searcher, "lsh", device, search)
            shutil.rmtree(index)
            if found["small"] is not None:
                break
    return found


def _tuned(searcher: Searcher, opened: dict[str, Any], n: int) -> int | None:
    """Return S of an index."""
    tuned = tune_candidates(lambda search, k: searcher.ask("lsh", opened, search, k, "tune"), n, K)
    candidates: int | None = tuned["candidates"]
    return candidates


def _at(space: Space, n: int) -> dict[str, Any]:
    """Measure one size; the index is removed, larger ones need the room."""
    data = space.sets.growing(n, QUERIES)
    index = space.ensure(f"grow-{n}", data, BASE)
    opened = {"index": str(index), "engine": "memory"}
    log = space.out / "growth.log"
    with Searcher(data, log) as searcher:
        tuned = _tuned(searcher, opened, n)
        lsh = None
        if tuned is not None:
            lsh = _timed(searcher, "lsh", opened, {"candidates": tuned, "threads": 1})
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
