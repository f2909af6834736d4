"""The processes of the benchmark of a cluster: its S3 server, and nodes that are lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.jobs.bench.cluster.nodes import Cluster, Node, Server, pinned, tree
from indexmill.pipeline.urls.storage import Storage

MIB = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(1, tmp_path / "server.log")
    yield made
    made.close()


def test_the_server_counts_what_passes_through_it(server: Server, tmp_path: Path) -> None:
    there, back = (Storage(server.url, str(tmp_path / name)) for name in ("there", "back"))
    there.local("file").write_bytes(os.urandom(3 * MIB))
    there.push("file")
    assert server.moved()["received_bytes"] == pytest.approx(3 * MIB, rel=0.05)
    sent = server.moved()["sent_bytes"]
    assert back.fetch("file").read_bytes() == there.local("file").read_bytes()
    assert server.moved()["sent_bytes"] - sent == pytest.approx(3 * MIB, rel=0.05)
    assert server.moved()["requests"] >= 2
    assert server.cpu_s() > 0


def test_a_node_is_lost_with_all_that_it_started() -> None:
    script = (
        "import subprocess, sys, time\n"
        "while time.process_time() < 0.1: pass\n"  # some ticks of the clock that counts processor time
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "time.sleep(60)"
    )
    child = subprocess.Popen(pinned(1, [sys.executable, "-c", script]))
    deadline = time.monotonic() + 30
    while len(tree(child.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    processes, node = tree(child.pid), Node(child)
    assert len(processes) == 2
    node.lose()
    assert node.daemons_s() == node.spent_s > 0
    deadline = time.monotonic() + 30
    while any(map(runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, processes))


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_processes_of_nodes_share_a_token_and_no_mirror(tmp_path: Path) -> None:
    made = Cluster(tmp_path, tmp_path, 2, 1 << 30, 4321)
    one, other = made.environment("node-0"), made.environment("node-1")
    assert made.address == "127.0.0.1:4321"
    assert one["RAY_AUTH_TOKEN"] == other["RAY_AUTH_TOKEN"]
    assert one["INDEXMILL_MIRROR"] != other["INDEXMILL_MIRROR"]
    assert len(Cluster(tmp_path, tmp_path, 2, 1, 1).environment("x")["RAY_AUTH_TOKEN"]) == 64
