"""The executor that a job names: threads of this process, or a Ray cluster."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from indexmill.formats.errors import ConfigError
from indexmill.pipeline.execution.local import Executor, LocalExecutor


def make_executor(
    name: str,
    workers: int,
    ray_address: str | None = None,
    memory: int | None = None,
    warm_up: Callable[[], None] | None = None,
) -> Executor:
    """Return the executor called `name`, ``"local"`` or ``"ray"``.

    Parameters
    ----------
    ray_address, memory, warm_up
        See `RayExecutor`; the local executor ignores them.

    Raises
    ------
    ConfigError
        If `name` is unknown, or Ray is not installed.
    """
    if name == "local":
        return LocalExecutor(workers)
    if name == "ray":
        from indexmill.pipeline.execution.ray import RayExecutor  # Ray is an extra

        return RayExecutor(workers, ray_address, memory, warm_up)
    raise ConfigError(f"executor: {name!r} is unknown; choose local or ray")


class Nodes(NamedTuple):
    """Nodes of a running cluster that have equally many cores.

    Attributes
    ----------
    n, cores : int
        Nodes, and cores of each.
    memory : int
        Bytes that Ray offers on the one that offers least.
    others : int
        Further nodes with cores, of other numbers.
    """

    n: int
    cores: int
    memory: int
    others: int


def names_cluster(ray_address: str | None) -> bool:
    """Whether a running Ray cluster is named by `ray_address` or ``RAY_ADDRESS``; ``local`` would start one."""
    return (ray_address or os.environ.get("RAY_ADDRESS") or "local") != "local"


def running_nodes(ray_address: str | None) -> Nodes:
    """Return the nodes of a running Ray cluster: of those with equally many cores, the ones that have most together.

    Raises
    ------
    ConfigError
        If no cluster is named by `ray_address` or ``RAY_ADDRESS``, or it cannot be used.
    """
    if not names_cluster(ray_address):
        raise ConfigError(
            "executor: no running Ray cluster is named. Name one with --ray-address or RAY_ADDRESS, or state one with "
            "--nodes"
        )
    from indexmill.pipeline.execution.ray import RayExecutor  # Ray is an extra

    executor = RayExecutor(1, ray_address)
    try:
        offers = list(executor.offers().values())
    except ConfigError as error:
        raise ConfigError(
            f"{error}; or state a cluster with --nodes, or plan one machine with --executor local"
        ) from None
    finally:
        executor.close()
    counts = Counter(cores for offer in offers if (cores := int(offer.get("CPU", 0))))
    if not counts:
        raise ConfigError("ray_address: no node of the cluster has a CPU; see ray status")
    cores = max(counts, key=lambda cores: (cores * counts[cores], cores))
    memory = min(int(offer.get("memory", 0)) for offer in offers if int(offer.get("CPU", 0)) == cores)
    return Nodes(counts[cores], cores, memory, counts.total() - counts[cores])
