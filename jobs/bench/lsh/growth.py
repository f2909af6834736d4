"""Parts *growth* and *growth-storage*: how a query's time grows with the number of vectors, at one overall ratio.

Part *growth* has hash tables in memory beside SRS; part *growth-storage* has them on a simulated XLFDD and on this disk
beside memory, and in memory with L = n^0.09 tables (Figure 14 of E2LSH on storage).

Times of both are of the same blocks of queries; blocks are drawn again for the interval of the exponent, those of
all sizes alike. It holds what queries differ by, and on storage what three draws of the hash functions do; it does not
hold what the machine does.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import summaries
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.lsh.space import (
    BASE,
    STORAGE,
    Searcher,
    Shape,
    Space,
    build_cost,
    index_facts,
)
from indexmill.jobs.bench.lsh.storage import FEW_IN_FLIGHT, PROFILE
from indexmill.jobs.bench.lsh.tune import Row, least, tune_candidates

#: Vectors; of a trial with --rows N the same shares of 2 N.
SIZES = (100_000, 200_000, 500_000, 1_000_000, 2_000_000)
K = 1
QUERIES = 1_000
#: Queries of a block, and rounds whose median is a block's time.
BLOCK, ROUNDS = 25, 5
DRAWS, SEED = 1000, 1
#: What is told of several draws of the hash functions as their mean.
_MEANS = ("mean_us", "ratio", "distances")
#: Of the hash functions, on storage.
HASH_SEEDS = (1, 2, 3)
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
    """Tune in memory at each size, time there, on the device and on this disk.

    Exponents are fitted over the sizes that reach the ratio.
    """
    rows = [_stored_at(space, n) for n in _sizes(space)]
    kept = [
        {name: _pooled(one) if isinstance(one, list) else one for name, one in row.items()} for row in rows
    ]
    found: dict[str, Any] = {
        "k": K, "profile": PROFILE.name, "small_rho": SMALL_RHO, "hash_seeds": list(HASH_SEEDS), "rows": kept
    }  # fmt: skip
    for name in ("memory", "storage", "disk", "small"):
        reached = [row for row in rows if row[name] is not None]
        if len(reached) > 1:
            sizes, times = (
                [row["n"] for row in reached],
                [[one["block_us"] for one in row[name]] for row in reached],
            )
            found[f"{name}_exponent"] = exponent(sizes, [list(chain(*of_seeds)) for of_seeds in times])
            found[f"{name}_by_seed"] = [
                exponent(sizes, [of_seeds[i] for of_seeds in times])["value"] for i in range(len(HASH_SEEDS))
            ]
    return found


def _stored_at(space: Space, n: int) -> dict[str, Any]:
    """Measure one size with each draw of the hash functions; indexes are removed.

    What is measured is a list of a row for each draw, or None if the ratio was not reached with all of them. Few tables
    have the gamma that does for the first draw, and may measure all vectors.
    """
    data, few = space.sets.growing(n, QUERIES), max(1, round(n**SMALL_RHO))
    rows: dict[str, list[Row | None]] = {"memory": [], "storage": [], "disk": [], "small": []}
    gammas: tuple[float, ...] = SMALL_GAMMAS
    with Searcher(data, space.out / "growth-storage.log") as searcher:
        for seed in HASH_SEEDS:
            base = Shape(f"{BASE.name}-{seed}", {"seed": seed})
            timed = _once(space, searcher, data, base, ("memory", f"simulated:{PROFILE}", STORAGE))
            for name, row in zip(("memory", "storage", "disk"), timed, strict=True):
                rows[name].append(row)
            small = None
            for gamma in gammas:
                shape = Shape(f"small-{gamma}-{seed}", {"n_tables": few, "gamma": gamma, "seed": seed})
                (small,) = _once(space, searcher, data, shape, ("memory",), most=n)
                if small is not None:
                    gammas = (gamma,)
                    break
            rows["small"].append(small)
    return {"n": n, "small_tables": few, **{name: _all(of_seeds) for name, of_seeds in rows.items()}}


def _once(
    space: Space,
    searcher: Searcher,
    data: Dataset,
    shape: Shape,
    engines: Sequence[str],
    most: int | None = None,
) -> list[Row | None]:
    """Build an index, tune S up to `most` in memory, and time it by each engine; it is removed."""
    n = data.shape()[0]
    index = space.ensure(f"grow-{n}", data, shape)
    opened = {"index": str(index), "engine": "memory"}
    tuned = _tuned(searcher, opened, n, most)
    rows: list[Row | None] = [None] * len(engines)
    if tuned is not None:
        search = {"candidates": tuned, "threads": 1, "inflight": FEW_IN_FLIGHT}
        rows = [_timed(searcher, "lsh", opened | {"engine": one}, search) for one in engines]
    shutil.rmtree(index)
    return rows


def _all(rows: list[Row | None]) -> list[Row] | None:
    """Return the rows if there is one of each draw."""
    there = [row for row in rows if row is not None]
    return there if len(there) == len(rows) else None


def _pooled(rows: list[Row]) -> Row:
    """Return means over the draws, and what a record keeps of each."""
    short = [one for one in map(_short, rows) if one is not None]
    return {name: float(np.mean([one[name] for one in short])) for name in _MEANS} | {"seeds": short}


def _tuned(searcher: Searcher, opened: dict[str, Any], n: int, most: int | None = None) -> int | None:
    """Return S of an index."""
    tuned = tune_candidates(lambda search, k: searcher.ask("lsh", opened, search, k, "tune"), n, K, most)
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
