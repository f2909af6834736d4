"""Part *difficulty*: local intrinsic dimension of the sets (Table II of DiskANN++)."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import read_truth
from indexmill.jobs.bench.common.difficulty import local_dimensions, two_nearest_dimension


def measure(run: Run) -> dict[str, Any]:
    """Estimate the dimension of each set from the 100 nearest vectors of its queries, and from the two nearest."""
    found = {}
    for name, data in run.sets.items():
        distances = np.sqrt(np.asarray(read_truth(data.truth)[1], np.float64))
        found[name] = {
            "queries": len(distances),
            "lid": float(local_dimensions(distances).mean()),
            "two_nearest": two_nearest_dimension(distances),
        }
    return {"sets": found}
