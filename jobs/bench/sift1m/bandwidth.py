"""Part *bandwidth*: DiskANN++ Table IV, centroid entries against the medoid on devices of less and more bandwidth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import RECALL, Round, coarse_sweep, key, sizes_at, trial
from indexmill.jobs.bench.common.intervals import ratios_at, short
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.workspace import Workspace

ORDER = "star"
#: Megabytes a second.
BANDWIDTHS = (100, 200, 300, 400, 500, 600, 700)
#: Centroids; the paper has 4,096 to 65,536 of them for 100 times as many vectors.
ENTRIES = (64, 256, 1024, 4096)
#: Recalls on the tuning queries between which the compared recall lies, on the others, too.
POINTS = (0.92, 0.965)
ROUNDS = 2
#: Seconds in which the real device is measured with one read in flight.
DEVICE_SECONDS = 2.0


def measure(space: Workspace) -> dict[str, Any]:
    """Page search of the star order on simulated devices: latency as measured here, bandwidth capped.

    Searches of a bandwidth are made in turns, so that a machine that slows down slows all of them.
    """
    indexes = {str(n): ours.ensure(space, ORDER, n) for n in ENTRIES}
    latency = read_latency(space.index(indexes["1024"]) / "graph.imx")
    places = {"medoid": (indexes["1024"], _setting("medoid"))}
    places |= {name: (index, _setting("centroids")) for name, index in indexes.items()}
    cells: dict[str, Any] = {}
    with ours.Ours(space) as searcher:
        sizes = {
            name: sizes_at(coarse_sweep(searcher.search(*place)), POINTS) for name, place in places.items()
        }
        for bandwidth in BANDWIDTHS:
            engine = f"simulated:{write_profile(space.out, latency, bandwidth)}"
            rounds = [
                {
                    name: trial(searcher.search(*place, engine=engine), sizes[name], "report")
                    for name, place in places.items()
                }
                for _ in range(ROUNDS)
            ]
            cells[str(bandwidth)] = {
                "speedup": {str(n): _speedup(rounds, str(n)) for n in ENTRIES},
                "rounds": short(rounds),
            }
    return {
        "recall": RECALL,
        "queries": space.halves,
        "order": ORDER,
        "setting": _setting("centroids").to_dict(),
        "entries": ENTRIES,
        "bandwidths_mb_per_s": BANDWIDTHS,
        "latency_us": latency,
        "cells": cells,
    }


def _setting(entry: str) -> Setting:
    return Setting("page", entry, beam_width=4)


def read_latency(path: Path) -> list[list[float]]:
    """Measure the device's latency with one read in flight, as pairs (share of the reads, microseconds)."""
    from indexmill.jobs.devices.measure import SHARES
    from indexmill.reader import native

    found = native.measure_device(str(path), 4096, 1, 1, DEVICE_SECONDS, 1)["latencies_us"]
    return [[share, round(float(np.quantile(found, share)), 2)] for share in SHARES]


def write_profile(folder: Path, latency: list[list[float]], bandwidth: int) -> Path:
    """Write a device profile with that bandwidth and no other limit."""
    from indexmill.formats.device import DeviceProfile, Model, write_profile

    path = folder / f"device-{bandwidth}.json"
    model = Model(latency_us=latency, mb_per_s=float(bandwidth))
    write_profile(path, DeviceProfile(name=f"{bandwidth} MB/s", model=model))
    return path


def _speedup(rounds: list[Round], name: str) -> Any:
    return ratios_at(rounds, name, "medoid", "qps", (RECALL,))[key(RECALL)]
