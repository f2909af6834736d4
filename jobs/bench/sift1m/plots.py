"""Pictures of a record, for the page and the README: PNG and SVG, the same bytes for the same record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.jobs.bench.common.pictures import HEIGHT, WIDTH, colour, save
from indexmill.jobs.score import figure
from indexmill.jobs.score.figure import MARKERS, to_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Nothing is drawn beyond this share of misses, or of reads that are still to come.
_LEAST = 1e-5
_RECALL_TICKS = (0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
_SHARE_TICKS = (0.5, 0.9, 0.99, 0.999, 0.9999)
_LABEL_GAP = 0.06


@dataclass(frozen=True)
class Line:
    """A curve: its name, where it goes, and how it looks (colour and marker by number)."""

    label: str
    shares: Sequence[float]
    costs: Sequence[float]
    look: int


def write_all(record: dict[str, Any], folder: Path) -> None:
    """Write the pictures of the parts that were measured."""
    parts = record["parts"]
    folder.mkdir(parents=True, exist_ok=True)
    if "reads" in parts and "qps" in parts:
        save(_searches(parts["reads"], parts["qps"]), folder / "sift1m")
    if "completion" in parts:
        save(_completion(parts["completion"]), folder / "completion")
        save(_read_times(parts["completion"]["reads"]), folder / "read-times")


def _searches(reads: dict[str, Any], qps: dict[str, Any]) -> Figure:
    """Page reads and queries a second against recall, of both sides."""
    place = {(one["order"], one["policy"], one["entry"]): one["rows"] for one in reads["settings"]}
    pages = [
        _line("DiskANN", reads["diskann"]["rows"], "pages_read", 1),
        _line("indexmill, identity", place["identity", "pipeline", "navigation"], "pages_read", 5),
        _line("indexmill, star", place["star", "pipeline", "navigation"], "pages_read", 2),
        _line(f"indexmill, {reads['headline'][0]}", place[tuple(reads["headline"])], "pages_read", 0),
    ]
    names = {
        "diskann": ("DiskANN", 1),
        "indexmill_single": ("indexmill, 1 query a thread", 5),
        "indexmill": ("indexmill", 0),
    }
    rates = [
        _line(label, _medians([done[name] for done in qps["rounds"]]), "qps", look)
        for name, (label, look) in names.items()
    ]
    made = figure.new_figure(2 * WIDTH, HEIGHT)
    left, right = made.subplots(1, 2)
    _draw(left, "Page reads", "a query, fewer is better", "recall@10", pages)
    note = f"queries a second with {qps['threads']} threads, more is better"
    _draw(right, "Throughput", note, "recall@10", rates)
    return made


def _completion(part: dict[str, Any]) -> Figure:
    """AIO-ANN Figure 5: recall@10 and recall@1 against queries a second."""
    looks = {"DiskANN": 1, "beam": 5, "completion": 2, "pipeline": 0}
    made = figure.new_figure(2 * WIDTH, HEIGHT)
    for axes, (k, name) in zip(made.subplots(1, 2), ((10, "recall"), (1, "recall1")), strict=True):
        lines = [_line(label, part["curves"][label], "qps", look, name) for label, look in looks.items()]
        _draw(axes, f"Recall@{k}", f"queries a second, {part['threads']} threads", f"recall@{k}", lines)
    return made


def _read_times(reads: list[dict[str, Any]]) -> Figure:
    """AIO-ANN Figure 2: the share of reads done after so many microseconds."""
    made = figure.new_figure(WIDTH, HEIGHT)
    axes = made.subplots()
    axes.set_xscale("log")
    for look, one in enumerate(reads):
        shares, times = zip(*one["curve"], strict=True)
        axes.plot(times, _place(shares), color=colour(look), linewidth=1.8)
        at = next(i for i, share in enumerate(shares) if share >= 0.9)
        axes.annotate(
            f"{one['depth']}", (times[at], _place(shares)[at]), xytext=(7, -3),
            textcoords="offset points", color=colour(look), fontweight="bold",
        )  # fmt: skip
    axes.axvline(100, color=figure.DIM, linewidth=0.8, linestyle=(0, (1, 1.5)))
    figure.plain_numbers(axes.xaxis)
    note = "share of the reads that are done; lines by reads in flight"
    figure.dress(axes, "Time of a random 4 KiB read", note, "microseconds")
    _name_shares(axes.yaxis, _SHARE_TICKS)
    axes.set_ylim(0, -np.log10(_LEAST))
    return made


def _line(label: str, rows: Sequence[dict[str, Any]], cost: str, look: int, recall: str = "recall") -> Line:
    ordered = sorted(rows, key=lambda row: row["L"])
    return Line(label, [row[recall] for row in ordered], [row[cost] for row in ordered], look)


def _medians(rounds: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Median queries a second over the rounds, a row for each list size."""
    return [
        {**rows[0], "qps": float(np.median([row["qps"] for row in rows]))}
        for rows in zip(*rounds, strict=True)
    ]


def _draw(axes: Axes, title: str, note: str, below: str, lines: Sequence[Line]) -> None:
    """Draw costs on a log axis against recall, where each tenfold drop of the misses has the same room."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    for line in lines:
        axes.plot(
            _place(line.shares), line.costs, color=colour(line.look), linewidth=1.8,
            marker=MARKERS[line.look % len(MARKERS)], markersize=5,
        )  # fmt: skip
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    figure.plain_numbers(axes.yaxis)
    figure.dress(axes, title, note, below)
    _name_shares(axes.xaxis, _RECALL_TICKS)
    ends = [(float(_place(line.shares)[-1]), line.costs[-1]) for line in lines]
    names = [(line.label, colour(line.look), end) for line, end in zip(lines, ends, strict=True)]
    figure.label_ends(axes, names, _LABEL_GAP, shrink=2)


def _name_shares(axis: Any, ticks: Sequence[float]) -> None:
    """Name those shares that lie within the axis."""
    low, high = axis.get_view_interval()
    names = {float(_place([tick])[0]): f"{tick:g}" for tick in ticks}
    figure.name_places(axis, {place: name for place, name in names.items() if low <= place <= high})


def _place(shares: Sequence[float]) -> Any:
    """Place of shares on an axis: 0.9 at 1, 0.99 at 2."""
    return to_axis(shares, _LEAST)
