"""Parts *devices* and *interfaces*: searches from storage by its kind, by threads, and by the interface of its reads.

Part *devices* has the paper's drives simulated, each in several numbers behind an interface (Tables 2, 3 and 5), beside
memory and SRS (Figures 11 and 15), and some of them by two threads (Figure 16). Part *interfaces* has this machine's
disk: what a read costs the processor in a search, by the interface that the reader has (Table 3, Figure 12).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.formats.device import read_profile, write_profile
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.lsh.space import Searcher, Shape, Space
from indexmill.jobs.bench.lsh.storage import FEW_IN_FLIGHT
from indexmill.jobs.bench.lsh.tables import INFLIGHT
from indexmill.jobs.bench.lsh.tune import Row
from indexmill.pipeline.devices import profile_path

NAME, K = "sift1m", 1
ROUNDS = 5
#: Processor time of a read by interface, in microseconds, and the drives behind it: profile and number (the paper's
#: Tables 3 and 5).
INTERFACES = {
    "io_uring": (1.0, (("cssd", 1), ("cssd", 2), ("cssd", 4), ("cssd", 8), ("essd", 1), ("essd", 8))),
    "SPDK": (0.35, (("cssd", 1), ("cssd", 4), ("essd", 1), ("essd", 8))),
    "XLFDD": (0.05, (("xlfdd", 1), ("xlfdd", 12))),
}
#: Devices that several threads search.
BY_THREADS = ("cssd x 1, io_uring", "cssd x 4, io_uring", "xlfdd x 12, XLFDD")
#: Engines that read the disk past the page cache, which holds all that a mapped read asks for after the first round.
ENGINES = ("io_uring", "sqpoll", "pread")


def measure(space: Space) -> dict[str, Any]:
    """Search memory, SRS and each device in turns, a first round uncounted."""
    shape, index, candidates = _fastest(space)
    best = space.run.earlier(f"speed-{NAME}")[f"k{K}"]["tuned"]["srs"]["best"]
    made = _devices(space.out)
    with (
        Searcher(space.data(NAME), space.out / "devices.log") as ours,
        Searcher(space.data(NAME), space.out / "devices-srs.log") as srs,
    ):

        def search(engine: str, inflight: int = INFLIGHT, threads: int = 1) -> Row:
            opened = {"index": str(index), "engine": engine}
            setting = {"candidates": candidates, "threads": threads, "inflight": inflight}
            return ours.ask("lsh", opened, setting, K, "report")

        def device(name: str, threads: int = 1) -> Row:
            few = FEW_IN_FLIGHT if name.endswith("XLFDD") else INFLIGHT
            return search(f"simulated:{made[name]['profile']}", few, threads)

        def turn() -> dict[str, Any]:
            return {
                "srs": srs.ask("srs", {}, best, K, "report"),
                "memory": {str(t): search("memory", threads=t) for t in (1, THREADS)},
                "devices": {name: device(name) for name in made},
                "threads": {name: device(name, THREADS) for name in BY_THREADS},
            }

        rounds = [turn() for _ in range(ROUNDS + 1)][1:]
    found = {name: _told(one, name, rounds) for name, one in made.items()}
    gains = {
        name: [done["devices"][name]["us"] / done["threads"][name]["us"] for done in rounds]
        for name in BY_THREADS
    }
    gains["memory"] = [done["memory"]["1"]["us"] / done["memory"][str(THREADS)]["us"] for done in rounds]
    return {
        "k": K,
        "index": shape.name,
        "candidates": candidates,
        "threads": THREADS,
        "srs_us": over_rounds([done["srs"]["us"] for done in rounds]),
        "memory_us": over_rounds([done["memory"]["1"]["us"] for done in rounds]),
        "memory_to_srs": over_rounds([done["srs"]["us"] / done["memory"]["1"]["us"] for done in rounds]),
        "devices": found,
        "gains": {name: over_rounds(gain) for name, gain in gains.items()},
    }


def _fastest(space: Space) -> tuple[Shape, Path, int]:
    """Return the index that is fastest from storage, and its S."""
    shape, index, candidates = next(one[1:] for one in space.tuned(NAME, "storage") if one[0] == K)
    return shape, index, candidates


def _devices(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the profile of each device; return the facts of each."""
    made = {}
    for interface, (request_us, drives) in INTERFACES.items():
        for drive, n in drives:
            profile = read_profile(profile_path(drive))
            assert profile.model.iops is not None
            iops = n * profile.model.iops
            model = profile.model.model_copy(update={"iops": iops, "request_us": request_us})
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
    peers = {"srs": [done["srs"] for done in rounds], "memory": [done["memory"]["1"] for done in rounds]}
    return {
        **{key: value for key, value in device.items() if key != "profile"},
        "us": over_rounds([row["us"] for row in rows]),
        "reads_per_s": over_rounds(rates),
        "usage": over_rounds([rate / device["iops"] for rate in rates]),
        **{
            f"to_{who}": over_rounds([peer["us"] / row["us"] for peer, row in zip(others, rows, strict=True)])
            for who, others in peers.items()
        },
    }


def interfaces(space: Space) -> dict[str, Any]:
    """Return the processor time of a read by each interface, and its share of that of a query, from the disk."""
    shape, index, candidates = _fastest(space)
    with Searcher(space.data(NAME), space.out / "interfaces.log") as searcher:

        def search(engine: str) -> Row:
            opened = {"index": str(index), "engine": engine}
            setting = {"candidates": candidates, "threads": 1, "inflight": INFLIGHT}
            return searcher.ask("lsh", opened, setting, K, "report")

        rounds = [{name: search(name) for name in ("memory", *ENGINES)} for _ in range(ROUNDS + 1)][1:]
    reads = rounds[0]["memory"]["table_reads"] + rounds[0]["memory"]["block_reads"]
    found = {}
    for name in ENGINES:
        spent = [done[name]["cpu_us"] - done["memory"]["cpu_us"] for done in rounds]
        found[name] = {
            "us": over_rounds([done[name]["us"] for done in rounds]),
            "read_ns": over_rounds([1000 * us / reads for us in spent]),
            "share": over_rounds([us / done[name]["cpu_us"] for us, done in zip(spent, rounds, strict=True)]),
        }
    return {"k": K, "index": shape.name, "candidates": candidates, "reads": reads, "engines": found}
