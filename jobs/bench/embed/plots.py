"""Picture of a record: page reads against bytes of a code, a line for each number of components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.curves import RECALL, key
from indexmill.jobs.bench.common.pictures import HEIGHT, WIDTH, colour, save
from indexmill.jobs.bench.embed.dimensions import by_bytes
from indexmill.jobs.bench.embed.sets import BY_COMPONENTS
from indexmill.jobs.score import figure
from indexmill.jobs.score.figure import MARKERS

NAME = "embeddings"
_LABEL_GAP = 0.06


def write_all(record: dict[str, Any], folder: Path) -> None:
    """Write the picture, if there is a line to draw."""
    from matplotlib.ticker import LogLocator

    lines = {dim: points for dim in BY_COMPONENTS if len(points := frontier(record["parts"], dim)) > 1}
    if not lines:
        return
    folder.mkdir(parents=True, exist_ok=True)
    made = figure.new_figure(WIDTH, HEIGHT)
    axes = made.subplots()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for look, points in enumerate(lines.values()):
        axes.plot(
            *zip(*points, strict=True), color=colour(look), linewidth=1.8, marker=MARKERS[look], markersize=5
        )
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    for axis in (axes.xaxis, axes.yaxis):
        figure.plain_numbers(axis)
    note = f"page reads a query at recall@10 {key(RECALL)}, fewer is better"
    figure.dress(axes, "Embeddings, default format", note, "bytes of a code in memory, a vector")
    numbers = sorted({n_bytes for points in lines.values() for n_bytes, _ in points})
    figure.name_places(axes.xaxis, {float(n_bytes): f"{n_bytes:g}" for n_bytes in numbers})
    ends = [
        (f"{dim:,} components", colour(look), points[-1]) for look, (dim, points) in enumerate(lines.items())
    ]
    figure.label_ends(axes, ends, _LABEL_GAP, shrink=2)
    save(made, folder / NAME)


def frontier(parts: dict[str, Any], dim: int) -> list[tuple[float, float]]:
    """Return bytes of a code and page reads of the formats that reach the recall, by bytes."""
    rows = by_bytes(parts, dim)
    found = [(row["format"]["pq_bytes"], row["pages_read"][key(RECALL)]) for row in rows]
    return [(float(n_bytes), pages["value"]) for n_bytes, pages in found if pages is not None]
