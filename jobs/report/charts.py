"""The plots of a report, as SVG: curves against recall, ratios with intervals, distributions.

A chart library would bring zooming and tooltips, and also 0.8 MB (Vega-Lite 6) to 1.2 MB (Plotly's basic bundle) of
script. These plots add a few kilobytes each, show everything without script, and need no further package.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from indexmill.jobs.report.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    box,
    frame,
    linear,
    logarithmic,
    nines,
    path,
    plot,
    short,
)
from indexmill.jobs.report.markup import Markup, element, join
from indexmill.jobs.report.series import Series
from indexmill.jobs.report.text import FIGURES

Row = dict[str, Any]
_X = (LEFT, WIDTH - RIGHT)
_Y = (HEIGHT - BOTTOM, TOP)


def recall_curves(rows: Sequence[Row], series: Series, cost: str, label: str) -> Markup:
    """Draw `cost` against recall: one curve for each index and policy."""
    k = rows[0]["k"]
    least_miss = 0.5 / (rows[0]["n_queries"] * k)
    x = nines([row["recall"] for row in rows], *_X, least_miss)
    y = logarithmic([row[cost] for row in rows], *_Y)
    lines, marks = [], []
    for name in series.names:
        for policy in series.policies:
            curve = [r for r in rows if (r["index"], r["policy"]) == (name, policy) and not r["again"]]
            places = [(x(row["recall"]), y(row[cost])) for row in curve]
            style = f"{series.style(name)} {series.dash(policy)}"
            lines.append(path(places, class_=f"line {style}"))
            for row, (left, top) in zip(curve, places, strict=True):
                tip = (
                    f"{name}, {policy}\nL = {row['L']}\nrecall@{k} {row['recall']:.4f}"
                    f" ({row['recall_low']:.4f} to {row['recall_high']:.4f})\n{label}: {short(row[cost])}"
                )
                marks.append(dot(left, top, style, tip))
    title = f"{label} against recall@{k}; every value is in the table of the sweep"
    return plot(title, frame(x, y, f"recall@{k}", label), *lines, *marks)


def latency_curves(detail: Row, series: Series) -> Markup:
    """Draw the share of queries answered within a time, for each index and the A/A run."""
    latencies, shares = detail["latency_us"]["quantiles"], detail["latency_us"]["shares"]
    spread = [quantiles[shares.index(end)] / 1e3 for quantiles in latencies.values() for end in (0.02, 0.999)]
    x = logarithmic(spread, *_X)
    y = linear([0, 100], *_Y)
    lines, marks = [], []
    for name, quantiles in latencies.items():
        style = series.style(name)
        shown = [(q / 1e3, s) for q, s in zip(quantiles, shares, strict=True) if s <= 0.999]
        places = [(x(ms), y(100 * share)) for ms, share in shown]
        lines.append(path(places, class_=f"line {style}"))
        marks += [
            dot(left, top, f"{style} quiet", f"{name}\n{100 * share:g}% of the queries within {ms:.2f} ms")
            for (ms, share), (left, top) in zip(shown, places, strict=True)
        ]
    title = "Share of queries answered within a time, for each index"
    return plot(title, frame(x, y, "milliseconds a query", "% of the queries"), *lines, *marks)


def page_histogram(detail: Row, series: Series) -> Markup:
    """Draw how many queries read how many pages, one outline for each index."""
    edges, counts = detail["pages_read"]["edges"], detail["pages_read"]["counts"]
    names = [name for name in series.names if name in counts]
    total = sum(counts[names[0]])
    x = linear([edges[0], edges[-1]], *_X)
    y = linear([0, *(100 * c / total for name in names for c in counts[name])], *_Y, zero=True)
    shapes, marks = [], []
    for name in names:
        corners = [(x(edges[0]), y(0))]
        for (low, high), count in zip(pairwise(edges), counts[name], strict=True):
            height = y(100 * count / total)
            corners += [(x(low), height), (x(high), height)]
            tip = f"{name}\n{short(low)} to {short(high)} page reads\n{count:,} queries ({count / total:.1%})"
            if count:
                middle = x((low + high) / 2)
                marks.append(dot(middle, height, f"{series.style(name)} quiet", tip))
        corners.append((x(edges[-1]), y(0)))
        shapes.append(path(corners, class_=f"area {series.style(name)}"))
    title = "Histogram of page reads a query, for each index"
    return plot(title, frame(x, y, "page reads a query", "% of the queries"), *shapes, *marks)


def difference_histogram(paired: Row, base: str, label: str, factor: float = 1.0) -> Markup:
    """Draw how much more or less each query cost than with the first index."""
    edges = [edge * factor for edge in paired["edges"]]
    total = sum(paired["counts"])
    x = linear([edges[0], edges[-1], 0], *_X, signed=True)
    y = linear([0, *(100 * count / total for count in paired["counts"])], *_Y, zero=True)
    bars = []
    for (low, high), count in zip(pairwise(edges), paired["counts"], strict=True):
        if not count:
            continue
        side = "less" if high <= 0 else "more" if low >= 0 and high > 0 else "both"
        top = y(100 * count / total)
        tip = f"{short(low, True)} to {short(high, True)} {label}\n{count:,} queries ({count / total:.1%})"
        width = max(x(high) - x(low) - 1, 1.0)
        bars.append(box(x(low) + 0.5, top, width, y(0) - top, f"bar mark {side}", tip))
    zero = element("line", x1=x(0), x2=x(0), y1=_Y[0], y2=_Y[1], class_="zero")
    mean = x(paired["difference"] * factor)
    low, high = x(paired["difference_low"] * factor), x(paired["difference_high"] * factor)
    band = box(low, _Y[1], max(high - low, 1.5), _Y[0] - _Y[1], "interval")
    line = element("line", x1=mean, x2=mean, y1=_Y[0], y2=_Y[1], class_="mean")
    title = f"Histogram of differences in {label} of {paired['index']} to {base}"
    return plot(title, frame(x, y, f"{label} more than {base}", "% of the queries"), *bars, zero, band, line)


_FOREST_WIDTH, _ROW, _GAP, _NAMES = 1000.0, 22.0, 16.0, 250.0


def forest(lines: Sequence[Row], floor: Row, series: Series, policy: str) -> Markup:
    """Draw the ratios to the first index at each recall with their intervals, above the noise of the A/A run."""
    base = series.names[0]
    shown = [line for line in lines if line["policy"] == policy and line["index"] != base]
    bases = {line["recall"]: line for line in lines if line["policy"] == policy and line["index"] == base}
    ratios = [
        line[f"{key}{end}"]
        for line in shown
        for key in FIGURES
        for end in ("_ratio", "_ratio_low", "_ratio_high")
        if line.get(f"{key}{end}") is not None
    ]
    ratios += [1.0, *(end for key in FIGURES for end in (1 / (1 + floor[key]), 1 + floor[key]))]
    height = TOP + len(FIGURES) * (len(shown) * _ROW + _GAP + 14) + 34
    bottom = height - 34
    x = logarithmic(ratios, _NAMES, _FOREST_WIDTH - 80)
    parts = [element("line", x1=x(t), x2=x(t), y1=TOP, y2=bottom, class_="grid") for t, _ in x.ticks]
    parts += [element("text", f"{text}x", x=x(t), y=bottom + 16, class_="tick mid") for t, text in x.ticks]
    top = TOP
    for key, heading in FIGURES.items():
        parts.append(element("text", heading, x=0.0, y=top + 12, class_="heading"))
        parts.append(_noise_band(x, top, len(shown) * _ROW + 18, floor[key], heading))
        top += 18
        for line in shown:
            parts.append(_whisker(line, bases[line["recall"]], (key, heading), x, top + _ROW / 2, series))
            top += _ROW
        top += _GAP - 4
    parts.append(element("line", x1=x(1), x2=x(1), y1=TOP, y2=bottom, class_="zero"))
    title = f"Ratios to {base} at equal recall with {policy} search, with 95% intervals"
    return plot(title, *parts, size=(_FOREST_WIDTH, height))


def _noise_band(x: Scale, top: float, height: float, noise: float, heading: str) -> Markup:
    low, high = x(1 / (1 + noise)), x(1 + noise)
    tip = f"{heading}: the first index against itself\nratios of {1 / (1 + noise):.3f} to {1 + noise:.3f}"
    return box(low, top, max(high - low, 1.0), height, "noise mark", tip)


def _whisker(
    line: Row, base: Row, figure: tuple[str, str], x: Scale, middle: float, series: Series
) -> Markup:
    """Draw one ratio: a dot, its interval, and what they are in figures; or say why there is none."""
    key, heading = figure
    place = f"recall {line['recall']:.2f}"
    name = f"{line['index']} at {line['recall']:.2f}" if len(series.names) > 2 else place
    parts = [element("text", clip(name, 30), x=_NAMES - 12, y=middle + 4, class_="tick end")]
    ratio = line[f"{key}_ratio"]
    if ratio is None:
        parts.append(element("text", _no_ratio(line, base, key), x=x(1) + 8, y=middle + 4, class_="tick"))
        return join(*parts)
    low, high = line.get(f"{key}_ratio_low"), line.get(f"{key}_ratio_high")
    style = series.style(line["index"])
    tip = f"{line['index']} at recall {line['recall']:.2f}\n{heading}: {ratio:.3f}x"
    if low is not None and high is not None:
        parts.append(element("line", x1=x(low), x2=x(high), y1=middle, y2=middle, class_=f"whisker {style}"))
        tip += f"\n95% interval {low:.3f} to {high:.3f}"
    parts.append(dot(x(ratio), middle, style, tip, 4.5))
    parts.append(element("text", f"{ratio:.2f}x", x=_FOREST_WIDTH - 56, y=middle + 4, class_="value"))
    return join(*parts)


def _no_ratio(line: Row, base: Row, key: str) -> str:
    """Say which curve does not cross the recall, and on which side of it that one lies."""
    name = clip(base["index"], 30)
    if line[key] is None:
        return "not reached"
    if line[f"{key}_bound"]:
        return "starts above"
    return f"not reached by {name}" if base[key] is None else f"{name} starts above"


def clip(text: str, most: int) -> str:
    """Shorten a name that has no room."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def dot(x: float, y: float, style: str, tip: str, radius: float = 3.5) -> Markup:
    """Draw a dot; `tip` stands beside the pointer over it."""
    return element("circle", cx=x, cy=y, r=radius, class_=f"dot mark {style}", data_tip=tip)
