"""A Ray cluster of three nodes on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from indexmill.pipeline.execution.ray import RayExecutor
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE

STORE = 100 << 20


class Three:
    """A head with one CPU, a node with two, and a node with one that declares a quarter of the speed.

    The last two offer the resources ``drive-0`` and ``drive-1``.

    Attributes
    ----------
    executor : RayExecutor
        Connects this process again where a test closed it.
    options : dict
        Of builds and joins that run here.
    """

    def __init__(self, mirrors: Path) -> None:
        self.mirrors = mirrors
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "include_dashboard": False,
                "object_store_memory": STORE,
                "env_vars": self.mirror(),
                "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 2},
            },
        )
        self.options: dict[str, Any] = {"executor": "ray", "ray_address": self.cluster.address}
        self.executor = RayExecutor(4, address=self.cluster.address)
        self.executor.share(
            0
        )  # connects to the head before others join: losing one of them must not end the driver
        self.add()
        self.slow = self.cluster.add_node(
            num_cpus=1,
            object_store_memory=STORE,
            resources={"indexmill_rate": 25, "drive-1": 1},
            env_vars=self.mirror(),
        ).node_id

    def add(self) -> None:
        self.victim = self.cluster.add_node(
            num_cpus=2, object_store_memory=STORE, resources={"drive-0": 1}, env_vars=self.mirror()
        )

    def mirror(self) -> dict[str, str]:
        """Say where a node keeps its files, each in a place of its own."""
        return {MIRROR_VARIABLE: tempfile.mkdtemp(dir=self.mirrors)}

    def lose(self) -> None:
        self.cluster.remove_node(self.victim, allow_graceful=False)

    def close(self) -> None:
        self.executor.close()
        self.cluster.shutdown()


@contextmanager
def three_nodes(mirrors: Path) -> Iterator[Three]:
    """Start the cluster in a directory of its own: other programs must not take it for theirs."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray") as folder:
        patch.setenv("RAY_TMPDIR", folder)  # short: it holds sockets
        cluster = Three(mirrors)
        try:
            yield cluster
        finally:
            cluster.close()
