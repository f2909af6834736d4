"""Scales and axes of a plot: where a value lies, which values are named, and how the frame around marks is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from indexmill.jobs.report.markup import Markup, element, join

#: The plot's own units; the page scales it to its column.
WIDTH, HEIGHT = 600.0, 360.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 18.0, 18.0, 46.0
#: Recalls that an axis names where there is room, the more wanted ones first.
_RECALLS = (0.9, 0.99, 0.95, 0.8, 0.999, 0.5, 0.98, 0.995, 0.7, 0.9999, 0.6, 0.3, 0.1)
#: Least distance of two named recalls, in units of the plot.
_RECALL_GAP = 44.0


@dataclass(frozen=True)
class Scale:
    """Maps values from ``low .. high`` to places from ``start .. end``, after `bend` made them even.

    Attributes
    ----------
    ticks : tuple of (value, text)
        What the axis names.
    """

    low: float
    high: float
    start: float
    end: float
    bend: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]

    def __call__(self, value: float) -> float:
        """Place of `value`; values beyond the ends lie on them."""
        low, high = self.bend(self.low), self.bend(self.high)
        share = (self.bend(value) - low) / (high - low) if high > low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def linear(
    values: Iterable[float], start: float, end: float, zero: bool = False, signed: bool = False
) -> Scale:
    """Scale for amounts, from zero if `zero`, its ends at round numbers; `signed` ticks show a plus."""
    low, high = _span(values)
    low = min(low, 0.0) if zero else low
    step = _step((high - low) or abs(high) or 1.0, 5)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    high = high if high > low else low + step
    count = round((high - low) / step)
    ticks = [low + i * step for i in range(count + 1)]
    return Scale(low, high, start, end, float, tuple((t, short(t, signed)) for t in ticks))


def logarithmic(values: Iterable[float], start: float, end: float) -> Scale:
    """Scale for costs that differ by factors; names 1, 2, 5, 10, ... or, within a factor of 3, round steps."""
    low, high = _span(value for value in values if value > 0)
    low, high = low / 1.06, high * 1.06
    if high / low < 3:
        step = _step(high - low, 5)
        ticks = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    else:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 1.5, 2, 3, 5, 7) if high / low < 12 else (1, 2, 5) if high / low < 300 else (1,)
        ticks = [m * 10.0**p for p in powers for m in steps if low <= m * 10.0**p <= high]
    return Scale(low, high, start, end, math.log, tuple((t, short(t)) for t in ticks))


def nines(values: Iterable[float], start: float, end: float, least_miss: float) -> Scale:
    """Scale for recall: each tenfold drop of the misses takes the same room, none lies below `least_miss`."""

    def bend(recall: float) -> float:
        return -math.log10(max(1 - recall, least_miss))

    low, high = _span(values)
    room = max(0.04 * (bend(high) - bend(low)), 0.02)
    low, high = 1 - 10 ** -(bend(low) - room), 1 - 10 ** -(bend(high) + room)
    scale = Scale(low, high, start, end, lambda r: -math.log10(max(1 - r, least_miss / 10)), ())
    kept: list[float] = []
    for tick in _RECALLS:
        inside = low <= tick <= high
        if inside and all(abs(scale(tick) - scale(other)) >= _RECALL_GAP for other in kept):
            kept.append(tick)
    return Scale(low, high, start, end, scale.bend, tuple((t, f"{t:g}") for t in sorted(kept)))


def frame(x: Scale, y: Scale, x_label: str, y_label: str) -> Markup:
    """Draw grid lines, the texts of both axes and their labels."""
    lines = [element("line", x1=x.start, x2=x.end, y1=y(t), y2=y(t), class_="grid") for t, _ in y.ticks]
    lines.append(element("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis"))
    for t, _ in x.ticks:
        lines.append(element("line", x1=x(t), x2=x(t), y1=y.start, y2=y.start + 4, class_="axis"))
    texts = [element("text", text, x=x.start - 8, y=y(t) + 4, class_="tick end") for t, text in y.ticks]
    texts += [element("text", text, x=x(t), y=y.start + 18, class_="tick mid") for t, text in x.ticks]
    texts.append(element("text", x_label, x=(x.start + x.end) / 2, y=HEIGHT - 8, class_="label mid"))
    middle = (y.start + y.end) / 2
    turned = f"translate(13 {middle:.0f}) rotate(-90)"
    texts.append(element("text", y_label, x=0.0, y=0.0, transform=turned, class_="label mid"))
    return join(*lines, *texts)


def plot(
    title: str,
    *children: Markup,
    size: tuple[float, float] = (WIDTH, HEIGHT),
    class_: str = "plot",
    preserveAspectRatio: str | None = None,
) -> Markup:
    """Wrap marks as an SVG element that says what it shows."""
    return element(
        "svg", *children, viewBox=f"0 0 {size[0]:.0f} {size[1]:.0f}", preserveAspectRatio=preserveAspectRatio,
        role="img", aria_label=title, class_=class_,
    )  # fmt: skip


def box(left: float, top: float, width: float, height: float, class_: str, tip: str | None = None) -> Markup:
    """Draw a rectangle; `tip` stands beside the pointer over it."""
    return element("rect", x=left, y=top, width=width, height=height, class_=class_, data_tip=tip)


def path(points: Sequence[tuple[float, float]], **attributes: object) -> Markup:
    """Draw straight lines through places."""
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", points=steps, **attributes)


def short(value: float, signed: bool = False) -> str:
    """Print a number of an axis: 1500 as 1,500, 12000 as 12k."""
    sign = "+" if signed and value > 0 else ""
    if abs(value) >= 10_000:
        return f"{sign}{value / 1000:,.4g}k"
    return f"{sign}{value:,.4g}" if abs(value) < 1000 else f"{sign}{value:,.0f}"


def _span(values: Iterable[float]) -> tuple[float, float]:
    known = list(values) or [1.0]
    return min(known), max(known)


def _step(span: float, count: int) -> float:
    """Round step that cuts `span` into about `count` parts."""
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    return float(next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= raw * 0.999))
