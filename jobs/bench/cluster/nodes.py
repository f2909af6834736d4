"""Processes of a cluster on this machine: an S3 server, and Ray nodes of one core, all on as many cores as nodes.

Nothing here imports Ray, and nothing is stopped by name: each node is a tree of processes that was started here.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from indexmill.jobs.bench.cluster.server import MOVED, url_of
from indexmill.jobs.bench.common.process import module
from indexmill.pipeline.mill.peak import child_pids
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE

BUCKET = "bench"
_TICKS = os.sysconf("SC_CLK_TCK")
_STORE_BYTES = 100 << 20
#: Seconds that a node gets to start, and to end.
_START_S, _END_S = 300.0, 20.0


def pinned(cores: int, command: list[str]) -> list[str]:
    """Return a command that runs on the first `cores` cores of this process."""
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    return ["taskset", "-c", ",".join(map(str, chosen)), *command]


def cpu_seconds(pid: int) -> float:
    """Return the processor time of one process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    return [pid, *(one for child in child_pids(pid) for one in tree(child))]


class Server:
    """The S3 server.

    Attributes
    ----------
    url : str
        Of a folder in an empty bucket.
    """

    def __init__(self, cores: int, log: Path) -> None:
        with open(log, "wb") as file:
            command = pinned(cores, module(sys.executable, "cluster.server", BUCKET))
            self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the S3 server did not start, see {log}")
        self._host = f"127.0.0.1:{line.strip()}"
        self.url = url_of(BUCKET, int(line))

    def moved(self) -> dict[str, int]:
        """Return requests, and bytes received and sent, so far."""
        with urllib.request.urlopen(f"http://{self._host}{MOVED}") as answer:
            found: dict[str, int] = json.load(answer)
        return found

    def cpu_s(self) -> float:
        """Return its processor time so far."""
        return cpu_seconds(self._child.pid)

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()


@dataclass
class Node:
    """A Ray node: the process of ``ray start --block``, and its descendants."""

    child: subprocess.Popen[bytes]
    #: Processor time of its daemons when it was ended.
    spent_s: float = 0.0

    def daemons_s(self) -> float:
        """Return the processor time of Ray's own processes, without workers, which are named ``ray::``."""
        return self.spent_s + sum(cpu_seconds(pid) for pid in tree(self.child.pid) if not _is_worker(pid))

    def lose(self) -> None:
        """End all its processes at once, as a machine that vanishes."""
        self.spent_s = self.daemons_s()
        for pid in tree(self.child.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it ended with its parent
        self.child.wait()

    def stop(self) -> None:
        """End it in order, and what is left of it by force."""
        self.child.terminate()
        try:
            self.child.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.lose()


@dataclass
class Cluster:
    """Nodes of one core that share the server alone; each has a mirror of its own."""

    folder: Path
    mirrors: Path
    cores: int
    memory: int
    port: int
    nodes: list[Node] = field(default_factory=list)
    _token: str = field(default_factory=lambda: secrets.token_hex(32))

    def environment(self, mirror: str) -> dict[str, str]:
        """Return the variables of a process that joins, with its own mirror."""
        door = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}
        return {**os.environ, **door, MIRROR_VARIABLE: str(self.mirrors / mirror)}

    def joining(self, command: list[str]) -> list[str]:
        """Return a command that joins the cluster, with a mirror of its own."""
        variables = self.environment("command").items() - os.environ.items()
        return ["env", *(f"{name}={value}" for name, value in sorted(variables)), *command]

    @property
    def address(self) -> str:
        """Where the command finds the cluster."""
        return f"127.0.0.1:{self.port}"

    def add(self) -> None:
        """Start a node, the first one as head, and wait until it has joined; it offers a resource ``node-NUMBER``."""
        number = len(self.nodes)
        head = ["--head", f"--port={self.port}", f"--temp-dir={self.folder}", "--include-dashboard=false"]
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", "--num-cpus=1",
            f'--resources={{"node-{number}": 1}}',
            f"--memory={self.memory}", f"--object-store-memory={_STORE_BYTES}",
            *([f"--address={self.address}"] if number else head),
        ]  # fmt: skip
        log = self.mirrors / f"node-{number}.log"
        with open(log, "wb") as file:
            child = subprocess.Popen(
                pinned(self.cores, command),
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment(f"node-{number}"),
            )
        self.nodes.append(Node(child))
        self._wait(child, log)

    def _wait(self, child: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + _START_S
        while b"Ray runtime started" not in log.read_bytes():
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a Ray node did not start, see {log}")
            time.sleep(0.2)

    def daemons_s(self) -> float:
        """Return the processor time of Ray's own processes on all nodes."""
        return sum(node.daemons_s() for node in self.nodes)


@contextmanager
def cluster(nodes: int, mirrors: Path, memory: int) -> Iterator[Cluster]:
    """Start a cluster of `nodes`, with files of Ray in a short folder of its own, which holds sockets."""
    with TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder), mirrors, nodes, memory, _free_port())
        try:
            for _ in range(nodes):
                made.add()
            yield made
        finally:
            for node in reversed(made.nodes):
                if node.child.poll() is None:
                    node.stop()


def _free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
        return port


def _is_worker(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::")
    except (FileNotFoundError, ProcessLookupError):
        return True
