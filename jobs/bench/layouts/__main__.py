"""Measure page layouts: what orders cost, the pages they read, and the best of them beside DiskANN.

    python -m indexmill.jobs.bench.layouts --sift1m DIR --text40k DIR --embed768 DIR --out DIR [--parts A,B] [--keep]

OUT may be a folder of the benchmark `sift1m`: its indexes in identity order and of DiskANN are used. What is missing
is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from indexmill.jobs.bench.common.benchmark import PAGE, Benchmark, Page, Part, Target
from indexmill.jobs.bench.common.parameters import ORDER, PQ_BYTES, THREADS
from indexmill.jobs.bench.layouts import fit, log, reads, speed, units, written
from indexmill.jobs.bench.layouts.cases import Case, Layouts, facts, make_space
from indexmill.jobs.bench.layouts.reads import POLICIES
from indexmill.jobs.bench.programs import diskann

CASES = {"sift1m-R32": (32, PQ_BYTES), "sift1m-R48": (48, PQ_BYTES), "text40k-R32": (32, 2 * PQ_BYTES)}
#: The index that is held against DiskANN's, which has as many neighbours.
AGAINST_DISKANN = "sift1m-R32"
#: An index of embeddings in the format that a build chooses by itself; the default order and logs are measured there.
BY_DEFAULT = "embed768"
#: All indexes, as `make_space` takes them.
SHAPES = {**CASES, BY_DEFAULT: None}
#: Indexes on which all orders have targets; the text vectors, three to a page, are reported without.
HELD = ("sift1m-R32", "sift1m-R48")
#: Indexes whose default order is held against star packing, and the most of its page reads.
LIMITS = {"sift1m-R32": 0.82, "sift1m-R48": 0.86, BY_DEFAULT: 1.0}
#: Indexes whose default order is weighed by logs.
WEIGHED = ("sift1m-R32", BY_DEFAULT, "text40k-R32")


def _targets(case: str) -> list[Target]:
    at, ratios = "page reads at 0.95, page search", f"reads_{case}.ratios".replace("-", "_")
    navigation, centroids = (f"{ratios}['page {entry}']" for entry in ("navigation", "centroids"))
    star = "['star / identity']['0.95']"
    return [
        Target(f"{at}, star / identity, navigation entry, {case}", navigation + star, "<=", 0.66, "x"),
        Target(f"the same, stretch, {case}", navigation + star, "<=", 0.60, "x"),
        Target(f"{at}, star / identity, centroid entries, {case}", centroids + star, "<=", 0.66, "x"),
        Target(
            f"page reads of a view, off the written index by at most, {case}",
            ratios.replace("ratios", "written.worst"), "<=", 0.02,
        ),
    ]  # fmt: skip


def _costs(case: str) -> list[Target]:
    of = case.replace("-", "_")
    held = f"memory, star / a Gorder that holds its graph, {case}"
    memory = f"memory of `indexmill layout --order star` / size of the index, {case}"
    return [
        Target(f"star packing + FFD, {case}", f"fit_{of}.orders.star.seconds", "<=", 30, "s"),
        Target(f"default order, {case}", f"fit_{of}.orders.{ORDER}.seconds", "<=", 15, "s"),
        Target(f"time, Gorder / star, {case}", f"fit_{of}.gorder_to_star_s", ">=", 10, "x"),
        Target(f"memory, star / our Gorder, {case}", f"fit_{of}.star_to_gorder_bytes", "<=", 0.1, "x"),
        Target(held, f"fit_{of}.star_to_gorder_held_bytes", "<=", 0.1, "x"),
        Target(memory, f"command_{of}.to_index", "<=", 0.1, "x"),
    ]  # fmt: skip


def _defaults(case: str) -> list[Target]:
    of = case.replace("-", "_")
    memory = f"memory that the default order adds / size of the index, {case}"
    return [
        *(
            Target(
                f"page reads at 0.95, {policy} search, default order / star, {case}",
                f"default_{of}.policies.{policy}.to_star['0.95']", "<=", LIMITS[case], "x",
            )
            for policy in POLICIES
        ),
        Target(memory, f"command_default_{of}.to_index", "<=", 0.15, "x"),
    ]  # fmt: skip


def _logs(case: str, policy: str) -> Target:
    what = (
        f"page reads at 0.95, {policy} search, weighed by a log of which a fifth repeats / unweighted, {case}"
    )
    figure = f"log_{case.replace('-', '_')}.shares['0.2'].policies.{policy}.to_order['0.95']"
    return Target(what, figure, "<=", 0.90, "x")


def _speed(policy: str) -> list[Target]:
    what, best = f"best order, {policy} search", f"[speed.best + ' {policy}']['0.95']"
    return [
        Target(
            f"page reads at 0.95, {what} / DiskANN", f"speed.pages_ratio.{policy}['0.95']", "<=", 0.33, "x"
        ),
        Target(
            f"page reads at 0.98, {what} / DiskANN", f"speed.pages_ratio.{policy}['0.98']", "<=", 0.33, "x"
        ),
        Target(f"queries a second at 0.95, {what} / DiskANN", f"speed.ratio{best}", ">=", 3.5, "x"),
        Target(
            f"or share of the disk's raw reads a second at 0.95, {what}", f"speed.disk_share{best}", ">=", 0.9
        ),
    ]


TARGETS = (
    *(target for case in HELD for target in _targets(case)),
    *(target for policy in POLICIES for target in _speed(policy)),
    *(target for case in HELD for target in _costs(case)),
    *(target for case in LIMITS for target in _defaults(case)),
    *(_logs(case, policy) for case in WEIGHED for policy in POLICIES),
)


def indexes(space: Layouts) -> dict[str, Any]:
    """Build the indexes in identity order that are not there."""
    for case in space.cases.values():
        case.ensure()
    return {"indexes": {name: facts(case) for name, case in space.cases.items()}}


def _each(
    what: str, measure: Callable[[Layouts, Case], dict[str, Any]], names: Iterable[str] = CASES
) -> dict[str, Part[Layouts]]:
    """Return a part for each index."""
    return {f"{what}-{name}": lambda space, name=name: measure(space, space.cases[name]) for name in names}  # type: ignore[misc]


def best_order(space: Layouts, case: str) -> str:
    """Return the order with the fewest page reads; the part *reads* tells it."""
    return str(space.run.earlier(f"reads-{case}")["best"])


BENCHMARK = Benchmark[Layouts](
    "layouts",
    {
        "indexes": indexes,
        **_each("fit", lambda space, case: fit.measure(case)),
        **_each("command", lambda space, case: fit.command(case, fit.STAR)),
        **_each("reads", lambda space, case: reads.measure(case)),
        **_each("units", lambda space, case: units.measure(case)),
        **_each("auto", lambda space, case: written.auto(case)),
        **_each("prune", lambda space, case: written.prune(case, best_order(space, case.name))),
        **_each("default", lambda space, case: reads.default(case), LIMITS),
        **_each("command-default", lambda space, case: fit.command(case, ORDER), LIMITS),
        **_each("log", lambda space, case: log.measure(case), WEIGHED),
        "speed": lambda space: speed.measure(
            space.cases[AGAINST_DISKANN], best_order(space, AGAINST_DISKANN)
        ),
    },
    TARGETS,
    sets=("sift1m", "text40k", "embed768"),
    space=lambda run: make_space(run, SHAPES),
    parameters={
        "threads": THREADS,
        "indexes": {
            **{name: {"R": r, "pq_bytes": b} for name, (r, b) in CASES.items()},
            BY_DEFAULT: {"format": "default"},
        },
    },
    peers=diskann.PACKAGES,
    pages=(
        Page("tables", PAGE, "layouts"),
        Page("guide", "docs/guides/layout.md", "layouts"),
        Page("log", "docs/guides/layout.md", "layouts-log"),
    ),
)

if __name__ == "__main__":
    BENCHMARK.main()
