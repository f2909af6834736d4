"""Plots of a comparison: recall against page reads and against queries a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.jobs.score.figure import COLOURS
from indexmill.reader.choices import POLICIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = {"pages_read": "page reads a query", "qps": "queries a second"}
#: Of each policy, in the reader's order.
MARKERS = ("s", "o", "^", "D")
STYLES = ("--", "-", "-.", ":")


def save_plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write both panels side by side to `path`; the suffix (.png or .svg) chooses the format."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "compare"}):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        for axes, cost in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            draw(axes, rows, cost)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with atomic_write(path) as file:
            figure.savefig(file, format=path.suffix[1:], dpi=150, metadata=metadata)


def draw(axes: Axes, rows: Sequence[dict[str, Any]], cost: str) -> None:
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
    axes.set_xlabel(PANELS[cost])
    axes.set_ylabel(f"recall@{rows[0]['k']}")
    axes.grid(visible=True, alpha=0.3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
    axes.legend(frameon=False, fontsize="small", loc="lower right" if cost == "pages_read" else "lower left")


def plain_text(name: str) -> str:
    """Keep matplotlib from reading a name as mathematics, or hiding one that starts with _ from a legend."""
    visible = f"\u200b{name}" if name.startswith("_") else name
    return visible.replace("$", r"\$")
