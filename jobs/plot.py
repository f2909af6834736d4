"""Plots of a comparison: recall against page reads and against queries a second."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.atomic import atomic_write
from indexmill.reader.choices import POLICIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = {"pages_read": "page reads a query", "qps": "queries a second"}
#: Distinct under the common forms of colour blindness and readable on white and on black (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
#: Of each policy, in the reader's order.
MARKERS = ("s", "o", "^", "D")
STYLES = ("--", "-", "-.", ":")
#: Stands for the colour of the surrounding text, which a page with a dark side decides itself.
_INK = "#0a0b0c"


def inline_svg(rows: Sequence[dict[str, Any]], cost: str) -> str:
    """Draw recall against `cost` as an SVG element that takes its ink and font from the page around it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings = {"svg.fonttype": "none", "svg.hashsalt": cost, "font.family": "sans-serif"}
    with mpl.rc_context(settings):  # type: ignore[arg-type]  # its key type lists names one by one
        figure = Figure(figsize=(6, 4), layout="constrained")
        draw(figure.add_subplot(), rows, cost, ink=_INK)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    return re.sub(r'id="(figure|axes|patch|legend|text|line2d|matplotlib\.axis|xtick|ytick)_\d+"', "", svg)


def save_plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write both panels side by side to `path`; the suffix (.png or .svg) chooses the format."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "compare"}):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        for axes, cost in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            draw(axes, rows, cost, ink="black")
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with atomic_write(path) as file:
            figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=metadata)


def draw(axes: Axes, rows: Sequence[dict[str, Any]], cost: str, ink: str) -> None:
    """Draw one curve for each index and policy of `rows`."""
    names = list(dict.fromkeys(row["index"] for row in rows))
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    for number, name in enumerate(names):
        for policy in policies:
            curve = [row for row in rows if row["index"] == name and row["policy"] == policy]
            axes.plot(
                [row[cost] for row in curve],
                [row["recall"] for row in curve],
                color=COLOURS[number % len(COLOURS)],
                linestyle=STYLES[POLICIES.index(policy) % len(STYLES)],
                marker=MARKERS[POLICIES.index(policy) % len(MARKERS)],
                markersize=4,
                label=f"{plain_text(name)}, {policy}",
            )
    axes.set_xlabel(PANELS[cost], color=ink)
    axes.set_ylabel(f"recall@{rows[0]['k']}", color=ink)
    axes.tick_params(colors=ink, which="both")
    axes.grid(visible=True, color=ink, alpha=0.15)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(ink)
    axes.legend(
        frameon=False,
        labelcolor=ink,
        fontsize="small",
        loc="lower right" if cost == "pages_read" else "lower left",
    )


def plain_text(name: str) -> str:
    """Keep matplotlib from reading a name as mathematics, or hiding one that starts with _ from a legend."""
    visible = f"\u200b{name}" if name.startswith("_") else name
    return visible.replace("$", r"\$")
