"""A whole comparison: measured, summarised, and ready to be printed, judged and written as a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from indexmill.jobs.compare.contenders import Contender
from indexmill.jobs.compare.costs import TARGETS, compare_rows
from indexmill.jobs.compare.detail import choose_point, describe
from indexmill.jobs.compare.intervals import QUERY_COSTS, curve_of, intervals_at
from indexmill.jobs.compare.measure import Measurement, Turn, measure, sweep
from indexmill.jobs.compare.noise import aa_ratios, noise_floor
from indexmill.jobs.compare.paths import PATH_QUERIES, record_paths
from indexmill.jobs.compare.provenance import build_rows, index_rows, layout_rows, provenance
from indexmill.jobs.compare.units import unit_cost
from indexmill.jobs.score.graph import Setting
from indexmill.jobs.score.queries import QuerySet

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.pipeline.bootstrap import Interval


@dataclass(frozen=True)
class Comparison:
    """Findings of a comparison.

    Attributes
    ----------
    result : dict
        Every summary, as report.json has it.
    measurements : list of Measurement
        Of the sweep, by ascending list size.
    chosen : list of Measurement
        Of the point that is looked at query by query, measured on its own.
    paths : pyarrow.Table
        See `record_paths`.
    """

    result: dict[str, Any]
    measurements: list[Measurement] = field(repr=False)
    chosen: list[Measurement] = field(repr=False)
    paths: pa.Table = field(repr=False)


def run_comparison(
    contenders: Sequence[Contender],
    queries: QuerySet,
    policies: Sequence[str],
    sizes: Sequence[int],
    setting: Setting,
    repeat: int,
    units: Sequence[int] = (),
) -> Comparison:
    """Sweep all contenders, look at the queries of one point one by one, and summarise; progress on stderr.

    Parameters
    ----------
    contenders : of `open_contenders`
    sizes : ascending list sizes
    units : bytes of units larger than a page, which are counted besides pages
    """
    import pyarrow as pa

    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.mill.progress import stage_progress

    steps = len(contenders) * (repeat + bool(units)) * (len(policies) * len(sizes) + 1)
    with stderr_progress() as progress, stage_progress(progress, "sweep", steps, "runs"):

        def tick() -> None:
            progress.advance(1)

        found = sweep(contenders, queries, policies, sizes, setting, repeat, tick, units)
        point = choose_point([m.row for m in found])
        detailed = replace(setting, policy=point.policy)
        reference = point.sizes[contenders[0].name]
        turns = [Turn(c, detailed, reference if c.again else point.sizes[c.name]) for c in contenders]
        chosen = measure([turns], queries, repeat, tick, units)
    few = queries.part(first=PATH_QUERIES)
    paths = pa.concat_tables(
        record_paths(turn.contender, few, turn.size, detailed) for turn in turns if not turn.contender.again
    )
    result = summarise_comparison(contenders, queries, setting, found, describe(point, chosen), units)
    return Comparison(result, found, chosen, paths)


def summarise_comparison(
    contenders: Sequence[Contender],
    queries: QuerySet,
    setting: Setting,
    measurements: Sequence[Measurement],
    detail: dict[str, Any],
    units: Sequence[int] = (),
) -> dict[str, Any]:
    """Make everything that tables, plots, gates and report.json take from a comparison."""
    rows = [m.row for m in measurements]
    own = [row for row in rows if not row["again"]]
    names = [contender.name for contender in contenders if not contender.again]
    return {
        "setting": {
            "k": setting.k,
            "queries": len(queries),
            "leave_one_out": queries.own is not None,
            "entry": ", ".join(dict.fromkeys(row["entry"] for row in rows)),
            "threads": setting.threads,
            "inflight": setting.in_flight,
            "beam_width": rows[0]["beam_width"],
            "repeat": rows[0]["repeat"],
        },
        "units": list(units),
        "at_recall": with_intervals(
            compare_rows(own, more=[unit_cost(unit) for unit in units]), measurements, names
        ),
        "noise": {"floor": noise_floor(rows), "ratios": aa_ratios(rows)},
        "detail": detail,
        "layout": layout_rows(contenders),
        "build": build_rows(contenders),
        "sweep": rows,
        "provenance": {**provenance(), "indexes": index_rows(contenders)},
    }


def with_intervals(
    lines: Sequence[dict[str, Any]], measurements: Sequence[Measurement], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Add to each line of `compare_rows` 95% intervals of the costs of single queries and of their ratios.

    Returns
    -------
    list of dict
        With ``COST_low``, ``COST_high``, ``COST_ratio_low``, ``COST_ratio_high``; None where the line has no such
        value, or the draws do not tell that end.
    """
    known: dict[tuple[str, str, float], dict[str, Interval]] = {}
    for policy in dict.fromkeys(line["policy"] for line in lines):
        curves = [
            curve_of([m for m in measurements if (m.row["index"], m.row["policy"]) == (name, policy)])
            for name in names
        ]
        for name, at_targets in zip(names, intervals_at(curves, TARGETS), strict=True):
            for target, at in zip(TARGETS, at_targets, strict=True):
                known[name, policy, target] = at
    return [line | _ends(line, known[line["index"], line["policy"], line["recall"]]) for line in lines]


def _ends(line: dict[str, Any], intervals: dict[str, Interval]) -> dict[str, float | None]:
    ends: dict[str, float | None] = {}
    for cost in QUERY_COSTS:
        for key in (cost, f"{cost}_ratio"):
            shown = line[key] is not None and not line[f"{cost}_bound"]
            low, high = intervals[key] if shown else (None, None)
            ends |= {f"{key}_low": low, f"{key}_high": high}
    return ends
