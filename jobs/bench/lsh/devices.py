"""Parts *devices* and *interfaces*: searches from storage by its kind, by threads, and by the interface of its reads.

Part *devices* has the paper's drives simulated, each in several numbers behind an interface (Tables 2, 3 and 5), beside
memory and SRS (Figures 11 and 15), and some by two threads (Figure 16). Memory is searched twice: the index
that is fastest there, which is the baseline, and the one that the drives have. Part *interfaces* has this machine's
disk: what a read costs the processor in a search, by the interface that the reader has (Table 3, Figure 12).
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import mean
from typing import Any

from indexmill.formats.device import read_profile, write_profile
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.lsh.space import Searcher, Shape, Space
from indexmill.jobs.bench.lsh.storage import FEW_IN_FLIGHT, cold_rows
from indexmill.jobs.bench.lsh.tables import INFLIGHT
from indexmill.jobs.bench.lsh.tune import Row
from indexmill.pipeline.devices import profile_path

NAME, K = "sift1m", 1
ROUNDS = 5
#: Processor time of a read by interface, in microseconds, and the drives behind it: profile and number (the paper's
#: Tables 3 and 5). A half and a quarter of a drive, since a search takes about as many reads as one gives.
INTERFACES: dict[str, tuple[float, tuple[tuple[str, float], ...]]] = {
    "io_uring": (1.0, (*(("cssd", n) for n in (0.25, 0.5, 1, 2, 4, 8)), ("essd", 1), ("essd", 8))),
    "SPDK": (0.35, (("cssd", 1), ("cssd", 4), ("essd", 1), ("essd", 8))),
    "XLFDD": (0.05, (("xlfdd", 1), ("xlfdd", 12))),
}
#: Megabytes a second of a drive at most: four lanes of PCIe 3.0, which the paper's processor has; 8 GT/s a lane, 128 of
#: 130 bits. The paper tells no bandwidth of a drive, nor its lanes.
LINK_MB_S = 4 * 8000 / 8 * 128 / 130
#: Devices that several threads search.
BY_THREADS = ("cssd x 1, io_uring", "cssd x 4, io_uring", "xlfdd x 12, XLFDD")
#: Interfaces that read the disk past the page cache: engine of the reader, and whether its process may register buffers
#: with the kernel. Beside them `MAPPED`, one read after the other, opened anew on cold pages for every few queries.
ENGINES = {
    "io_uring": ("io_uring", True),
    "io_uring without registered buffers": ("io_uring", False),
    "sqpoll": ("sqpoll", True),
    "pread": ("pread", True),
}
MAPPED = "mmap"
#: Bytes that a process may lock if its buffers shall not be registered: enough for a ring, too few for its buffers.
_LOCKED_BYTES = 1 << 16


def measure(space: Space) -> dict[str, Any]:
    """Search memory, SRS and each device in turns, a first round uncounted."""
    shape, index, candidates = _fastest(space, "storage")
    base, base_index, base_candidates = _fastest(space, "memory")
    best = space.run.earlier(f"speed-{NAME}")[f"k{K}"]["tuned"]["srs"]["best"]
    made = _devices(space.out)
    with (
        Searcher(space.data(NAME), space.out / "devices.log") as ours,
        Searcher(space.data(NAME), space.out / "devices-memory.log") as held,
        Searcher(space.data(NAME), space.out / "devices-srs.log") as srs,
    ):

        def search(engine: str, inflight: int = INFLIGHT, threads: int = 1) -> Row:
            opened = {"index": str(index), "engine": engine}
            setting = {"candidates": candidates, "threads": threads, "inflight": inflight}
            return ours.ask("lsh", opened, setting, K, "report")

        def memory(threads: int) -> Row:
            opened = {"index": str(base_index), "engine": "memory"}
            setting = {"candidates": base_candidates, "threads": threads, "inflight": INFLIGHT}
            return held.ask("lsh", opened, setting, K, "report")

        def device(name: str, threads: int = 1) -> Row:
            few = FEW_IN_FLIGHT if name.endswith("XLFDD") else INFLIGHT
            return search(f"simulated:{made[name]['profile']}", few, threads)

        def peer(threads: int) -> Row:
            return srs.ask("srs", {}, best | {"threads": threads}, K, "report")

        def turn() -> dict[str, Any]:
            return {
                "srs": {str(t): peer(t) for t in (1, THREADS)},
                "memory": {str(t): memory(t) for t in (1, THREADS)},
                "same": search("memory"),
                "devices": {name: device(name) for name in made},
                "threads": {name: device(name, THREADS) for name in BY_THREADS},
            }

        rounds = [turn() for _ in range(ROUNDS + 1)][1:]
    found = {name: _told(one, name, rounds) for name, one in made.items()}
    gains = {
        name: [done["devices"][name]["us"] / done["threads"][name]["us"] for done in rounds]
        for name in BY_THREADS
    }
    for one in ("memory", "srs"):
        gains[one] = [done[one]["1"]["us"] / done[one][str(THREADS)]["us"] for done in rounds]
    ahead = {
        name: [done["srs"][str(THREADS)]["us"] / done["threads"][name]["us"] for done in rounds]
        for name in BY_THREADS
    }
    return {
        "k": K,
        "index": shape.name,
        "candidates": candidates,
        "memory_index": base.name,
        "link_mb_s": LINK_MB_S,
        "threads": THREADS,
        "ratios": {
            "srs": rounds[0]["srs"]["1"]["ratio"],
            "memory": rounds[0]["memory"]["1"]["ratio"],
            "same": rounds[0]["same"]["ratio"],
        },
        "srs_us": over_rounds([done["srs"]["1"]["us"] for done in rounds]),
        "memory_us": over_rounds([done["memory"]["1"]["us"] for done in rounds]),
        "memory_to_srs": over_rounds([done["srs"]["1"]["us"] / done["memory"]["1"]["us"] for done in rounds]),
        "same_us": over_rounds([done["same"]["us"] for done in rounds]),
        "devices": found,
        "gains": {name: over_rounds(gain) for name, gain in gains.items()},
        "threads_to_srs": {name: over_rounds(ratios) for name, ratios in ahead.items()},
    }


def _fastest(space: Space, where: str) -> tuple[Shape, Path, int]:
    """Return the index that is fastest ``"memory"`` or ``"storage"``, and its S."""
    shape, index, candidates = next(one[1:] for one in space.tuned(NAME, where) if one[0] == K)
    return shape, index, candidates


def _devices(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the profile of each device; return the facts of each."""
    made = {}
    for interface, (request_us, drives) in INTERFACES.items():
        for drive, n in drives:
            profile = read_profile(profile_path(drive))
            assert profile.model.iops is not None
            iops = round(n * profile.model.iops)
            limits = {"iops": iops, "mb_per_s": n * LINK_MB_S, "request_us": request_us}
            model = profile.model.model_copy(update=limits)
            name = f"{drive} x {n}, {interface}"
            path = folder / f"{drive}-{n}-{interface}.json"
            write_profile(path, profile.model_copy(update={"name": name, "model": model}))
            made[name] = {
                "drives": n, "interface": interface, "iops": iops, "request_us": request_us, "profile": path
            }  # fmt: skip
    return made


def _told(device: dict[str, Any], name: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the record keeps of a device: times, speeds as ratios within a round, and how busy it was."""
    rows = [done["devices"][name] for done in rounds]
    reads = rows[0]["table_reads"] + rows[0]["block_reads"]
    rates = [1e6 * reads / row["us"] for row in rows]
    peers = {
        "srs": [done["srs"]["1"] for done in rounds],
        "memory": [done["memory"]["1"] for done in rounds],
        "same": [done["same"] for done in rounds],
    }
    return {
        **{key: value for key, value in device.items() if key != "profile"},
        "ratio": rows[0]["ratio"],
        "us": over_rounds([row["us"] for row in rows]),
        "reads_per_s": over_rounds(rates),
        "usage": over_rounds([rate / device["iops"] for rate in rates]),
        "latency_us": over_rounds([row["latency_us"] for row in rows]),
        "io_wait_us": over_rounds([row["io_wait_us"] for row in rows]),
        **{
            f"to_{who}": over_rounds([peer["us"] / row["us"] for peer, row in zip(others, rows, strict=True)])
            for who, others in peers.items()
        },
    }


def interfaces(space: Space) -> dict[str, Any]:
    """Return the processor time of a read by each interface, and its share of that of a query, from the disk."""
    shape, index, candidates = _fastest(space, "storage")
    data, search = space.data(NAME), {"candidates": candidates, "threads": 1}
    with (
        Searcher(data, space.out / "interfaces.log") as free,
        Searcher(data, space.out / "interfaces-limited.log", few_locked()) as limited,
    ):

        def ask(engine: str, may_register: bool = True, n_queries: int | None = None) -> Row:
            searcher = free if may_register else limited
            opened = {"index": str(index), "engine": engine}
            return searcher.ask(
                "lsh", opened, search | {"inflight": INFLIGHT}, K, "report", n_queries=n_queries
            )

        def turn() -> dict[str, Row]:
            """Search by each interface; the rows of mapped reads are those of few queries, in memory as well."""
            rows = {"memory": ask("memory")}
            cold, n_cold = cold_rows(free, index, search, K, rows["memory"])
            rows |= {f"memory, {MAPPED}": ask("memory", n_queries=n_cold), MAPPED: _mean(cold)}
            return rows | {name: ask(*how) for name, how in ENGINES.items()}

        rounds = [turn() for _ in range(ROUNDS + 1)][1:]
    found = {}
    for name in (*ENGINES, MAPPED):
        base = f"memory, {MAPPED}" if name == MAPPED else "memory"
        rows, bare = [done[name] for done in rounds], [done[base] for done in rounds]
        spent = [row["cpu_us"] - other["cpu_us"] for row, other in zip(rows, bare, strict=True)]
        reads = rows[0]["table_reads"] + rows[0]["block_reads"]
        found[name] = {
            "reads": reads,
            "ratio": rows[0]["ratio"],
            "note": rows[0]["opened"]["note"],
            "us": over_rounds([row["us"] for row in rows]),
            "read_ns": over_rounds([1000 * us / reads for us in spent]),
            "share": over_rounds([us / row["cpu_us"] for us, row in zip(spent, rows, strict=True)]),
        }
    return {"k": K, "index": shape.name, "candidates": candidates, "engines": found}


def few_locked() -> list[str]:
    """Return the command that runs another one with so little memory to lock that no buffers can be registered."""
    limit = ["prlimit", f"--memlock={_LOCKED_BYTES}:{_LOCKED_BYTES}"]
    if os.geteuid():
        return limit
    return [
        "setpriv",
        "--bounding-set=-ipc_lock",
        "--inh-caps=-ipc_lock",
        *limit,
    ]  # root has no limit otherwise


def _mean(rows: list[Row]) -> Row:
    """Return the mean costs, and ratio, of searches of as many queries each."""
    costs = ("us", "cpu_us", "table_reads", "block_reads", "ratio")
    return {"opened": rows[0]["opened"], **{name: mean(row[name] for row in rows) for name in costs}}
