"""The platform of the Batch Similarity Search paper in simulation: its Figures 8 to 10 and the rates behind them.

The paper tells ratios, not rates. Two of them fix the rates that are missing (`fit_rates`), its four energies fit the
watts (`fit_watts`); every other figure then is a prediction, which stands beside what the paper tells.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq, nnls

from indexmill.pipeline.join.platform import Costs, Worker
from indexmill.pipeline.join.simulate import energy_joules, simulate, spread
from indexmill.pipeline.join.split import plan_split

#: Section 5: cells, queries, bytes of a vector in faiss's lists (128 float32 and an id), one drive's sequential rate.
CELLS, QUERIES, VECTOR_BYTES, DRIVE_MB_S = 4096, 10_000, 520, 1600.0
#: Section 5.6, 10^9 vectors: the hybrid with 8 drives over the host with 8, and with 24 over the host with one.
HYBRID_8, HYBRID_24 = 1.71, 5.8
#: Energy in kilojoules, section 5.6. With 8 drives the hybrid saves 22.4, 27% of what the host takes; with 24 it takes
#: 35, 38% of what the host takes with one drive.
ENERGY_KJ = {
    "host, 1 drive": 35 / 0.38,
    "host, 8 drives": 22.4 / 0.27,
    "hybrid, 8": 22.4 / 0.27 - 22.4,
    "hybrid, 24": 35.0,
}
DRIVES = (1, 2, 4, 8, 16, 24)
#: Configurations of Figure 9: name, vectors, batches, nprobe, drives, and what the paper tells of both over the host.
CASES = (
    ("9a: 50M, nprobe 1", 5e7, 16, 1, 8, 1.73),
    ("9b: 50M, nprobe 4", 5e7, 16, 4, 8, 1.88),
    ("9c: 1B, nprobe 1", 1e9, 100, 1, 8, 1.71),
    ("9c: 1B, nprobe 1", 1e9, 100, 1, 24, None),
)
#: Pieces that stand for vectors that divide anywhere, as Equation 8 has it.
PIECES = 5000
#: Rates at which faults bring pages in, MB/s: an assumption, the paper tells none.
FAULT_MB_S = (100.0, 200.0, 400.0)


@dataclass(frozen=True)
class Rates:
    """Millions of vectors compared a second, by the host and by a drive."""

    host: float
    drive: float


def _seconds(compare_m_s: float, drives: int) -> float:
    """Return T of a worker for 10^9 vectors that it loads from so many drives."""
    compares = QUERIES / CELLS * 1e9
    return 1e9 * VECTOR_BYTES / (DRIVE_MB_S * 1e6 * drives) + compares / (compare_m_s * 1e6)


def fit_rates() -> Rates:
    """Return the rates with which the hybrids are as many times faster as the paper tells."""

    def drive_seconds(host: float) -> float:
        return 8 * _seconds(host, 8) / (HYBRID_8 - 1)

    def off(host: float) -> float:
        hybrid = 1 / _seconds(host, 24) + 24 / drive_seconds(host)
        return hybrid * _seconds(host, 1) - HYBRID_24

    host = brentq(off, 1.0, 1000.0)
    search = drive_seconds(host) - 1e9 * VECTOR_BYTES / (DRIVE_MB_S * 1e6)
    return Rates(host, QUERIES / CELLS * 1e9 / search / 1e6)


def crew(rates: Rates, drives: int, kind: str) -> list[Worker]:
    """Return the workers of a configuration: ``host``, ``drives`` or ``hybrid``; none loads while it searches."""
    host = Worker("host", DRIVE_MB_S * drives, rates.host, overlap=False)
    each = [Worker(f"drive-{i}", DRIVE_MB_S, rates.drive, overlap=False) for i in range(drives)]
    return {"host": [host], "drives": each, "hybrid": [host, *each]}[kind]


def costs(vectors: float, batches: int, nprobe: int, lists: int = 1) -> Costs:
    """Return the costs of equal batches, which are cut between so many lists; with one they stay whole."""
    return Costs.even(batches, lists, vectors * VECTOR_BYTES, vectors * QUERIES * nprobe / CELLS, vectors)


def run(workers: list[Worker], vectors: float, batches: int, nprobe: int, lists: int = 1) -> dict[str, Any]:
    """Simulate a configuration; queries a second, when its workers end, and the vectors of each."""
    planned = plan_split(workers, costs(vectors, batches, nprobe, lists))
    done = simulate(planned)
    seconds = max(one.seconds for one in done)
    return {
        "seconds": seconds,
        "qps": QUERIES / seconds,
        "spread": spread([one.seconds for one in done]),
        "planned_spread": spread([share.seconds for share in planned]),
        "d_first": planned[0].rows,
        "d_last": planned[-1].rows,
        "pieces": sum(len(share.pieces) for share in planned),
        "runs": [one.seconds for one in done],
    }


def virtual_memory(rates: Rates, vectors: float, cache_share: float) -> dict[str, Any]:
    """Simulate Figure 8a: lists brought in by faults, queries in their order, beside batches read once; one drive."""
    list_bytes = vectors / CELLS * VECTOR_BYTES
    room, cached, missed = int(CELLS * cache_share), OrderedDict[int, None](), 0
    for name in np.random.default_rng(1).integers(CELLS, size=QUERIES).tolist():
        if name in cached:
            cached.move_to_end(name)
            continue
        missed += 1
        cached[name] = None
        if len(cached) > room:
            cached.popitem(last=False)
    search = vectors * QUERIES / CELLS / (rates.host * 1e6)
    batches = run(crew(rates, 1, "host"), vectors, 16, 1)["qps"]
    qps = {f"{rate:g}": QUERIES / (missed * list_bytes / (rate * 1e6) + search) for rate in FAULT_MB_S}
    return {
        "cache_share": cache_share,
        "bss_qps": batches,
        "mapped_qps": qps,
        "bss_to_mapped": {rate: batches / one for rate, one in qps.items()},
    }


def scaling(rates: Rates, vectors: float) -> dict[str, Any]:
    """Simulate Figures 8b and 8c, and the hybrid beside them: queries a second by the number of drives."""
    return {
        kind: {str(n): run(crew(rates, n, kind), vectors, PIECES, 1)["qps"] for n in DRIVES}
        for kind in ("host", "drives", "hybrid")
    }


def hybrids(rates: Rates) -> list[dict[str, Any]]:
    """Simulate Figure 9: host with drives, drives, and both; whole batches and vectors that divide anywhere."""
    found = []
    for name, vectors, batches, nprobe, drives, told in CASES:
        row: dict[str, Any] = {"figure": name, "drives": drives, "paper": told}
        for how, pieces in (("anywhere", PIECES), ("batches", batches)):
            one = {
                kind: run(crew(rates, drives, kind), vectors, pieces, nprobe)
                for kind in ("host", "drives", "hybrid")
            }
            row[how] = {
                "hybrid_to_host": one["hybrid"]["qps"] / one["host"]["qps"],
                "hybrid_to_drives": one["hybrid"]["qps"] / one["drives"]["qps"],
                "spread": one["hybrid"]["spread"],
                "d_host": one["hybrid"]["d_first"],
                "d_drive": one["hybrid"]["d_last"],
            }
        found.append(row)
    return found


def energy(rates: Rates) -> dict[str, Any]:
    """Simulate Figure 10: the energies of 10^9 vectors, with watts fitted to those of the paper."""
    shapes = {
        "host, 1 drive": (1, "host"),
        "host, 8 drives": (8, "host"),
        "hybrid, 8": (8, "hybrid"),
        "hybrid, 24": (24, "hybrid"),
    }
    seconds = {
        name: run(crew(rates, n, kind), 1e9, PIECES, 1)["seconds"] for name, (n, kind) in shapes.items()
    }
    watts = fit_watts({name: (seconds[name], *shapes[name]) for name in shapes})
    joules = {}
    for name, (n, kind) in shapes.items():
        powered = [_with_watts(worker, watts) for worker in crew(rates, n, kind)]
        done = simulate(plan_split(powered, costs(1e9, PIECES, 1)))
        joules[name] = energy_joules(powered, done, watts["drive"] * n)
    return {
        "watts": watts,
        "seconds": seconds,
        "kj": {name: value / 1000 for name, value in joules.items()},
        "paper_kj": ENERGY_KJ,
    }


def fit_watts(shapes: dict[str, tuple[float, int, str]]) -> dict[str, float]:
    """Return the watts of the host, a drive, and a drive's processors beside it that fit the paper's energies best.

    Least squares of relative errors, none negative.
    """
    rows = [[1.0, n, n * (kind == "hybrid")] for _, n, kind in shapes.values()]
    matrix = np.array(rows) * np.array([[s / (1000 * ENERGY_KJ[name])] for name, (s, _, _) in shapes.items()])
    found, _ = nnls(matrix, np.ones(len(rows)))
    return dict(zip(("host", "drive", "processors"), found.tolist(), strict=True))


def _with_watts(worker: Worker, watts: dict[str, float]) -> Worker:
    return replace(worker, watts=watts["host" if worker.name == "host" else "processors"])
