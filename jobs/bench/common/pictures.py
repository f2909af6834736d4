"""Pictures of a record, for pages: PNG and SVG, the same bytes for the same record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from indexmill.jobs.score import figure
from indexmill.jobs.score.figure import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Width of a panel and height of a figure, in inches.
WIDTH, HEIGHT = 6.2, 4.4


def save(made: Figure, path: Path) -> None:
    """Write a picture with both suffixes; `path` has none."""
    with figure.style(path.name):
        for suffix in (".svg", ".png"):
            figure.save(made, path.with_suffix(suffix))


def colour(look: int) -> str:
    """Return the colour of that number."""
    return COLOURS[look % len(COLOURS)]
