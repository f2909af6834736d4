"""Part *qps*: queries a second at equal recall, DiskANN, indexmill and the bare disk in turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.curves import (
    AROUND,
    RECALLS,
    Row,
    Search,
    coarse_sweep,
    key,
    ratio,
    sizes_at,
    summaries,
    sweep,
    trial,
    value_at,
)
from indexmill.jobs.bench.common.intervals import over_rounds, value_of
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.settings import DISKANN_WIDTH, Setting
from indexmill.jobs.bench.programs.workspace import THREADS, Workspace

ROUNDS = 5
ORDER = "star"
#: First the policy and entry are chosen, at the reader's own widths; then the widths.
POLICIES = ("pipeline", "page")
ENTRIES = ("navigation", "centroids")
WIDTHS = (4, 8, 16)
IN_FLIGHT = (4, 8, 16)
FIO_SECONDS = 2


def measure(space: Workspace) -> dict[str, Any]:
    """Choose a setting on the first half of the queries, then measure five rounds on the second, in turns.

    ``diskann`` and ``indexmill`` have the same threads, and are the headline. ``indexmill_single`` and
    ``diskann_many`` tell how much of its ratio is the interleaving of queries: the one goes without it, the other has
    as many queries in flight by more threads.
    """
    diskann.ensure(space)
    index = ours.ensure(space, ORDER)
    with ours.Ours(space) as searcher:
        setting, tuned, grid = choose(searcher, index)
        many = setting.threads * setting.inflight
        single = Setting(setting.policy, setting.entry, setting.beam_width, inflight=1)
        with diskann.DiskAnn(space) as peer, diskann.DiskAnn(space, many) as peer_many:
            their_tuned = coarse_sweep(peer.search())
            theirs, mine = sizes_at(their_tuned), sizes_at(tuned)
            series: dict[str, tuple[Search, list[int]]] = {
                "diskann": (peer.search(), theirs),
                "indexmill": (searcher.search(index, setting), mine),
                "indexmill_single": (searcher.search(index, single), mine),
                "diskann_many": (peer_many.search(), theirs),
            }
            rounds = [_round(space, index, series) for _ in range(ROUNDS)]
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "order": ORDER,
        "setting": setting.to_dict(),
        "diskann_width": DISKANN_WIDTH,
        "threads": THREADS,
        "many_threads": many,
        "grid": grid,
        "tuning_rows": {"indexmill": summaries(tuned), "DiskANN": summaries(their_tuned)},
        **compare(rounds, list(series)),
        "disk": over_rounds([float(done["disk"]["reads_per_s"]) for done in rounds]),
        "disk_share": {key(r): over_rounds([_share(done, r) for done in rounds]) for r in RECALLS},
        "pages_ratio": {
            key(r): over_rounds([_ratio(done, "pages_read", r) for done in rounds]) for r in RECALLS
        },
        "rounds": [
            {"disk": done["disk"], **{name: summaries(done[name]) for name in series}} for done in rounds
        ],
    }


def compare(rounds: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """Medians of each series over the rounds and ratios to DiskANN's of the same round, at each recall."""

    def qps(done: dict[str, Any], name: str, recall: float) -> float | None:
        return value_at(done[name], "qps", recall)

    def ratios(a: str, b: str) -> dict[str, Any]:
        return {key(r): over_rounds([ratio(qps(d, a, r), qps(d, b, r)) for d in rounds]) for r in RECALLS}

    return {
        "qps": {
            name: {key(r): over_rounds([qps(done, name, r) for done in rounds]) for r in RECALLS}
            for name in names
        },
        "ratio": ratios("indexmill", "diskann"),
        "ratio_single": ratios("indexmill_single", "diskann"),
        "ratio_many": ratios("indexmill", "diskann_many"),
    }


def choose(
    searcher: ours.Ours, index: str, policies: Sequence[str] = POLICIES, entries: Sequence[str] = ENTRIES
) -> tuple[Setting, list[Row], list[dict[str, Any]]]:
    """Return the setting with the most queries a second at recall 0.95, its sweep, and all that was tried."""
    grid: list[dict[str, Any]] = []
    sweeps: dict[Setting, list[Row]] = {}
    for policy, entry in product(policies, entries):
        setting = Setting(policy, entry)
        sweeps[setting] = coarse_sweep(searcher.search(index, setting))
        grid.append({**setting.to_dict(), "qps": value_at(sweeps[setting], "qps")})
    best = max(sweeps, key=lambda one: value_at(sweeps[one], "qps") or 0.0)
    sizes = sizes_at(sweeps[best], AROUND)
    widths: dict[Setting, float] = {}
    for width, inflight in product(WIDTHS, IN_FLIGHT):
        setting = Setting(best.policy, best.entry, width, inflight=inflight)
        rows = trial(searcher.search(index, setting), sizes)
        widths[setting] = value_at(rows, "qps") or 0.0
        grid.append({**setting.to_dict(), "qps": widths[setting] or None})
    chosen = max(widths, key=lambda one: widths[one]) if any(widths.values()) else best
    return chosen, coarse_sweep(searcher.search(index, chosen)), grid


def chosen_setting(space: Workspace) -> Setting:
    """Return the setting that this part chose earlier; the reader's defaults if it has not run."""
    earlier = space.earlier("qps")
    return Setting() if earlier is None else Setting(**earlier["setting"])


def tuning_rows(space: Workspace) -> tuple[list[Row], list[Row]] | None:
    """Return the sweeps of the first half of the queries with that setting and with DiskANN; None without them."""
    earlier = space.earlier("qps")
    return (
        None if earlier is None else (earlier["tuning_rows"]["indexmill"], earlier["tuning_rows"]["DiskANN"])
    )


def _round(space: Workspace, index: str, series: dict[str, tuple[Search, list[int]]]) -> dict[str, Any]:
    done: dict[str, Any] = {name: sweep(search, sizes) for name, (search, sizes) in series.items()}
    done["disk"] = disk.read_rate(space.index(index) / "graph.imx", disk.DEPTH, FIO_SECONDS)
    return done


def _share(done: dict[str, Any], recall: float) -> float | None:
    """Share of the disk's reads a second that a round's search asked for."""
    qps, pages = (value_at(done["indexmill"], name, recall) for name in ("qps", "pages_read"))
    return None if qps is None or pages is None else qps * pages / float(done["disk"]["reads_per_s"])


def _ratio(done: dict[str, Any], name: str, recall: float) -> float | None:
    return ratio(*(value_at(done[side], name, recall) for side in ("indexmill", "diskann")))


def qps_at(part: dict[str, Any], name: str, recall: float) -> float | None:
    """Return the median of a series at a recall."""
    return value_of(part["qps"][name][key(recall)])
