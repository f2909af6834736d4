"""Costs of indexes at equal recall, read off the rows of a sweep, and their table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from indexmill.jobs.console.tables import scalars, short

#: Recalls at which indexes are compared.
TARGETS = (0.90, 0.95, 0.98)
#: Costs that are compared at equal recall: key of a row, and whether more is better.
COSTS = {"pages_read": False, "latency_us_mean": False, "latency_us_p99": False, "qps": True}


@dataclass(frozen=True)
class AtRecall:
    """A cost where a curve crosses a recall.

    ``value`` is None where the curve never reaches the recall. ``bound`` says that even the smallest list
    size is above it, so that the true cost is at most (for qps: at least) ``value``.
    """

    value: float | None
    bound: bool = False


def cost_at_recall(curve: Sequence[dict[str, Any]], cost: str, target: float) -> AtRecall:
    """Interpolate `cost` linearly in recall between the two sweep rows around `target`.

    Parameters
    ----------
    curve : rows of one index and policy, in ascending list size
    """
    first = curve[0]
    if first["recall"] >= target:
        return AtRecall(first[cost], bound=first["recall"] > target)
    for low, high in pairwise(curve):
        if low["recall"] < target <= high["recall"]:
            share = (target - low["recall"]) / (high["recall"] - low["recall"])
            return AtRecall(low[cost] + share * (high[cost] - low[cost]))
    return AtRecall(None)


def compare_rows(
    rows: Sequence[dict[str, Any]], targets: Sequence[float] = TARGETS, more: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Costs of every index and policy at each recall of `targets`, with ratios against the first index.

    Parameters
    ----------
    more : iterable of str
        Keys of rows that are costs besides `COSTS`.

    Returns
    -------
    list of dict
        ``recall, policy, index`` and for each cost ``cost`` (None: not reached), ``cost_bound`` and
        ``cost_ratio`` (None unless both values are exact; below 1 is cheaper, for qps above 1 is faster).
    """
    names = list(dict.fromkeys(row["index"] for row in rows))
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    costs = (*COSTS, *more)
    table = []
    for target in targets:
        for policy in policies:
            base: dict[str, AtRecall] = {}
            for name in names:
                curve = [row for row in rows if row["index"] == name and row["policy"] == policy]
                line: dict[str, Any] = {"recall": target, "policy": policy, "index": name}
                for cost in costs:
                    at = cost_at_recall(curve, cost, target)
                    base.setdefault(cost, at)
                    line[cost] = at.value
                    line[f"{cost}_bound"] = at.bound
                    line[f"{cost}_ratio"] = _ratio(at, base[cost])
                table.append(line)
    return table


def _ratio(at: AtRecall, base: AtRecall) -> float | None:
    if at.value is None or not base.value or at.bound or base.bound:
        return None
    return at.value / base.value


def show(value: float | None, bound: bool, more_is_better: bool = False, digits: int = 1) -> str:
    """Print a cost for people: ``"not reached"``, ``"<= 3.1"`` or ``"3.1"``."""
    if value is None:
        return "not reached"
    sign = ("≥ " if more_is_better else "≤ ") if bound else ""
    return f"{sign}{value:,.{digits}f}"


def show_ratio(ratio: float | None) -> str:
    """Print a ratio for people; a dash where there is none."""
    return "-" if ratio is None else f"{ratio:.2f}x"


def cost_cells(lines: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table of costs at equal recall."""
    headings = [
        "recall", "policy", "index", "page reads", "ratio", "mean us", "ratio", "P99 us", "qps", "ratio",
    ]  # fmt: skip
    cells = []
    for line in lines:
        row = [f"{line['recall']:.2f}", line["policy"], line["index"]]
        for cost, better, ratio in (
            ("pages_read", False, True),
            ("latency_us_mean", False, True),
            ("latency_us_p99", False, False),
            ("qps", True, True),
        ):
            row.append(show(line[cost], line[f"{cost}_bound"], better, digits=int(cost == "pages_read")))
            if ratio:
                row.append(show_ratio(line[f"{cost}_ratio"]))
        cells.append(row)
    return headings, cells


def layout_cells(lines: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table of layouts; keys are those of scalars that any of the manifests has."""
    lines = [scalars(line) for line in lines]
    keys = list(dict.fromkeys(key for line in lines for key in line if key != "build_id"))
    return [key.replace("_", " ") for key in keys], [
        [short(line.get(key, "-")) for key in keys] for line in lines
    ]
