"""Part *tail*: simulated devices, one with the paper's tail of slow reads (Figure 2) and one without a tail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.formats.device import DeviceProfile, Model, write_profile
from indexmill.jobs.bench.aio_ann import searches
from indexmill.jobs.bench.aio_ann.searches import BEAM, RECALLS, ROUNDS, SERIES
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import in_turns
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.programs.workspace import workspace

#: Quantiles of the time of a read: shares and microseconds. The paper tells two points of its curve, 98.5% below 100
#: and the slowest 10,000; between them is a straight line, which has more slow reads than any curve that bends.
DEVICES: dict[str, list[list[float]]] = {
    "even": [[0, 50], [1, 100]],
    "tail": [[0, 50], [0.985, 100], [1, 10_000]],
}


def measure(run: Run) -> dict[str, Any]:
    """Search each device for users near each other, with every part of AIO-ANN and with all of them."""
    space = workspace(run)
    searches.ensure(space)
    data = searches.users(space)
    sizes = searches.sizes(space, data, SERIES)
    found = {}
    for name, latency in DEVICES.items():
        engine = f"simulated:{_profile(run.out, name, latency)}"
        rounds = in_turns(searches.opened(space, data, engine, SERIES), sizes, run.options.rounds or ROUNDS)
        found[name] = {
            "latency_us": latency,
            "qps": {one: medians_at(rounds, one, "qps", RECALLS) for one in SERIES},
            "pages_read": {one: medians_at(rounds, one, "pages_read", RECALLS) for one in SERIES},
            "to_beam": {one: ratios_at(rounds, one, BEAM, "qps", RECALLS) for one in SERIES},
            "rounds": short(rounds),
        }
    return {**searches.told(data, SERIES), "devices": found}


def _profile(folder: Path, name: str, latency: list[list[float]]) -> Path:
    path = folder / f"device-{name}.json"
    write_profile(path, DeviceProfile(name=name, model=Model(latency_us=latency)))
    return path
