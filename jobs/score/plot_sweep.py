"""The figure of a sweep: throughput, page reads and latency against recall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.jobs.score import figure
from indexmill.jobs.score.figure import COLOURS, MARKERS, to_axis
from indexmill.jobs.score.plot import plain_text
from indexmill.jobs.score.table import conditions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
#: Recalls that the axis names where there is room, the more wanted ones first.
_TICKS = (0.9, 0.99, 0.999, 0.9999, 0.95, 0.995, 0.5, 0.8, 0.98, 0.998, 0.7, 0.3, 0.1, 0.9995)
#: Room that a digit takes, and that is left between two recalls, as shares of the axis.
_DIGIT, _TICK_GAP = 0.0225, 0.015
#: Figures that a cost axis names in each decade.
_STEPS = (1, 2, 5)
#: Least distance of two labels at the ends of curves, as a share of a panel's height.
_LABEL_GAP = 0.055


@dataclass(frozen=True)
class Panel:
    """One panel: its title, what is below it, the keys of rows that it draws, and what their values are times."""

    title: str
    note: str
    keys: tuple[str, ...]
    factor: float = 1.0

    def values(self, rows: Sequence[Row], key: str) -> list[float]:
        """Values of `rows` to draw."""
        return [row[key] * self.factor for row in rows]


PANELS = (
    Panel("Throughput", "queries a second, more is better", ("qps",)),
    Panel("Reads", "page reads a query, fewer is better", ("pages_read",)),
    Panel(
        "Latency",
        "milliseconds a query: mean (solid), P99 (dotted)",
        ("latency_us_mean", "latency_us_p99"),
        1e-3,
    ),
)


@dataclass(frozen=True)
class Curve:
    """The rows of one policy and entry in ascending recall, and how they are drawn."""

    label: str
    rows: list[Row]
    colour: str
    marker: str
    filled: bool

    @property
    def least_miss(self) -> float:
        """Share of misses that stands for none at all: half a neighbour of the whole query set."""
        return 0.5 / float(self.rows[0]["n_queries"] * self.rows[0]["k"])

    def places(self, key: str) -> NDArray[np.float64]:
        """Places of a recall of its rows on the axis."""
        return to_axis([row[key] for row in self.rows], self.least_miss)


def save_sweep(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write the figure of `rows` to `path`; the suffix (.png or .svg) chooses the format.

    Equal rows give equal bytes.
    """
    with figure.style("sweep"):
        made = figure.new_figure(15, 5)
        drawn = curves(rows)
        for axes, panel in zip(made.subplots(1, len(PANELS)), PANELS, strict=True):
            draw(axes, panel, drawn)
        caption = "  |  ".join([plain_text(title), *conditions(rows), "bars: 95% interval of recall"])
        made.supxlabel(caption, fontsize=9, color=figure.DIM, x=0.01, ha="left")
        figure.save(made, path)


def curves(rows: Sequence[Row]) -> list[Curve]:
    """Group rows into one curve for each policy and entry, in their order; names only what differs."""
    pairs = list(dict.fromkeys((row["policy"], row["entry"]) for row in rows))
    policies = list(dict.fromkeys(policy for policy, _ in pairs))
    entries = list(dict.fromkeys(entry for _, entry in pairs))
    drawn = []
    for policy, entry in pairs:
        words = [policy] if len(entries) == 1 else [entry] if len(policies) == 1 else [policy, entry]
        mine = [row for row in rows if (row["policy"], row["entry"]) == (policy, entry)]
        number = policies.index(policy) if len(policies) > 1 else entries.index(entry)
        drawn.append(
            Curve(
                label=", ".join(words),
                rows=sorted(mine, key=lambda row: (row["recall"], row["L"])),
                colour=COLOURS[number % len(COLOURS)],
                marker=MARKERS[entries.index(entry) % len(MARKERS)],
                filled=entries.index(entry) % 2 == 0,
            )
        )
    return drawn


def draw(axes: Axes, panel: Panel, drawn: Sequence[Curve]) -> None:
    """Draw one panel: recall on an axis that gives each tenfold drop of the misses the same room, cost on a log one."""
    axes.set_yscale("log")
    for curve in drawn:
        places = curve.places("recall")
        interval = np.stack([curve.places("recall_low"), curve.places("recall_high")])
        first, *others = panel.keys
        axes.errorbar(
            places,
            panel.values(curve.rows, first),
            xerr=np.abs(interval - places),
            color=curve.colour, ecolor=(curve.colour, 0.5), elinewidth=1, linewidth=1.8, zorder=3,
            marker=curve.marker, markersize=5, markeredgewidth=1.2, markeredgecolor=curve.colour,
            markerfacecolor=curve.colour if curve.filled else "white",
        )  # fmt: skip
        for key in others:
            values = panel.values(curve.rows, key)
            axes.plot(places, values, color=curve.colour, linestyle=(0, (1, 1.5)), linewidth=1.4)
    _limit_recall(axes, drawn)
    _limit_cost(
        axes, [value for curve in drawn for key in panel.keys for value in panel.values(curve.rows, key)]
    )
    figure.dress(axes, panel.title, panel.note, f"recall@{drawn[0].rows[0]['k']}")
    ends = [(curve.places("recall")[-1], panel.values(curve.rows, panel.keys[0])[-1]) for curve in drawn]
    names = [(curve.label, curve.colour, end) for curve, end in zip(drawn, ends, strict=True)]
    figure.label_ends(axes, names, _LABEL_GAP, shrink=4)


def _limit_recall(axes: Axes, drawn: Sequence[Curve]) -> None:
    """Set the limits of the recall axis, and name recalls where there is room for their figures."""
    places = np.concatenate([curve.places("recall") for curve in drawn])
    room = max(0.05 * np.ptp(places), 0.02)
    low, high = places.min() - room, places.max() + room
    axes.set_xlim(low, high)
    least = drawn[0].least_miss
    wanted = [(float(to_axis(tick, least)), f"{tick:g}") for tick in _TICKS if 1 - tick > least]
    if any(row["recall"] == 1 for curve in drawn for row in curve.rows):
        wanted.insert(0, (float(to_axis(1, least)), "1"))
    kept: dict[float, str] = {}
    for place, figures in wanted:
        apart = [abs(place - other) / (high - low) for other in kept]
        needed = [_TICK_GAP + _DIGIT * (len(figures) + len(others)) / 2 for others in kept.values()]
        if low <= place <= high and all(a > n for a, n in zip(apart, needed, strict=True)):
            kept[place] = figures
    figure.name_places(axes.xaxis, kept)


def _limit_cost(axes: Axes, values: Sequence[float]) -> None:
    """Set the limits and the figures of the cost axis; zeros have no place on it."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    positive = [value for value in values if value > 0] or [1.0]
    bottom, top = min(positive), max(positive)
    room = (top / bottom) ** 0.06 * 1.02
    bottom, top = bottom / room, top * room
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_locator(LogLocator(subs=_STEPS) if top > 4 * bottom else MaxNLocator(5))
    figure.plain_numbers(axes.yaxis)
