"""Tables and targets of the benchmark of budgets."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.cells import figure, number, table
from indexmill.jobs.bench.sift1m.targets import GIB, MIB, TIMES, Target

MARKS = ("<!-- mill: begin -->", "<!-- mill: end -->")
_SETS = ("sift1m", "generated")


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`, which is kept in `source`."""
    return tables.render(record, source, "", _SECTIONS, TARGETS)


def _of_set(name: str, key: str) -> Any:
    return lambda part: part["sets"][name][key] if name in part["sets"] else None


def _per_set(what: str, part: str, key: str, limit: float, relation: str, unit: str) -> list[Target]:
    return [Target(f"{what}, {name}", part, _of_set(name, key), limit, relation, unit) for name in _SETS]


TARGETS = (
    Target("local intrinsic dimension, generated / sift1m, off 1 by", "data",
           lambda p: abs(p["ratio"]["lid"] - 1), 0.1, "<="),
    Target("relative contrast, generated / sift1m, off 1 by", "data",
           lambda p: abs(p["ratio"]["contrast"] - 1), 0.1, "<="),
    *_per_set("peak memory / budget", "budget", "to_budget", 1.05, "<=", TIMES),
    *_per_set("recall lost to the build in one piece", "budget", "points_lost", 0.5, "<=", "points"),
    *_per_set("peak scratch / (2 x input + 2 x output)", "budget", "to_scratch_bound", 1, "<=", TIMES),
    *_per_set("completed under the kernel's limit (1: yes)", "limit", "completed", 1, ">=", ""),
    Target("time in shards / in one piece, sift1m", "shards", lambda p: p["ratio"], 1.6, "<=", TIMES),
    Target("time with 1 worker / 2 workers, sift1m", "workers", lambda p: p["speedup"], 1.7, ">=", TIMES),
    Target("time on Ray without its start-up / local", "ray", lambda p: p["ratio"], 1.1, "<=", TIMES),
    Target("plan of peak memory, off by at most", "plan", lambda p: p["worst"]["peak_memory_bytes"], 0.15, "<="),
    Target("plan of peak scratch, off by at most", "plan", lambda p: p["worst"]["peak_scratch_bytes"], 0.05, "<="),
    Target("plan of time, off by at most", "plan", lambda p: p["worst"]["seconds"], 0.25, "<="),
)  # fmt: skip


def data(part: dict[str, Any], images: str) -> str:
    """How hard the sets are."""
    rows = [
        (
            f"{name}, {way}", number(found["n_vectors"]), number(found["n_queries"]),
            f"{found['lid']:.1f} ({found['lid_low']:.1f} to {found['lid_high']:.1f})",
            f"{found['contrast']:.2f} ({found['contrast_low']:.2f} to {found['contrast_high']:.2f})",
        )
        for name, both in part["sets"].items()
        for way, found in (("held-out queries", both["held_out"]), ("rows of its own", both["left_out"]))
    ]  # fmt: skip
    names = ("set, queries", "vectors", "queries", "local intrinsic dimension", "relative contrast")
    return "### Difficulty\n\nIn parentheses the 10th and 90th percentile over the queries.\n\n" + table(
        names, rows, "lrrrr"
    )


def oneshot(part: dict[str, Any], images: str) -> str:
    """Builds with enough memory."""
    return "### Builds in one piece\n\n" + _builds(part)


def budget(part: dict[str, Any], images: str) -> str:
    """Builds within a budget."""
    rows = [
        (
            name, f"{made['budget_bytes'] / MIB:.0f}", f"{made['to_budget']:.3f}", figure(made["points_lost"], 2),
            f"{made['to_scratch_bound']:.2f}",
        )
        for name, made in part["sets"].items()
    ]  # fmt: skip
    names = (
        "set",
        "budget MiB",
        "peak / budget",
        "points of recall lost",
        "scratch / bound",
    )
    return "### Builds within a budget\n\n" + _builds(part) + "\n\n" + table(names, rows, "lrrrr")


def limit(part: dict[str, Any], images: str) -> str:
    """Builds under the kernel's limit."""
    if part["reason"]:
        return f"### Builds under the kernel's limit\n\nNot measured: {part['reason']}."
    rows = [
        (
            name, f"{made['limit_bytes'] / MIB:.0f}", "yes" if made["completed"] else "**no**",
            "not told" if made["charged_bytes"] is None else f"{made['charged_bytes'] / MIB:.0f}", made["oom_kills"],
            {True: "yes", False: "**no**", None: ""}[made["same_bytes"]], number(made.get("wall_s")),
        )
        for name, made in part["sets"].items()
    ]  # fmt: skip
    names = ("set", "limit MiB", "completed", "charged MiB", "killed", "same bytes", "wall s")
    return (
        "### Builds under the kernel's limit\n\nThe limit is the budget and"
        f" {part['allowance_bytes'] / MIB:.0f} MiB for page cache.\n\n" + table(names, rows, "lrlrrlr")
    )


def shards(part: dict[str, Any], images: str) -> str:
    """One piece and shards."""
    made = part["sharded"][0]
    line = (
        f"Shards of at most {part['shard_vectors']:,} vectors: {_count(made['shards']) or 'number not told'}, mean"
        f" fanout {_fanout(made) or 'not told'}; {figure(part['points_lost'], 2)} points of recall lost at L=100."
    )
    return f"### Shards\n\n{line}\n\n" + _times(part, ("oneshot", "sharded"))


def workers(part: dict[str, Any], images: str) -> str:
    """One worker and two."""
    return f"### Workers\n\n{part['rows']:,} vectors. {_same(part)}\n\n" + _times(part, ("1", "2"))


def ray(part: dict[str, Any], images: str) -> str:
    """Ray and local."""
    line = f"{part['rows']:,} vectors. Ray's start-up: {part['startup_s']:.1f} s. {_same(part)}"
    return f"### Ray\n\n{line}\n\n" + _times(part, ("few-local", "few-ray", "many-local", "many-ray"))


def plan(part: dict[str, Any], images: str) -> str:
    """Planned and measured."""
    rows = []
    for row in part["rows"]:
        planned, measured, error = row["planned"], row["measured"], row["error"]
        others = ", ".join(f"{name} {value}" for name, value in row["parameters"].items())
        rows.append(
            (
                f"{row['data']}, {row['rows']:,}", row["memory"], row["workers"], others,
                f"{_count(planned['shards'])} / {_count(measured['shards'])}",
                *(
                    f"{planned[name] / unit:.2f} / {measured[name] / unit:.2f} ({error[name]:+.0%})"
                    for name, unit in (
                        ("peak_memory_bytes", GIB), ("peak_scratch_bytes", GIB), ("seconds", 1)
                    )
                ),
            )
        )  # fmt: skip
    names = ("set, vectors", "memory", "workers", "parameters", "shards", "memory GiB", "scratch GiB", "s")
    return "### Plans\n\nPlanned / measured.\n\n" + table(names, rows, "lrrlrrrr")


def _builds(part: dict[str, Any]) -> str:
    rows = [
        (
            name, number(made["wall_s"]), number(made["cpu_s"]), f"{made['peak_bytes'] / MIB:.0f}",
            f"{made['scratch_bytes'] / MIB:.0f}", _count(made["shards"]), _fanout(made),
            f"{made['mean_degree']:.1f}", figure(made["recall"], 4),
        )
        for name, made in part["sets"].items()
    ]  # fmt: skip
    names = (
        "set", "wall s", "CPU s", "peak MiB", "scratch MiB", "shards", "mean fanout", "mean degree",
        "recall@10 at L=100",
    )  # fmt: skip
    return table(names, rows, "lrrrrrrrr")


def _times(part: dict[str, Any], names: tuple[str, ...]) -> str:
    rows = [
        (
            name, ", ".join(f"{made['wall_s']:.1f}" for made in part[name]),
            ", ".join(f"{made['cpu_s']:.1f}" for made in part[name]),
            f"{max(made['peak_bytes'] for made in part[name]) / MIB:.0f}",
        )
        for name in names
    ]  # fmt: skip
    return table(("build", "wall s of each round", "CPU s", "peak MiB"), rows, "lrrr")


def _same(part: dict[str, Any]) -> str:
    return "The same bytes." if part["same_bytes"] else "**Not the same bytes.**"


def _fanout(made: dict[str, Any]) -> str:
    return "" if made["mean_fanout"] is None else f"{made['mean_fanout']:.3f}"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


_SECTIONS = {
    "data": data, "oneshot": oneshot, "budget": budget, "limit": limit, "shards": shards, "workers": workers,
    "ray": ray, "plan": plan,
}  # fmt: skip
