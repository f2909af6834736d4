"""Search hash tables or one of their baselines when asked to, in a process that stays.

    python -m indexmill.jobs.bench.lsh.serve DATA

A question names a ``method``, what it is opened with (``open``), what it searches with (``search``), ``k``, the queries
(``first``, ``last``), how often they are searched in one call (``times``), whether it is opened anew with no page of
its files in the page cache (``cold``), and perhaps ``block``: queries of a call of their own, whose times are told.
What was opened stays until something else is, or another index lies in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from indexmill.formats.chunks.tally import forget
from indexmill.formats.index.manifest import parse_manifest
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, read_truth
from indexmill.jobs.bench.common.process import memory_of
from indexmill.jobs.bench.common.serving import measured, serve
from indexmill.jobs.bench.lsh.quality import judge

Searched: TypeAlias = tuple[Any, dict[str, Any]]
#: Rows, int64 (n_queries, k), and counters, each (n_queries,).
Search: TypeAlias = Callable[..., Searched]

#: Counters whose means are told.
_COUNTERS = (
    "table_reads", "block_reads", "blocks", "vector_reads", "bytes_read", "radii", "entries", "candidates", "distances",
    "latency_us", "io_wait_us",
)  # fmt: skip


def main() -> None:
    data = Dataset(Path(sys.argv[1]))
    opened: dict[str, Any] = {}

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        key = repr((question["method"], sorted(question["open"].items()), _build_id(question["open"])))
        if question["cold"]:
            opened.clear()  # what is mapped is not dropped
            for path in Path(question["open"]["index"]).glob("*.imx"):
                forget(path)
        if key not in opened:
            opened.clear()
            opened[key] = _METHODS[question["method"]](data, **question["open"])
        search, facts = opened[key]
        return ask(search, data, question) | {"opened": facts}

    serve(answer)


def _build_id(opened: dict[str, Any]) -> str | None:
    """Return what tells an index from one that was made in its place; None of a method without an index."""
    return parse_manifest(opened["index"]).build_id if "index" in opened else None


def ask(search: Search, data: Dataset, question: dict[str, Any]) -> dict[str, Any]:
    """Search, and tell quality, speed and mean counters."""
    first, last, k = question["first"], question["last"], question["k"]
    queries = np.array(read_bin(data.query)[first:last])
    asked = np.tile(queries, (question["times"], 1))
    options = {"k": k, **question["search"]}
    with measured() as cost:
        rows, counters = search(asked, **options)
    truth = read_truth(data.truth)[1][first:last]
    found = judge(rows[: len(queries)], read_bin(data.base), queries, truth)
    memory = memory_of()
    row = {
        "k": k,
        "search": question["search"],
        **found,
        "qps": len(asked) / cost.wall_s,
        "us": 1e6 * cost.wall_s / len(asked),
        "cpu_us": 1e6 * cost.cpu_s / len(asked),
        **{name: float(values.mean()) for name, values in counters.items()},
        "resident_bytes": {"own": memory["RssAnon"], "files": memory["RssFile"]},
    }
    if question["block"]:
        row["block_us"] = _block_times(search, queries, question["block"], options)
    return row


def _block_times(search: Search, queries: Any, block: int, options: dict[str, Any]) -> list[float]:
    times = []
    for at in range(0, len(queries), block):
        part = queries[at : at + block]
        with measured() as cost:
            search(part, **options)
        times.append(1e6 * cost.wall_s / len(part))
    return times


def open_lsh(data: Dataset, index: str, **options: Any) -> tuple[Search, dict[str, Any]]:
    """Open an index of hash tables; `options` are engine, vectors and tables."""
    from indexmill.reader.lsh import LshIndex

    return _opened(LshIndex(index, **options), _COUNTERS)


def open_ivf(data: Dataset, index: str, **options: Any) -> tuple[Search, dict[str, Any]]:
    """Open an index of inverted lists; `options` are engine."""
    from indexmill.reader.ivf import IvfIndex

    return _opened(IvfIndex(index, **options), ("lists", "reads", "bytes_read", "distances"))


def _opened(found: Any, counters: Sequence[str]) -> tuple[Search, dict[str, Any]]:
    facts = {"memory": dict(found.memory), "engine": found.engine, "note": found.engine_note}

    def search(queries: Any, **options: Any) -> Searched:
        result = found.search(queries, **options)
        facts["note"] = found.engine_note  # a search may learn more of its engine
        return result.slots, {name: result.counters[name] for name in counters}

    return search, facts


def open_srs(data: Dataset, **options: Any) -> tuple[Search, dict[str, Any]]:
    """Make an index of SRS, and compile its search."""
    from indexmill.jobs.bench.lsh.srs import Srs

    base = read_bin(data.base)
    with measured() as cost:
        found = Srs(base, **options)
    found.search(base[:2], 1, 2)

    def search(queries: Any, **options: Any) -> Searched:
        rows, n_measured = found.search(queries, **options)
        return rows, {"distances": n_measured}

    return search, {"bytes": found.bytes_held, "build_s": cost.wall_s}


def open_qalsh(data: Dataset, ratio: float) -> tuple[Search, dict[str, Any]]:
    """Make an index of QALSH, and compile its search."""
    from indexmill.jobs.bench.lsh.qalsh import Qalsh

    base = read_bin(data.base)
    with measured() as cost:
        found = Qalsh(base, ratio)
    found.search(base[:2], 1)

    def search(queries: Any, k: int) -> Searched:
        rows, n_measured, scanned = found.search(queries, k)
        return rows, {"distances": n_measured, "entries": scanned}

    facts = {"bytes": found.bytes_held, "build_s": cost.wall_s, **vars(found.parameters)}
    return search, facts


_METHODS: dict[str, Callable[..., tuple[Search, dict[str, Any]]]] = {
    "lsh": open_lsh,
    "ivf": open_ivf,
    "srs": open_srs,
    "qalsh": open_qalsh,
}

if __name__ == "__main__":
    main()
