"""Queries a second at equal recall: DiskANN, indexmill and the bare disk in turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.curves import (
    AROUND,
    COARSE_SIZES,
    RECALLS,
    Row,
    Search,
    at_recalls,
    coarse_sweep,
    in_turns,
    sizes_at,
    summaries,
    trial,
    value_at,
)
from indexmill.jobs.bench.common.intervals import medians_at, over_rounds, ratios_at, short
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH, Setting
from indexmill.jobs.bench.programs.workspace import Workspace

ROUNDS = 5
#: First the policy and entry are chosen, at the reader's own widths; then the widths.
POLICIES = ("pipeline", "page")
ENTRIES = ("navigation", "centroids")
WIDTHS = (4, 8, 16)
#: Queries of a thread.
IN_FLIGHT = (4, 8, 16)
FIO_SECONDS = 2


def beside_diskann(
    space: Workspace,
    index: str,
    *,
    rounds: int = ROUNDS,
    in_flight: Sequence[int] = IN_FLIGHT,
    coarse: Sequence[int] = COARSE_SIZES,
) -> dict[str, Any]:
    """Choose a setting on the first half of the queries, then measure rounds on the second, in turns.

    ``diskann`` and ``indexmill`` have the same threads, and are the headline. ``indexmill_single`` and
    ``diskann_many`` tell how much of its ratio is the interleaving of queries: the one goes without it, in the setting
    that is best so, the other has as many queries in flight by more threads.

    Parameters
    ----------
    space : Workspace
        DiskANN's index is built unless it is there.
    index : str
        Ours.
    rounds : int
    in_flight : sequence of int
        Queries of a thread to choose from.
    coarse : sequence of int
        List sizes of a first sweep.
    """
    diskann.ensure(space)
    with ours.Ours(space) as searcher:
        setting, tuned, grid = choose(searcher, index, in_flight=in_flight, coarse=coarse)
        single, single_tuned, single_grid = choose(searcher, index, in_flight=(1,), coarse=coarse)
        many = setting.threads * setting.inflight
        with diskann.DiskAnn(space) as peer, diskann.DiskAnn(space, many) as peer_many:
            their_tuned = coarse_sweep(peer.search(), sizes=coarse)
            theirs, mine = sizes_at(their_tuned), sizes_at(tuned)
            series: dict[str, Search] = {
                "diskann": peer.search(),
                "indexmill": searcher.search(index, setting),
                "indexmill_single": searcher.search(index, single),
                "diskann_many": peer_many.search(),
            }
            sizes = {name: theirs if name.startswith("diskann") else mine for name in series}
            sizes["indexmill_single"] = sizes_at(single_tuned)
            done = rounds_beside_disk(space.index(index), series, sizes, rounds)
    return {
        "recalls": RECALLS,
        "queries": space.halves,
        "setting": setting.to_dict(),
        "setting_single": single.to_dict(),
        "diskann_width": DISKANN_WIDTH,
        "threads": THREADS,
        "many_threads": many,
        "grid": grid + single_grid,
        "tuning_rows": {"indexmill": summaries(tuned), "DiskANN": summaries(their_tuned)},
        "qps": {name: medians_at(done, name, "qps") for name in series},
        "ratio": ratios_at(done, "indexmill", "diskann", "qps"),
        "ratio_single": ratios_at(done, "indexmill_single", "diskann", "qps"),
        "ratio_many": ratios_at(done, "indexmill", "diskann_many", "qps"),
        "disk": disk_rate(done),
        "disk_share": disk_shares(done, "indexmill"),
        "pages_ratio": ratios_at(done, "indexmill", "diskann", "pages_read"),
        "rounds": kept(done),
    }


def choose(
    searcher: ours.Ours,
    index: str,
    policies: Sequence[str] = POLICIES,
    entries: Sequence[str] = ENTRIES,
    *,
    in_flight: Sequence[int] = IN_FLIGHT,
    coarse: Sequence[int] = COARSE_SIZES,
) -> tuple[Setting, list[Row], list[dict[str, Any]]]:
    """Return the setting with the most queries a second at recall 0.95, its sweep, and all that was tried."""
    grid: list[dict[str, Any]] = []
    sweeps: dict[Setting, list[Row]] = {}
    for policy, entry in product(policies, entries):
        setting = Setting(policy, entry)
        sweeps[setting] = coarse_sweep(searcher.search(index, setting), sizes=coarse)
        grid.append({**setting.to_dict(), "qps": value_at(sweeps[setting], "qps")})
    best = max(sweeps, key=lambda one: value_at(sweeps[one], "qps") or 0.0)
    sizes = sizes_at(sweeps[best], AROUND)
    widths: dict[Setting, float] = {}
    for width, inflight in product(WIDTHS, in_flight):
        setting = Setting(best.policy, best.entry, width, inflight=inflight)
        rows = trial(searcher.search(index, setting), sizes)
        widths[setting] = value_at(rows, "qps") or 0.0
        grid.append({**setting.to_dict(), "qps": widths[setting] or None})
    chosen = max(widths, key=lambda one: widths[one]) if any(widths.values()) else best
    return chosen, coarse_sweep(searcher.search(index, chosen), sizes=coarse), grid


def rounds_beside_disk(
    index: Path, series: dict[str, Search], sizes: dict[str, list[int]], rounds: int
) -> list[dict[str, Any]]:
    """Search in turns, and measure the disk in each round by reads of the index's graph."""
    found: list[dict[str, Any]] = []
    for _ in range(rounds):
        (done,) = in_turns(series, sizes, 1)
        found.append({**done, "disk": disk.read_rate(index / "graph.imx", disk.DEPTH, FIO_SECONDS)})
    return found


def disk_rate(rounds: list[dict[str, Any]]) -> Any:
    """Return the disk's reads a second over the rounds."""
    return over_rounds([float(done["disk"]["reads_per_s"]) for done in rounds])


def disk_shares(rounds: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the share of the disk's reads a second that a search asked for in the same round, at each recall."""

    def share(done: dict[str, Any], recall: float) -> float | None:
        qps, pages = (value_at(done[name], cost, recall) for cost in ("qps", "pages_read"))
        return None if qps is None or pages is None else qps * pages / float(done["disk"]["reads_per_s"])

    return at_recalls(lambda recall: over_rounds([share(done, recall) for done in rounds]))


def kept(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rounds beside the disk for the record."""
    return [
        {"disk": done["disk"], **short([{k: v for k, v in done.items() if k != "disk"}])[0]}
        for done in rounds
    ]
