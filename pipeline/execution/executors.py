"""The executor that a job names: threads of this process, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable

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
