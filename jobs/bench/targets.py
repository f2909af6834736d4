"""The headline figures of a record, each with the target it is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GIB = 2**30


@dataclass(frozen=True)
class Target:
    """One figure.

    Attributes
    ----------
    what : str
    part : str
        Part of the record it is measured by.
    value : function from that part to a number, or None where it was not reached
    limit : float
    relation : {"<=", "<", ">=", ">"}
    unit : str
        Printed after the number.
    """

    what: str
    part: str
    value: Callable[[dict[str, Any]], float | None]
    limit: float
    relation: str
    unit: str = ""

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


TARGETS = (
    Target("build time, indexmill / DiskANN", "build", lambda p: p["wall_ratio"], 0.8, "<=", "x"),
    Target("build memory, peak", "build", _peak_gib, 4, "<=", " GiB"),
    Target("star packing + FFD, stage `order`", "build", _order_seconds, 20, "<=", " s"),
    Target(
        "graph: distances, indexmill / DiskANN", "quality", lambda p: p["distances_ratio"], 1.03, "<=", "x"
    ),
    Target(
        "page reads, star / identity, page search", "reads", lambda p: p["star_to_identity"], 0.68, "<=", "x"
    ),
    Target("queries a second, indexmill / DiskANN", "qps", lambda p: p["qps_ratio"], 1.3, ">=", "x"),
    Target("page compactness, float32", "compactness", lambda p: p["layout"]["page_compactness"], 0.5, ">"),
    Target("`import indexmill`", "startup", lambda p: p["import_s"], 0.5, "<", " s"),
    Target("`indexmill --help`", "startup", lambda p: p["help_s"], 0.5, "<", " s"),
)
