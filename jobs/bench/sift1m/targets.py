"""The headline figures of a record, each with the target it is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GIB = 2**30
MIB = 2**20
#: A unit of its own: so many times the other side's.
TIMES = "x"


@dataclass(frozen=True)
class Target:
    """One figure.

    Attributes
    ----------
    what : str
    part : str
        Part of the record it is measured by.
    value : function from that part to a number or a figure with its interval, or None where it was not reached
    limit : float
    relation : {"<=", "<", ">=", ">"}
    unit : str
    """

    what: str
    part: str
    value: Callable[[dict[str, Any]], Any]
    limit: float
    relation: str
    unit: str = ""

    def figure(self, part: dict[str, Any]) -> dict[str, float | None] | None:
        """Return what was measured: {"value", "low", "high"}."""
        found = self.value(part)
        if found is None or isinstance(found, dict):
            return found
        return {"value": float(found), "low": None, "high": None}

    def met(self, value: float) -> bool:
        """Whether `value` satisfies the target."""
        return {
            "<=": value <= self.limit,
            "<": value < self.limit,
            ">=": value >= self.limit,
            ">": value > self.limit,
        }[self.relation]


def _peak_gib(build: dict[str, Any]) -> float:
    return float(build["indexmill"]["peak_bytes"]) / GIB


def _order_seconds(build: dict[str, Any]) -> float:
    return float(build["indexmill"]["stage_s"]["order"])


def _latency(recall: str, statistic: str) -> Target:
    name = {"mean": "mean", "p99": "P99"}[statistic]
    return Target(
        f"{name} latency at {recall}, one query at a time, indexmill / DiskANN", "latency",
        lambda part: part["ratio"][recall][statistic], 0.5, "<=", TIMES,
    )  # fmt: skip


TARGETS = (
    Target("queries a second at 0.95, indexmill / DiskANN", "qps", lambda p: p["ratio"]["0.95"], 2.5, ">=", TIMES),
    Target("queries a second at 0.98, indexmill / DiskANN", "qps", lambda p: p["ratio"]["0.98"], 2.5, ">=", TIMES),
    Target("page reads at 0.95, indexmill / DiskANN", "reads", lambda p: p["to_diskann"]["0.95"], 0.5, "<=", TIMES),
    *(_latency(recall, statistic) for recall in ("0.90", "0.95", "0.98") for statistic in ("mean", "p99")),
    Target("CPU time a query at 0.95", "cpu", lambda p: p["cpu_us"]["indexmill"]["0.95"], 350, "<=", "us"),
    Target("reads a second at the device's limit, search / fio", "device", lambda p: p["share"], 0.9, ">=", TIMES),
    Target(
        "memory of a C program, peak / (codes + entries + 64 MiB)", "memory", lambda p: p["to_allowed"], 1, "<=", TIMES
    ),
    Target(
        "page reads at 0.95, page search, star / identity", "reads",
        lambda p: p["star_to_identity"]["0.95"], 0.68, "<=", TIMES,
    ),
    Target("build time, indexmill / DiskANN", "build", lambda p: p["wall_ratio"], 0.8, "<=", TIMES),
    Target("build memory, peak", "build", _peak_gib, 4, "<=", "GiB"),
    Target("star packing + FFD, stage `order`", "build", _order_seconds, 20, "<=", "s"),
    Target(
        "distances at 0.95, same search on both graphs, indexmill / DiskANN", "quality",
        lambda p: p["distances_ratio"], 1.03, "<=", TIMES,
    ),
    Target("page compactness, float32", "compactness", lambda p: p["layout"]["page_compactness"], 0.5, ">"),
    Target("`import indexmill`", "startup", lambda p: p["import_s"], 0.5, "<", "s"),
    Target("`indexmill --help`", "startup", lambda p: p["help_s"], 0.5, "<", "s"),
)  # fmt: skip
