"""Part *synchronous*: reads in flight against one after the other, on a simulated cSSD x 4 (section 6.5 of the paper).

The device that is waited for has the same latency, and starts no read before the one before it is complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.formats.device import DeviceProfile, read_profile, write_profile
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.lsh.space import Searcher, Space
from indexmill.jobs.bench.lsh.tables import INFLIGHT
from indexmill.jobs.bench.lsh.tune import KS
from indexmill.pipeline.cost.device import latency_seconds
from indexmill.pipeline.devices import profile_path

NAME, DEVICE = "sift1m", "cssd4"
ROUNDS = 3
#: Queries of the search that waits for each read; the other one searches all of a half.
SYNC_QUERIES = 100


def measure(space: Space) -> dict[str, Any]:
    """Search the index that is fastest from storage both ways, in turns."""
    serial = space.out / f"{DEVICE}-one-by-one.json"
    write_profile(serial, one_by_one(read_profile(profile_path(DEVICE))))
    found: dict[str, Any] = {"device": DEVICE}
    with Searcher(space.data(NAME), space.out / "synchronous.log") as searcher:
        for k in KS:
            best = space.fastest(NAME, k, "storage")
            if best is not None:
                shape, candidates = best
                index = space.ensure(NAME, space.data(NAME), shape)
                rounds = [_round(searcher, index, serial, candidates, k) for _ in range(ROUNDS)]
                ratio = over_rounds([one["sync_us"] / one["async_us"] for one in rounds])
                found[f"k{k}"] = {"index": shape.name, "rounds": rounds, "ratio": ratio}
    return found


def one_by_one(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of a device that starts a read when the one before it is complete."""
    model = profile.model.model_copy(update={"iops": 1 / latency_seconds(profile)})
    return profile.model_copy(update={"name": f"{profile.name}, one read at a time", "model": model})


def _round(searcher: Searcher, index: Path, serial: Path, candidates: int, k: int) -> dict[str, float]:
    """Search with few queries one by one, then with all of them interleaved; one index is in memory at a time."""

    def ask(device: str, inflight: int, n_queries: int | None) -> float:
        opened = {"index": str(index), "engine": f"simulated:{device}"}
        search = {"candidates": candidates, "threads": 1, "inflight": inflight}
        return float(searcher.ask("lsh", opened, search, k, "report", n_queries=n_queries)["us"])

    device = str(profile_path(DEVICE))
    return {"sync_us": ask(str(serial), 1, SYNC_QUERIES), "async_us": ask(device, INFLIGHT, None)}
