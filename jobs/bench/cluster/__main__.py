"""Measure a build on one Ray node of one core and on two, which share nothing but an S3 server on loopback.

    python -m indexmill.jobs.bench.cluster --sift1m DIR --out DIR

Command, server and Ray run on the cores of the nodes: as many cores as nodes. Wall times are also told with the
processor time of the server and of Ray's own processes, divided by these cores, taken off: on a real cluster storage
has processors of its own. Where a node waits for the server, that takes off too little of two nodes' time.
Each build is planned first, on one core, with a profile of the server that was measured in the same way.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from indexmill.formats.device import DeviceProfile, Model, write_profile
from indexmill.formats.sources.source import open_source
from indexmill.jobs.bench.cluster.nodes import Cluster, Server, cluster, pinned
from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.process import indexmill, run_measured, told
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.job import Job
from indexmill.jobs.jobfile import resolve
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.rehearsal.compiled import compile_kernels
from indexmill.pipeline.urls.storage import Storage

#: Memory that Ray offers on a node.
NODE_MEMORY = 3 << 30
ROUNDS = 2
PARAMETERS: dict[str, Any] = {"builder": "partition"}
#: Bytes of the file, and number of small files, that the link to the server is measured by.
_LARGE, _SMALL = 64 << 20, 20
#: Share of a whole build after which a node is lost.
LOST_AT = 0.5


@dataclass(frozen=True)
class Space:
    """The run, with the jobs of its builds."""

    run: Run

    @property
    def profile(self) -> Path:
        """The profile of the server."""
        return self.run.out / "server.json"

    def job(self, nodes: int) -> Job:
        """Return the job of a build on so many nodes, whose memory its plan decides."""
        base = self.run.sets["sift1m"].base
        memory = f"{NODE_MEMORY >> 20}MiB"
        return Job(f"nodes-{nodes}", base, memory, 1, executor="ray", parameters=PARAMETERS)

    def plan(self, nodes: int) -> dict[str, Any]:
        """Plan the build on one core."""
        words = indexmill(
            "plan",
            self.job(nodes).write(self.run.out),
            nodes=nodes,
            node_memory=NODE_MEMORY,
            node_cores=1,
            storage=self.profile,
            json=True,
        )
        return told(pinned(1, words))

    def compile(self, plan: dict[str, Any], nodes: int) -> None:
        """Compile the kernels of a build."""
        spec = resolve(self.job(nodes).write(self.run.out), {"memory": plan["memory_bytes"]}, {})
        compile_kernels(spec, open_source(spec.input), Silent())

    def build(
        self, nodes: int, memory: int, meanwhile: Callable[[Cluster], None] | None = None
    ) -> dict[str, Any]:
        """Build on a cluster that is started for it.

        Parameters
        ----------
        meanwhile : callable, optional
            Run beside the build, in a thread.
        """
        out, job = self.run.out, self.job(nodes)
        places = out / f"{job.name}.places"
        shutil.rmtree(places, ignore_errors=True)
        places.mkdir()
        server = Server(nodes, places / "server.log")
        try:
            with cluster(nodes, places, NODE_MEMORY) as made:
                words = indexmill(
                    "build", job.write(out), memory=memory, work=server.url, ray_address=made.address, json=True
                )  # fmt: skip
                daemons, served = made.daemons_s(), server.cpu_s()
                aside = threading.Thread(target=meanwhile or _nothing, args=(made,))
                aside.start()
                usage = run_measured(made.joining(pinned(nodes, words)), places / "build.log")
                aside.join()
                daemons, served = made.daemons_s() - daemons, server.cpu_s() - served
                moved = server.moved()
        finally:
            server.close()
        index = job.index(out)
        found = {
            "wall_s": usage.wall_s,
            "net_s": usage.wall_s - (daemons + served) / nodes,
            "server_cpu_s": served,
            "ray_cpu_s": daemons,
            **moved,
            "memory_bytes": memory,
            "stage_s": ours.stage_seconds(index),
            "build_id": ours.manifest(index)["build_id"],
        }
        shutil.rmtree(places)
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}


def storage(space: Space) -> dict[str, Any]:
    """Measure the link to the server, from one core that both share, and write its profile."""
    folder = space.run.out / "link"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    server = Server(1, folder / "server.log")
    try:
        there, back = Storage(server.url, str(folder / "there")), Storage(server.url, str(folder / "back"))
        large, small = there.local("large"), there.local("small")
        large.write_bytes(os.urandom(_LARGE))
        small.write_bytes(b"x")

        def net(call: Callable[[], Any]) -> float:
            began, served = time.perf_counter(), server.cpu_s()
            call()
            return max(time.perf_counter() - began - (server.cpu_s() - served), 1e-4)

        before = server.moved()["requests"]
        small_s = net(lambda: _push(there, "small", _SMALL))
        request_s = small_s / (server.moved()["requests"] - before)
        writing, reading = net(lambda: there.push("large")), net(lambda: back.fetch("large"))
    finally:
        server.close()
    shutil.rmtree(folder)
    mb_per_s = 2 * _LARGE / 1e6 / (writing + reading)
    latency = [[0.0, request_s * 1e6], [1.0, request_s * 1e6]]
    model = Model(latency_us=latency, mb_per_s=mb_per_s)
    write_profile(space.profile, DeviceProfile(name="S3 server on loopback", model=model))
    return {"mb_per_s": mb_per_s, "request_ms": 1e3 * request_s}


def builds(space: Space) -> dict[str, Any]:
    """Plan and build on one node and on two, in turns."""
    planned = {name: space.plan(nodes) for name, nodes in (("one", 1), ("two", 2))}
    for name, nodes in (("one", 1), ("two", 2)):
        space.compile(planned[name], nodes)
    rounds: dict[str, list[dict[str, Any]]] = {"one": [], "two": []}
    for _ in range(ROUNDS):
        for name, nodes in (("one", 1), ("two", 2)):
            rounds[name].append(space.build(nodes, planned[name]["memory_bytes"]))
    found: dict[str, Any] = {
        name: {
            "wall_s": median(one["wall_s"] for one in made),
            "net_s": median(one["net_s"] for one in made),
            "planned_s": planned[name]["seconds"],
            "planned_read_bytes": planned[name]["read_bytes"],
            "cuts": planned[name]["cuts"],
            "planned_stages": {stage: row["seconds"] for stage, row in planned[name]["stages"].items()},
            "rounds": made,
        }
        for name, made in rounds.items()
    }
    for row in found.values():
        row["off"] = row["planned_s"] / row["net_s"] - 1
    ids = {one["build_id"] for made in rounds.values() for one in made}
    return {
        **found,
        "speedup": found["one"]["net_s"] / found["two"]["net_s"],
        "speedup_wall": found["one"]["wall_s"] / found["two"]["wall_s"],
        "worst_off": max(abs(row["off"]) for row in found.values()),
        "same_bytes": len(ids) == 1,
        "build_id": min(ids),
    }


def lost(space: Space) -> dict[str, Any]:
    """Build on two nodes, of which the second vanishes halfway; another one joins at once, with an empty mirror."""
    whole = space.run.earlier("builds")
    made = space.build(
        2, whole["two"]["rounds"][0]["memory_bytes"], partial(_lose, LOST_AT * whole["two"]["wall_s"])
    )
    return {
        **made,
        "lost_at_s": LOST_AT * whole["two"]["wall_s"],
        "more_s": made["net_s"] - whole["two"]["net_s"],
        "ratio": made["net_s"] / whole["two"]["net_s"],
        "same_bytes": made["build_id"] == whole["build_id"],
    }


def _push(there: Storage, name: str, times: int) -> None:
    for _ in range(times):
        there.push(name)


def _lose(after_s: float, made: Cluster) -> None:
    time.sleep(after_s)
    made.nodes[-1].lose()
    made.add()


def _nothing(made: Cluster) -> None:
    """Leave the cluster as it is."""


TARGETS = (
    Target("wall time on one node / on two", "builds.speedup_wall", ">=", 1.5, "x"),
    Target("time on one node / on two, server and Ray taken off", "builds.speedup", ">=", 1.7, "x"),
    Target("plans of both, off by at most", "builds.worst_off", "<=", 0.25),
    Target("the same bytes on one node and on two (1: yes)", "builds.same_bytes|int", ">=", 1),
    Target("time with a node lost halfway / with none lost", "lost.ratio", "<=", 1.5, "x"),
    Target("the same bytes with a node lost (1: yes)", "lost.same_bytes|int", ">=", 1),
)

BENCHMARK = Benchmark[Space](
    "cluster",
    {"storage": storage, "builds": builds, "lost": lost},
    TARGETS,
    space=Space,
    parameters={**PARAMETERS, "node_memory_bytes": NODE_MEMORY, "node_cores": 1, "rounds": ROUNDS},
    peers=("ray", "moto"),
)

if __name__ == "__main__":
    BENCHMARK.main()
