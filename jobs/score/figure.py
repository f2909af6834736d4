"""The look of a figure of searches: costs on a log axis, recall by its misses, names at the ends of curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexmill.formats.pagefile.atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, DIM, PALE = "#222222", "#555555", "#d9d9d9"
#: Distinct under the common forms of colour blindness and readable on white and on black (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P")


def style(salt: str) -> AbstractContextManager[None]:
    """Return the settings under which equal figures have equal bytes; `salt` goes into the ids of an SVG file."""
    import matplotlib as mpl

    settings = {"svg.hashsalt": salt, "font.size": 10, "axes.unicode_minus": False}
    return mpl.rc_context(settings)  # type: ignore[arg-type]  # its key type lists names one by one


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, with room for names beside its panels."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))


def save(figure: Figure, path: Path) -> None:
    """Write a figure without the date and the program's version; the suffix (.png or .svg) chooses the format."""
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=160, metadata=metadata)


def dress(axes: Axes, title: str, note: str, below: str) -> None:
    """Set titles and the grid."""
    axes.set_title(title, loc="left", fontweight="bold", color=INK, pad=24)
    axes.text(0, 1.03, note, transform=axes.transAxes, fontsize=9, color=DIM)
    axes.set_xlabel(below, color=INK)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    axes.grid(visible=True, color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(INK)


def plain_numbers(axis: Any) -> None:
    """Name values of a log axis by plain numbers, and none between those that it names."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def name_places(axis: Any, names: Mapping[float, str]) -> None:
    """Name places of an axis, and no others."""
    from matplotlib.ticker import FixedFormatter, FixedLocator

    axis.set_major_locator(FixedLocator(list(names)))
    axis.set_major_formatter(FixedFormatter(list(names.values())))


def to_axis(recall: ArrayLike, least_miss: float) -> NDArray[np.float64]:
    """Place of a recall on the axis: 0.9 at 1, 0.99 at 2; nothing lies beyond `least_miss` misses."""
    return -np.log10(np.maximum(1 - np.asarray(recall, np.float64), least_miss))


def label_ends(
    axes: Axes, ends: Sequence[tuple[str, str, tuple[float, float]]], gap: float, shrink: float
) -> None:
    """Name each curve at the right, level with its last point or a little off where two names would meet.

    Parameters
    ----------
    ends : sequence of (name, colour, last point)
    gap : float
        Least distance of two names, as a share of the panel's height.
    shrink : float
        Points between the last point of a curve and the line to its name.
    """
    axes.get_ylim()  # fits the limits to what was drawn, which matplotlib puts off until somebody asks
    to_share = axes.transData + axes.transAxes.inverted()
    heights = [float(to_share.transform(end)[1]) for _, _, end in ends]
    for (label, colour, end), height in zip(ends, spread(heights, gap), strict=True):
        line = {"arrowstyle": "-", "color": colour, "alpha": 0.5, "linewidth": 0.8, "shrinkB": shrink}
        axes.annotate(
            label, end, xytext=(1.03, height), textcoords="axes fraction", color=colour, fontweight="bold",
            fontsize=9, va="center", arrowprops=line,
        )  # fmt: skip


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move places apart until neighbours are at least `gap` from each other; their order and mean stay."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    groups: list[tuple[float, int]] = []  # middle and size of runs that stand shoulder to shoulder
    for i in order:
        middle, size = places[i], 1
        while groups and middle - groups[-1][0] < gap * (size + groups[-1][1]) / 2:
            other, count = groups.pop()
            middle, size = (middle * size + other * count) / (size + count), size + count
        groups.append((middle, size))
    moved = [middle + gap * (i - (size - 1) / 2) for middle, size in groups for i in range(size)]
    result = [0.0] * len(places)
    for i, place in zip(order, moved, strict=True):
        result[i] = place
    return result
