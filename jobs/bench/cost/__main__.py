"""Hold the cost model against measurement: queries a second as `indexmill plan` predicts them, and as they are.

Part *local* reads through io_uring on the device that the indexes lie on. Every round measures the device, predicts,
and searches each index at once, so that what else the machine does falls on all of it alike. Part *simulated* does
the same with the shipped profiles. The simulation itself takes processor time for each read, checksums among it. To
find out how much, a device without latency, limits or requests is simulated first: its processor time beyond that of
computing is added to each request. Where it takes less than computing does, because it fetches into the caches what a
mapped file does not, the lesser time is used for computing. So part *simulated* tests only the device's side of the
model, part *local* both sides.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from indexmill.formats.device import DeviceProfile, Model, read_profile, write_profile
from indexmill.jobs.bench.common.benchmark import Benchmark, Run
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.devices.measure import measure_device, native_measurer, open_target
from indexmill.jobs.kinds.opening import load_manifest
from indexmill.jobs.kinds.registry import KINDS
from indexmill.pipeline.cost.plan import plan_device
from indexmill.pipeline.cost.query import QueryCost
from indexmill.pipeline.devices import profile_path
from indexmill.pipeline.mill.progress import Silent
from indexmill.reader.choices import DEFAULT_INFLIGHT

if TYPE_CHECKING:
    from indexmill.jobs.search.results import AnyIndex

K, THREADS, ROUNDS, QUERIES = 10, 1, 7, 1000
#: Seconds of each of a round's measurements of the device, and of a search at least.
DEVICE_SECONDS, SEARCH_SECONDS = 0.25, 1.0
SIMULATED = ("cssd", "cssd4", "essd", "xlfdd")
#: Of this thread: nanoseconds that it ran, and that it waited for a core. Linux only.
SCHEDULED = Path("/proc/thread-self/schedstat")
#: Share by which a prediction may differ from the measurement.
WITHIN = 0.2
_MEDIANS = ("predicted_qps", "measured_qps", "ratio", "cpu_predicted_us", "cpu_measured_us", "waited_share")


@dataclass(frozen=True)
class Case:
    """An index, how it is searched, and the queries."""

    name: str
    path: Path
    kind: str
    queries: NDArray[Any]
    options: dict[str, Any]

    def cost(self) -> QueryCost:
        """Measure a query in memory."""
        return KINDS[self.kind].query_cost(self.path, self.queries, K, self.options)

    def open(self, engine: str) -> AnyIndex:
        """Open the index."""
        return KINDS[self.kind].open_index(self.path, engine)

    def largest(self) -> Path:
        """Return the largest of the files that searches read from."""
        return max((path for path in self.path.glob("*.imx") if path.name != "vectors.imx"), key=_size)


@dataclass(frozen=True)
class Space:
    """Cases, and the folder for device profiles."""

    cases: list[Case]
    out: Path


def _case(path: Path, queries: NDArray[Any], list_size: int, nprobe: int) -> Case:
    kind = load_manifest(path)["kind"]
    options = {"graph": {"L": list_size}, "lsh": {}, "ivf": {"nprobe": nprobe}}[kind]
    return Case(path.name, path.resolve(), kind, queries, options)


def _size(path: Path) -> int:
    return path.stat().st_size


def _about(case: Case) -> dict[str, Any]:
    known = load_manifest(case.path, (case.kind,))["input"]
    return {"name": case.name, "kind": case.kind} | {key: known[key] for key in ("n_vectors", "dim", "dtype")}


def local(space: Space) -> dict[str, Any]:
    """Predict and measure on this machine's device."""
    rounds: list[list[dict[str, Any]]] = [[] for _ in space.cases]
    opened = [case.open("io_uring") for case in space.cases]
    for number in range(ROUNDS):
        for case, index, mine in zip(space.cases, opened, rounds, strict=True):
            with open_target(case.largest(), 0, 1, Silent()) as target:
                profile = measure_device(
                    target, native_measurer(), Silent(), DEVICE_SECONDS, seed=1 + 100 * number
                ).profile
            write_profile(space.out / f"{case.name}-device.json", profile)
            mine.append(_compared(case, index, case.cost(), profile))
    return {case.name: _summary(mine) for case, mine in zip(space.cases, rounds, strict=True)}


def simulated(space: Space) -> dict[str, Any]:
    """Predict and measure simulations of the shipped profiles."""
    free = space.out / "free.json"
    model = Model(latency_us=[[0.0, 0.0], [1.0, 0.0]], iops=None, mb_per_s=None)
    write_profile(free, DeviceProfile(name="no latency, no limit", model=model))
    made: dict[str, Any] = {}
    for case in space.cases:
        engines = [case.open(f"simulated:{path}") for path in (free, *map(profile_path, SIMULATED))]
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in SIMULATED}
        for _ in range(ROUNDS):
            cost = case.cost()
            _, cpu, _ = _searched(case, engines[0])
            cost = replace(cost, compute_s=min(cost.compute_s, cpu))
            own_us = (cpu - cost.compute_s) / cost.reads * 1e6
            for name, index in zip(SIMULATED, engines[1:], strict=True):
                profile = read_profile(profile_path(name))
                stand_in = replace_request(profile, own_us + (profile.model.request_us or 0.0))
                rounds[name].append(_compared(case, index, cost, stand_in) | {"simulation_us": own_us})
        made[case.name] = {name: _summary(mine) for name, mine in rounds.items()}
    return made


def replace_request(profile: DeviceProfile, request_us: float) -> DeviceProfile:
    """Return the profile of a device whose reads take `request_us` microseconds of processor time."""
    return profile.model_copy(update={"model": profile.model.model_copy(update={"request_us": request_us})})


def _compared(case: Case, index: AnyIndex, cost: QueryCost, profile: DeviceProfile) -> dict[str, Any]:
    plan = plan_device(profile.name, cost, profile, THREADS, DEFAULT_INFLIGHT)
    seconds, cpu, waited = _searched(case, index)
    return {
        "predicted_qps": plan.qps,
        "measured_qps": 1 / seconds,
        "ratio": plan.qps * seconds,
        "binds": plan.binds,
        "iops": plan.iops,
        "request_us": plan.request_us,
        "depth": plan.depth,
        "cpu_predicted_us": 1e6 * cost.compute_s + cost.reads * plan.request_us,
        "cpu_measured_us": 1e6 * cpu,
        "waited_share": waited,
        "cost": cost.facts(),
    }


def _searched(case: Case, index: AnyIndex) -> tuple[float, float, float]:
    """Search all queries over and over; return seconds of a query by the clock and of processor time.

    The third value is the share of the time in which this thread, which searches, waited for a core that something
    else had: where it is more than a few percent the clock tells of that, not of the search.
    """
    search = partial(index.search, case.queries, K, threads=THREADS, **case.options)
    search()
    began, cpu, waited, count = time.perf_counter(), time.process_time(), _waited_seconds(), 0
    while time.perf_counter() - began < SEARCH_SECONDS:
        search()
        count += len(case.queries)
    elapsed, waited = time.perf_counter() - began, _waited_seconds() - waited
    return elapsed / count, (time.process_time() - cpu) / count, waited / elapsed


def _waited_seconds() -> float:
    """Seconds that this thread has waited for a core so far (proc(5), schedstat)."""
    return int(SCHEDULED.read_text().split()[1]) / 1e9


def _summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: median(one[name] for one in rounds) for name in _MEDIANS} | {
        "binds": max((one["binds"] for one in rounds), key=[one["binds"] for one in rounds].count),
        "rounds": rounds,
    }


def _space(run: Run) -> Space:
    given = run.options
    queries = read_bin(given.queries)[:QUERIES]
    cases = [_case(path, queries, given.search_list_size, given.nprobe) for path in given.index]
    return Space(cases, run.out)


BENCHMARK = Benchmark[Space](
    "cost",
    {"local": local, "simulated": simulated},
    sets=(),
    space=_space,
    data=lambda space: [_about(case) for case in space.cases],
    parameters={"k": K, "threads": THREADS, "inflight": DEFAULT_INFLIGHT, "rounds": ROUNDS, "within": WITHIN},
    pages=(),
    options={
        "--index": {"type": Path, "action": "append", "required": True, "help": "of any kind; repeats"},
        "--queries": {"type": Path, "required": True, "help": "a .u8bin file, of which the first are taken"},
        "--search-list-size": {"type": int, "default": 50, "help": "L of searches of graphs"},
        "--nprobe": {"type": int, "default": 16, "help": "lists of searches of kind ivf"},
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
