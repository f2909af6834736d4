"""The headline figures of the benchmark of layouts, each with the target it is held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexmill.jobs.bench.sift1m.targets import TIMES, Target

#: Indexes that have targets; the text vectors, three to a page, are reported without.
HELD = ("sift1m-R32", "sift1m-R48")
#: Share of page reads by which a view may be off the index that was written.
MAX_OFF = 0.02


def _ratio(setting: str, name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda part: part["ratios"][setting][name]["0.95"]


def _reads(case: str) -> list[Target]:
    part, at = f"reads-{case}", "page reads at 0.95, page search"
    return [
        Target(f"{at}, star / identity, navigation entry, {case}", part,
               _ratio("page navigation", "star / identity"), 0.66, "<=", TIMES),
        Target(f"the same, stretch, {case}", part, _ratio("page navigation", "star / identity"), 0.60, "<=", TIMES),
        Target(f"{at}, star / identity, centroid entries, {case}", part,
               _ratio("page centroids", "star / identity"), 0.66, "<=", TIMES),
        Target(f"{at}, best order / star, navigation entry, {case}", part,
               _ratio("page navigation", "best / star"), 0.80, "<=", TIMES),
        Target(f"page reads of a view, off the written index by at most, {case}", part,
               lambda p: p["written"]["worst"], MAX_OFF, "<="),
    ]  # fmt: skip


def _fit(case: str) -> list[Target]:
    part = f"fit-{case}"
    return [
        Target(f"star packing + FFD, {case}", part, lambda p: p["orders"]["star"]["seconds"], 30, "<=", "s"),
        Target(f"time, Gorder / star, {case}", part, lambda p: p["gorder_to_star_s"], 10, ">=", TIMES),
        Target(f"memory, star / our Gorder, {case}", part, lambda p: p["star_to_gorder_bytes"], 0.1, "<=", TIMES),
        Target(f"memory, star / a Gorder that holds its graph, {case}", part,
               lambda p: p["star_to_gorder_held_bytes"], 0.1, "<=", TIMES),
        Target(f"memory of `indexmill layout --order star` / size of the index, {case}", f"command-{case}",
               lambda p: p["to_index"], 0.1, "<=", TIMES),
    ]  # fmt: skip


def _speed(policy: str) -> list[Target]:
    def rate(name: str) -> Callable[[dict[str, Any]], Any]:
        return lambda part: part[name][f"{part['best']} {policy}"]["0.95"]

    what = f"best order, {policy} search"
    return [
        Target(f"page reads at 0.95, {what} / DiskANN", "speed",
               lambda p: p["pages_ratio"][policy]["0.95"], 0.36, "<=", TIMES),
        Target(f"page reads at 0.98, {what} / DiskANN", "speed",
               lambda p: p["pages_ratio"][policy]["0.98"], 0.33, "<=", TIMES),
        Target(f"queries a second at 0.95, {what} / DiskANN", "speed", rate("ratio"), 3.5, ">=", TIMES),
        Target(f"or share of fio's reads a second at 0.95, {what}", "speed", rate("disk_share"), 0.9, ">="),
    ]  # fmt: skip


TARGETS = (
    *(target for case in HELD for target in _reads(case)),
    *(target for policy in ("page", "pipeline") for target in _speed(policy)),
    *(target for case in HELD for target in _fit(case)),
)
