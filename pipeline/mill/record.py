"""run.json: times, memory and machine of a run, which may differ between runs that write equal bytes."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from indexmill.reader.native import unit


def now() -> str:
    """Return the time as records have it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def run_record(
    started: str, seconds: Mapping[str, float], workers: int, executor: str, gpu: str | None,
    memory: int, peak_memory: int, **facts: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return run.json.

    Parameters
    ----------
    started : str
        From `now`.
    seconds : mapping
        Of each stage.
    gpu : str or None
        Name of the GPU in use.
    memory, peak_memory : int
        The budget, and the most anonymous memory of all processes, in bytes.
    facts
        Further keys.
    """
    return {
        "started": started,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "workers": workers,
        "executor": executor,
        "host": {
            "name": socket.gethostname(),
            "machine": platform.machine(),
            "system": platform.system(),
            "unit": {key: value for key, value in unit().items() if value is not None},
            **({} if gpu is None else {"gpu": gpu}),
        },
        "memory_budget_bytes": memory,
        "peak_memory_bytes": peak_memory,
        **facts,
    }
