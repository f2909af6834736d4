"""The headline figures of the benchmark of hash tables, each with the target it is held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexmill.jobs.bench.lsh.storage import DEPTH
from indexmill.jobs.bench.lsh.tune import KS
from indexmill.jobs.bench.sift1m.targets import TIMES, Target

_MILLION = 1e6
_SET = "sift1m"


def _of(k: int, *names: str) -> Callable[[dict[str, Any]], Any]:
    """Return the figure under `names` at a k; None where the ratio was not reached."""

    def figure(part: dict[str, Any]) -> Any:
        found: Any = part.get(f"k{k}")
        for name in names:
            found = None if found is None else found.get(name)
        return found

    return figure


def _at(k: int) -> tuple[Target, ...]:
    of = f"sift1m, k = {k}"
    return (
        Target(f"speed in memory / SRS, {of}", f"speed-{_SET}", _of(k, "ratios", "memory / srs"), 10, ">=", TIMES),
        Target(f"speed from storage, share of Equation 7's, {of}", "storage", _of(k, "to_model"), 0.8, ">="),
        Target(f"speed on the simulated XLFDD / in memory, {of}", "simulated", _of(k, "ratio"), 0.95, ">=", TIMES),
        Target(f"speed of io_uring / mmap, share of the disk's at {DEPTH} / at 1, {of}", "storage",
               _of(k, "async_to_disk"), 0.8, ">="),
    )  # fmt: skip


TARGETS = (
    *(target for k in KS for target in _at(k)),
    Target("exponent of query time over n, k = 1", "growth", lambda p: p.get("lsh_exponent"), 0.7, "<="),
    Target("insertions a second, two workers", "build", lambda p: p["per_s"] / _MILLION, 5, ">=", "million"),
)
