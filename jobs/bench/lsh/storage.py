"""Part *storage*: hash tables from the disk and from a simulated device, held against Equations 6 and 7 of the paper.

``T_async = max(T_compute + N T_request, N T_read)``: T_compute is a query's time with all tables in memory, N its
reads, T_read the time the disk takes for a read with many in flight, T_request what a core spends on one. The disk is
asked by fio, T_request measured by the reader's bare reads of the same file, all in each round.

Part *synchronous* holds reads in flight against one after the other, on a simulated cSSD x 4 (section 6.5). The device
that is waited for has the same latency, and starts no read before the one before it is complete.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import mean
from typing import Any

from indexmill.formats.device import DeviceProfile, read_profile, write_profile
from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.serving import measured
from indexmill.jobs.bench.lsh.space import STORAGE, Searcher, Space
from indexmill.jobs.bench.lsh.tables import INFLIGHT
from indexmill.jobs.bench.lsh.tune import Row
from indexmill.jobs.bench.sift1m.device_limit import InFlight
from indexmill.jobs.devices.machine import REPOSITORY
from indexmill.pipeline.cost.device import latency_seconds
from indexmill.pipeline.cost.model import async_seconds, sync_seconds
from indexmill.pipeline.devices import profile_path

NAME = "sift1m"
ROUNDS = 5
#: Of the simulated device, which takes a second: with few of them a noisy machine decides.
SIMULATED_ROUNDS = 25
SECONDS = 2.0
#: Reads in flight of the paper's Table 2.
DEPTH = 128
#: Queries that a thread interleaves where reads take a few microseconds: more only push each other out of its cache.
FEW_IN_FLIGHT = 4
#: Device that the paper's lightest interface drives.
PROFILE = REPOSITORY / "pipeline" / "devices" / "xlfdd.json"
#: Share of the pages of buckets, and of those of pointers, that the queries of a cold search may touch, so that few are
#: met twice; queries at least; cold searches, of other queries each; how often they are searched with reads in flight.
_COLD_SHARE, _FEWEST, _COLD_SEARCHES, _TIMES = 0.1, 3, 6, 20
_FIGURES = ("to_model", "sync_to_model", "async_to_sync", "async_to_disk", "in_flight")


def measure(space: Space) -> dict[str, Any]:
    """Measure memory, io_uring, mmap one read after the other on cold pages, and the bare disk, in turns."""
    found: dict[str, Any] = {"inflight": INFLIGHT, "depth": DEPTH}
    with Searcher(space.data(NAME), space.out / "storage.log") as searcher:
        for k, shape, index, candidates in space.tuned(NAME, "storage"):
            rounds = [_round(searcher, index, candidates, k) for _ in range(ROUNDS)]
            figures = {name: over_rounds([done[name] for done in rounds]) for name in _FIGURES}
            found[f"k{k}"] = {"index": shape.name, "candidates": candidates, "rounds": rounds, **figures}
    return found


def _round(searcher: Searcher, index: Path, candidates: int, k: int) -> dict[str, Any]:
    search = {"candidates": candidates, "threads": 1}

    def ask(engine: str, search: dict[str, Any], **others: Any) -> Row:
        opened = {"index": str(index), "engine": engine}
        return searcher.ask("lsh", opened, search, k, "report", **others)

    memory = ask("memory", search | {"inflight": INFLIGHT})
    file = index / "buckets.imx"
    with InFlight(file) as queue:
        stored = ask(STORAGE, search | {"inflight": INFLIGHT})
    reads = _reads(stored)
    n_reported = searcher.halves["report"][1] - searcher.halves["report"][0]
    waited, n_cold = cold_rows(searcher, index, search, k, stored)
    sync = {"us": mean(row["us"] for row in waited), "reads": mean(_reads(row) for row in waited)}
    # Direct reads know no page cache: the same queries over and over, so that many are in flight.
    same = ask(STORAGE, search | {"inflight": INFLIGHT}, n_queries=n_cold, times=_TIMES)
    request_us = request_time(file)
    many, one = (disk.read_rate(file, depth, SECONDS) for depth in (DEPTH, 1))
    # All in microseconds, which the equations do not ask about.
    model = async_seconds(memory["us"], reads, request_us, 1e6 / many["reads_per_s"])
    sync_model = sync_seconds(memory["us"], sync["reads"], request_us, 1e6 / one["reads_per_s"])
    seconds = stored["us"] * n_reported / 1e6
    return {
        "memory_us": memory["us"],
        "storage_us": stored["us"],
        "storage_cpu_us": stored["cpu_us"],
        "reads": reads,
        "request_us": request_us,
        "disk": many,
        "disk_one": one,
        "in_flight": None if queue.summed_ms is None else queue.summed_ms / (1000 * seconds),
        "model_us": model,
        "to_model": model / stored["us"],
        "cold_queries": n_cold,
        "sync_us": sync["us"],
        "sync_model_us": sync_model,
        "sync_to_model": sync_model / sync["us"],
        "async_to_sync": sync["us"] / same["us"],
        "async_to_disk": sync["us"] / same["us"] / (many["reads_per_s"] / one["reads_per_s"]),
    }


def cold_rows(
    searcher: Searcher, index: Path, search: dict[str, Any], k: int, row: Row
) -> tuple[list[Row], int]:
    """Search a mapped index, one read after the other, on cold pages; return the rows, and how many queries they have.

    The index is opened anew for every few queries, the first ones of the reported half; `row` is the cost of a query.
    """
    first, last = searcher.halves["report"]
    few = min(cold_queries(index, row), (last - first) // _COLD_SEARCHES)
    opened = {"index": str(index), "engine": "mmap"}
    rows = [
        searcher.ask(
            "lsh", opened, search | {"inflight": 1}, k, "report", cold=True, skip=i * few, n_queries=few
        )
        for i in range(_COLD_SEARCHES)
    ]
    return rows, few * _COLD_SEARCHES


def cold_queries(index: Path, row: Row) -> int:
    """Return how many queries meet few pages twice, of pointers, which are fewer, or of blocks; `row` is their cost."""
    pages = {
        name: (index / f"{name}.imx").stat().st_size / disk.BLOCK_BYTES for name in ("tables", "buckets")
    }
    most = min(pages["tables"] / row["table_reads"], pages["buckets"] / row["block_reads"])
    return max(_FEWEST, int(_COLD_SHARE * most))


def _reads(row: Row) -> float:
    return float(row["table_reads"] + row["block_reads"])


def request_time(file: Path) -> float:
    """Return the processor time of a bare read by the reader, `DEPTH` in flight on one thread, in microseconds."""
    from indexmill.reader import native

    with measured() as cost:
        found = native.measure_device(os.fspath(file), disk.BLOCK_BYTES, DEPTH, 1, SECONDS, 1)
    return 1e6 * cost.cpu_s / float(found["reads"])


def simulated(space: Space) -> dict[str, Any]:
    """Search on a simulated device of the paper's fastest kind beside memory, in turns."""
    found: dict[str, Any] = {"profile": PROFILE.name}
    with (
        Searcher(space.data(NAME), space.out / "memory.log") as ours,
        Searcher(space.data(NAME), space.out / "simulated.log") as device,
    ):
        for k, _, path, candidates in space.tuned(NAME, "storage"):
            index = str(path)
            search = {"candidates": candidates, "threads": 1}
            rounds = []
            for _ in range(SIMULATED_ROUNDS + 1):
                held = {"index": index, "engine": "memory"}
                memory = ours.ask("lsh", held, search | {"inflight": INFLIGHT}, k, "report")
                opened = {"index": index, "engine": f"simulated:{PROFILE}"}
                there = device.ask("lsh", opened, search | {"inflight": FEW_IN_FLIGHT}, k, "report")
                rounds.append(
                    {"memory_us": memory["us"], "device_us": there["us"], "ratio": memory["us"] / there["us"]}
                )
            found[f"k{k}"] = {
                "rounds": rounds[1:],
                "ratio": over_rounds([one["ratio"] for one in rounds[1:]]),
            }
    return found


DEVICE = "cssd4"
SYNC_ROUNDS = 3
#: Queries of the search that waits for each read; the other one searches all of a half.
SYNC_QUERIES = 100


def synchronous(space: Space) -> dict[str, Any]:
    """Search the index that is fastest from storage both ways, in turns."""
    serial = space.out / f"{DEVICE}-one-by-one.json"
    write_profile(serial, one_by_one(read_profile(profile_path(DEVICE))))
    found: dict[str, Any] = {"device": DEVICE}
    with Searcher(space.data(NAME), space.out / "synchronous.log") as searcher:
        for k, shape, index, candidates in space.tuned(NAME, "storage"):
            rounds = [_both_ways(searcher, index, serial, candidates, k) for _ in range(SYNC_ROUNDS)]
            ratio = over_rounds([one["sync_us"] / one["async_us"] for one in rounds])
            found[f"k{k}"] = {"index": shape.name, "rounds": rounds, "ratio": ratio}
    return found


def one_by_one(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile of a device that starts a read when the one before it is complete."""
    model = profile.model.model_copy(update={"iops": 1 / latency_seconds(profile)})
    return profile.model_copy(update={"name": f"{profile.name}, one read at a time", "model": model})


def _both_ways(searcher: Searcher, index: Path, serial: Path, candidates: int, k: int) -> dict[str, float]:
    """Search with few queries one by one, then with all of them interleaved; one index is in memory at a time."""

    def ask(device: str, inflight: int, n_queries: int | None) -> float:
        opened = {"index": str(index), "engine": f"simulated:{device}"}
        search = {"candidates": candidates, "threads": 1, "inflight": inflight}
        return float(searcher.ask("lsh", opened, search, k, "report", n_queries=n_queries)["us"])

    device = str(profile_path(DEVICE))
    return {"sync_us": ask(str(serial), 1, SYNC_QUERIES), "async_us": ask(device, INFLIGHT, None)}
