"""Part *order-sift1m*: whole indexes in the default order beside those in input order, stage by stage."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.calibration import calibration
from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.partition import builds
from indexmill.jobs.bench.partition.builds import SHAPES, Builds

#: Orders by what a record calls them.
ORDERS = {"input": "identity", "default": ORDER}


def measure(space: Builds) -> dict[str, Any]:
    """Build sift1m with the partition builder in both orders, in turns; medians, and the ratio of their seconds."""
    data = space.sets["sift1m"]
    few = space.first(data, builds.WARM_UP_ROWS)
    for order in ORDERS.values():
        builds.build(space, few, "partition", *SHAPES[0], order=order)
    few.unlink()
    before = calibration(data)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ORDERS}
    for _ in range(space.rounds):
        for name, order in ORDERS.items():
            runs[name].append(builds.build(space, data.base, "partition", *SHAPES[0], order=order))
    found: dict[str, Any] = {name: builds.medians(made) for name, made in runs.items()}
    space.remove()
    return found | {
        "name": ORDER,
        "calibration_s": [before, calibration(data)],
        "ratio": ratio(found["default"]["index_s"], found["input"]["index_s"]),
    }
