"""Part *device*: a search that asks for as many reads as the device gives, and raw reads with as many in flight."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.curves import summaries
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.workspace import Workspace

#: Beam search with short lists computes least for each read.
POLICY, ENTRY, ORDER = "beam", "medoid", "identity"
SIZES = (10, 20)
WIDTHS = (1, 2, 4)
IN_FLIGHT = (32, 64, 128)
ROUNDS = 5
SECONDS = 2.0
#: Times that a trial searches the queries: once is over before the device is busy for long.
TRIAL_TIMES = 3
#: Of which the record has the median over the rounds.
_FIGURES = ("reads_per_s", "in_flight", "share", "share_of_limit", "cores_busy", "cores_idle")


def measure(space: Workspace) -> dict[str, Any]:
    """Choose the setting with the most reads a second on the first half of the queries; compare it on the second.

    A search has up to ``threads x inflight x beam width`` reads in flight, fewer while it computes. So raw reads, by
    fio where there is fio, are run twice in each round: with the mean number that the kernel counted in flight during
    the search, and with that upper limit. The first is the same queue depth.
    """
    index = ours.ensure(space, ORDER)
    grid: list[dict[str, Any]] = []
    with ours.Ours(space) as searcher:
        for size, width, inflight in product(SIZES, WIDTHS, IN_FLIGHT):
            setting = Setting(POLICY, ENTRY, width, THREADS, inflight)
            row = searcher.ask(index, setting, size, "tune", times=TRIAL_TIMES)
            grid.append({"L": size, **setting.to_dict(), "reads_per_s": row["qps"] * row["pages_read"]})
        best = max(grid, key=lambda one: float(one["reads_per_s"]))
        setting = Setting(**{name: best[name] for name in Setting().to_dict()})
        row = searcher.ask(index, setting, best["L"], "report")
        times = max(1, round(SECONDS * row["qps"] / row["n_queries"]))
        rounds = [_round(searcher, index, setting, best["L"], times) for _ in range(ROUNDS)]
    return {
        "order": ORDER,
        "setting": setting.to_dict(),
        "L": best["L"],
        "grid": grid,
        "rounds": rounds,
        **{name: over_rounds([done[name] for done in rounds]) for name in _FIGURES},
    }


def _round(searcher: ours.Ours, index: str, setting: Setting, size: int, times: int) -> dict[str, Any]:
    """Search for some seconds, then make raw reads: as many in flight, and as many as there could be."""
    path = searcher.space.index(index) / "graph.imx"
    idle = idle_seconds()
    with InFlight(path) as queue:
        row = searcher.ask(index, setting, size, "report", times=times)
    idle = idle_seconds() - idle
    limit = setting.threads * setting.inflight * setting.beam_width
    seconds = times * row["n_queries"] / row["qps"]
    mean = None if queue.summed_ms is None else queue.summed_ms / (1000 * seconds)
    reads = row["qps"] * row["pages_read"]
    same, most = (disk.read_rate(path, one, SECONDS) for one in (max(1, round(mean or limit)), limit))
    return {
        "search": summaries([row])[0],
        "in_flight": mean,
        "reads_per_s": reads,
        "fio": same,
        "fio_limit": most,
        "share": reads / same["reads_per_s"],
        "share_of_limit": reads / most["reads_per_s"],
        "cores_busy": row["cpu_us"] * row["qps"] / 1e6,
        "cores_idle": idle / seconds,
    }


def idle_seconds() -> float:
    """Seconds that all cores together had nothing to do, or only to wait for reads, since the system started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


class InFlight:
    """Milliseconds that requests to a file's device were in flight during a block, summed over the requests.

    From ``/sys/dev/block/MAJOR:MINOR/stat``, all processes together; `summed_ms` is None where there is no such
    file. Over the time they took it is the mean number in flight, what iostat calls aqu-sz.
    """

    def __init__(self, path: Path) -> None:
        device = os.stat(path).st_dev
        self.stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        self.summed_ms: int | None = None

    def __enter__(self) -> InFlight:
        self.before = self._read()
        return self

    def __exit__(self, *error: object) -> None:
        after = self._read()
        if self.before is not None and after is not None:
            self.summed_ms = after - self.before

    def _read(self) -> int | None:
        return int(self.stat.read_text().split()[10]) if self.stat.exists() else None
