"""Parts *speed-SET*: hash tables beside SRS and QALSH, one thread, at the overall ratio that is compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from indexmill.jobs.bench.common.curves import summaries
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.lsh.space import STORAGE, Searcher, Space
from indexmill.jobs.bench.lsh.tables import INFLIGHT
from indexmill.jobs.bench.lsh.tune import KS, first_of, least

ROUNDS = 5
#: c of SRS's early stop, from cheap to dear; None: without it, T' alone ends a query.
SRS_RATIOS = (4.0, 2.0, 1.5, 1.2, 1.1)
#: Queries that try it.
STOP_QUERIES = 200
#: c of QALSH, from cheap to dear.
QALSH_RATIOS = (8.0, 6.0, 5.0, 4.0, 3.5, 3.0, 2.5, 2.25, 2.0, 1.8, 1.6, 1.5)
#: QALSH takes so long that fewer queries have to do.
QALSH_QUERIES = 64
#: Sets that it is not searched in: a search of them did not come to its end. It is searched in `FIRST_OF_RAND`.
WITHOUT_QALSH = ("rand",)
#: Microseconds of a query beyond which no dearer c is tried: far beyond what the others take.
QALSH_MOST_US = 300_000.0

Ask = Callable[[], dict[str, Any]]


def measure(name: str, space: Space) -> dict[str, Any]:
    """Tune SRS (T', and its early stop) and QALSH (c), then measure all in turns; S is that of part *tables-SET*."""
    data, n = space.data(name), space.data(name).shape()[0]
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        ours, stored, srs, qalsh = (
            stack.enter_context(Searcher(data, space.out / f"{who}-{name}.log"))
            for who in ("memory", "storage", "srs", "qalsh")
        )
        for k in KS:
            tuned = {"srs": tune_srs(srs, n, k)}
            asks = {"srs": _srs(srs, tuned["srs"], k)}
            if name not in WITHOUT_QALSH:
                tuned["qalsh"] = _tune_qalsh(qalsh, k)
                asks["qalsh"] = _qalsh(qalsh, tuned["qalsh"], k)
            shapes = {}
            for where, searcher, engine in (("memory", ours, "memory"), ("storage", stored, STORAGE)):
                best = space.fastest(name, k, where)
                if best is not None:
                    shape, candidates = best
                    shapes[where] = shape.name
                    opened = {"index": str(space.measured(name, shape)), "engine": engine}
                    search = {"candidates": candidates, "threads": 1, "inflight": INFLIGHT}
                    asks[where] = _bound(searcher, "lsh", opened, search, k)
            found[f"k{k}"] = {"tuned": tuned, "shapes": shapes, **compare(asks)}
    return found


def compare(asks: dict[str, Ask | None]) -> dict[str, Any]:
    """Ask all in turns, a first round uncounted; rows, and speed as a ratio to each baseline over the rounds."""
    known = {who: ask for who, ask in asks.items() if ask is not None}
    rounds = [{who: ask() for who, ask in known.items()} for _ in range(ROUNDS + 1)][1:]
    ratios = {
        f"{mine} / {theirs}": over_rounds([done[mine]["qps"] / done[theirs]["qps"] for done in rounds])
        for mine in ("memory", "storage")
        for theirs in ("srs", "qalsh")
        if mine in known and theirs in known
    }
    return {
        "rows": {who: summaries([done[who] for done in rounds]) for who in known},
        "us": {who: over_rounds([done[who]["us"] for done in rounds]) for who in known},
        "ratios": ratios,
    }


def tune_srs(searcher: Searcher, n: int, k: int) -> dict[str, Any]:
    """Return T' alone, or c and a T' that leaves the end to the early stop: whichever takes less time."""

    def ask(most: int, ratio: float | None = None, n_queries: int | None = None) -> dict[str, Any]:
        return searcher.ask("srs", {}, {"most": most, "ratio": ratio}, k, "tune", n_queries=n_queries)

    most, rows = least(ask, k, n // 4)
    stop, stop_rows = first_of(lambda ratio: ask(n // 4, ratio, STOP_QUERIES), SRS_RATIOS)
    options: list[dict[str, Any]] = []
    if most is not None:
        options.append({"most": most, "ratio": None})
    if stop is not None:
        options.append({"most": n // 4, "ratio": stop})
    timed = [(ask(**one, n_queries=STOP_QUERIES)["us"], i) for i, one in enumerate(options)]
    best = options[min(timed)[1]] if timed else None
    return {"best": best, "limit_rows": rows, "stop_rows": stop_rows}


def _tune_qalsh(searcher: Searcher, k: int) -> dict[str, Any]:
    def ask(ratio: float) -> dict[str, Any]:
        return searcher.ask("qalsh", {"ratio": ratio}, {}, k, "tune", n_queries=QALSH_QUERIES)

    ratio, rows = first_of(ask, QALSH_RATIOS, most_us=QALSH_MOST_US)
    return {"best": ratio, "rows": rows}


def _bound(
    searcher: Searcher, method: str, opened: dict[str, Any], search: dict[str, Any], k: int, **more: Any
) -> Ask:
    return lambda: searcher.ask(method, opened, search, k, "report", **more)


def _srs(searcher: Searcher, tuned: dict[str, Any], k: int) -> Ask | None:
    return None if tuned["best"] is None else _bound(searcher, "srs", {}, tuned["best"], k)


def _qalsh(searcher: Searcher, tuned: dict[str, Any], k: int) -> Ask | None:
    if tuned["best"] is None:
        return None
    return _bound(searcher, "qalsh", {"ratio": tuned["best"]}, {}, k, n_queries=QALSH_QUERIES)
