"""The charts of a report, as specifications of Vega-Lite, which the page's script draws.

Rows carry a text `tip`: it stands beside the pointer, and a screen reader says it of the mark. Colours are variables of
the page's style, so that charts follow its theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from indexmill.jobs.report.series import AGAIN, Series, Spec
from indexmill.jobs.report.text import FIGURES

Row = dict[str, Any]
#: Recalls that an axis names where there is room.
_RECALLS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)
#: Ratios that an axis names if it spans a factor of more than 2.
_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
_SAID: Spec = {"tooltip": {"field": "tip"}, "description": {"field": "tip"}}
#: The dot nearest to the pointer, and how dots are hidden until they are that one.
_NEAR: Spec = {"param": "near", "empty": False}
_QUIET: Spec = {"condition": {**_NEAR, "value": 1}, "value": 0}
_LINE: Spec = {"type": "line", "aria": False}
#: Colours that rows name themselves.
_OWN: Spec = {"field": "colour", "type": "nominal", "scale": None}
#: Pixels to the right of a ratio's interval for its figure. As padding they would widen the domain, and turn it round
#: where the chart is narrower than twice the padding.
_FIGURE = 56
#: Those figures. In a narrow chart the line at 1 may run through one: the card's colour around it hides the line.
_FIGURES_TEXT: Spec = {"type": "text", "align": "left", "dx": 9, "fontWeight": 600, "aria": False}
_HALO: Spec = {"stroke": "var(--card)", "strokeWidth": 4, "strokeJoin": "round"}


def recall_curves(rows: Sequence[Row], series: Series, cost: str, label: str) -> Spec:
    """Draw `cost` against recall: one curve for each index and policy.

    The axis is logarithmic in the misses, so that each tenfold drop of them takes the same room.
    """
    k = rows[0]["k"]
    least_miss = 0.5 / (rows[0]["n_queries"] * k)
    values = [
        {
            "index": row["index"], "policy": row["policy"], "L": row["L"],
            "miss": max(1 - row["recall"], least_miss), "cost": row[cost] or None,
            "tip": f"{row['index']}, {row['policy']}\nL = {row['L']}\nrecall@{k} {row['recall']:.4f}"
            f" ({row['recall_low']:.4f} to {row['recall_high']:.4f})\n{label}: {row[cost]:,.1f}",
        }
        for row in rows
    ]  # fmt: skip
    recalls = {
        "values": [1 - r for r in _RECALLS],
        "labelExpr": "format(1 - datum.value, '.6~g')",
        "description": f"X-axis titled 'recall@{k}'",
    }
    misses = logarithmic("miss", f"recall@{k}", recalls)
    channels = {
        "x": {**misses, "scale": {**misses["scale"], "reverse": True}},
        "y": logarithmic("cost", label),
        "color": series.colours(),
    }
    lines = layer(_LINE, **channels, strokeDash=series.dashes(), order=number("L"))
    title = f"{label} against recall@{k}; every value is in the table of the sweep"
    return chart(title, values, lines, points(**channels, shape=series.shapes()))


def latency_curves(detail: Row, series: Series) -> Spec:
    """Draw the share of queries answered within a time, for each index and the A/A run."""
    latencies, shares = detail["latency_us"]["quantiles"], detail["latency_us"]["shares"]
    values = [
        {
            "index": name, "again": name not in series.names, "ms": quantile / 1e3 or None, "share": 100 * share,
            "tip": f"{name}\n{100 * share:g}% of the queries within {quantile / 1e3:.2f} ms",
        }
        for name, quantiles in latencies.items()
        for quantile, share in zip(quantiles, shares, strict=True)
        if 0.02 <= share <= 0.999
    ]  # fmt: skip
    channels = {
        "x": logarithmic("ms", "milliseconds a query"),
        "y": number("share", "% of the queries", domain=[0, 100]),
        "color": series.colours(*latencies),
    }
    again: Spec = {"condition": {"test": "datum.again", "value": AGAIN}, "value": [1, 0]}
    lines = layer(_LINE, **channels, strokeDash=again)
    title = "Share of queries answered within a time, for each index"
    return chart(title, values, lines, points(**channels, opacity=_QUIET))


def page_histogram(detail: Row, series: Series) -> Spec:
    """Draw how many queries read how many pages, one outline for each index."""
    edges, counts = detail["pages_read"]["edges"], detail["pages_read"]["counts"]
    half = (edges[1] - edges[0]) / 2
    values: list[Row] = []
    for name in (name for name in series.names if name in counts):
        total = sum(counts[name])
        around = {"index": name, "share": 0}
        values += [{**around, "pages": end} for end in (edges[0] - half, edges[-1] + half)]
        values += [
            {
                "index": name, "pages": (low + high) / 2, "share": 100 * count / total,
                "tip": f"{name}\n{low:,g} to {high:,g} page reads\n{count:,} queries ({count / total:.1%})",
            }
            for (low, high), count in zip(pairwise(edges), counts[name], strict=True)
        ]  # fmt: skip
    channels = {
        "x": number("pages", "page reads a query", zero=False, nice=False),
        "y": {**number("share", "% of the queries"), "stack": None},
        "color": series.colours(),
    }
    area = {"type": "area", "interpolate": "step", "line": True, "fillOpacity": 0.16, "aria": False}
    marks = points(**channels, opacity=_QUIET) | _only("datum.share > 0")
    return chart("Histogram of page reads a query, for each index", values, layer(area, **channels), marks)


def difference_histogram(paired: Row, base: str, label: str, factor: float = 1.0) -> Spec:
    """Draw how much more or less each query cost than with the first index."""
    edges = [edge * factor for edge in paired["edges"]]
    total = sum(paired["counts"])
    values = [
        {
            "low": low, "high": high, "share": 100 * count / total,
            "colour": f"var(--{'good' if high <= 0 else 'bad' if low >= 0 else 'soft'})",
            "tip": f"{low:+,g} to {high:+,g} {label}\n{count:,} queries ({count / total:.1%})",
        }
        for (low, high), count in zip(pairwise(edges), paired["counts"], strict=True)
        if count
    ]  # fmt: skip
    mean, low, high = (paired[f"difference{end}"] * factor for end in ("", "_low", "_high"))
    signed = {"labelExpr": "datum.value ? format(datum.value, '+,~g') : '0'"}
    x = number("low", f"{label} more than {base}", signed, zero=False)
    y = {**number("share", "% of the queries"), "stack": None}
    interval = {
        "low": low,
        "high": high,
        "tip": f"mean {mean:+,.4g}\n95% interval {low:+,.4g} to {high:+,.4g}",
    }
    return chart(
        f"Histogram of differences in {label} of {paired['index']} to {base}",
        values,
        layer({"type": "bar", "opacity": 0.75}, x={**x, "bin": "binned"}, x2={"field": "high"}, y=y, color=_OWN),
        line_at(0, x),
        layer({"type": "rect", "color": "var(--ink)", "opacity": 0.16}, [interval], x=x, x2={"field": "high"}),
        line_at(mean, x, strokeWidth=2),
    )  # fmt: skip


def ratios(lines: Sequence[Row], floor: Row, series: Series, policy: str) -> dict[str, Spec]:
    """Draw the ratios to the first index at each recall with their intervals, above the noise of the A/A run.

    Returns
    -------
    dict
        A chart for each of `FIGURES`, with one scale.
    """
    base = series.names[0]
    shown = [line for line in lines if line["policy"] == policy and line["index"] != base]
    bases = {line["recall"]: line for line in lines if line["policy"] == policy and line["index"] == base}
    values = {
        key: [_ratio(line, bases[line["recall"]], key, len(series.names) > 2) for line in shown]
        for key in FIGURES
    }
    noise = {
        key: {"low": 1 / (1 + floor[key]), "high": 1 + floor[key],
              "tip": f"the first index against itself\nratios of {1 / (1 + floor[key]):.3f} to {1 + floor[key]:.3f}"}
        for key in FIGURES
    }  # fmt: skip
    ends = [row[end] for key in FIGURES for row in [*values[key], noise[key]] for end in ("low", "high")]
    known = [end for end in ends if end]
    domain = [min(known) / 1.02, max(known) * 1.02]
    times: Spec = {"labelExpr": "format(datum.value, '.3~g') + 'x'"}
    if domain[1] > 2 * domain[0]:
        times["values"] = [ratio for ratio in _RATIOS if domain[0] <= ratio <= domain[1]]
    ends_at = {"expr": f"max(width - {_FIGURE}, width / 2)"}
    x = logarithmic("low", None, times, domain=domain, clamp=True, padding=0, rangeMin=8, rangeMax=ends_at)
    named = list(dict.fromkeys(row["row"] for row in values["pages_read"]))
    y = {"field": "row", "type": "nominal", "title": None, "scale": {"domain": named}}
    return {
        key: chart(
            f"{FIGURES[key]}: ratios to {base} at equal recall with {policy} search, with 95% intervals",
            values[key],
            layer({"type": "rect", "color": "var(--line)"}, [noise[key]], x=x, x2={"field": "high"}),
            line_at(1, x),
            layer({"type": "rule", "strokeWidth": 5, "strokeCap": "round", "opacity": 0.3, "aria": False},
                  x=x, x2={"field": "high"}, y=y, color=series.colours()),
            points(x={**x, "field": "ratio"}, y=y, color=series.colours()),
            *(layer({**_FIGURES_TEXT, **paint}, x={**x, "field": "high"}, y=y, text={"field": "said"})
              for paint in (_HALO, {"color": "var(--ink)"})),
            layer({"type": "text", "align": "left", "dx": 8, "color": "var(--soft)"},
                  x={"value": 0}, y=y, text={"field": "tip"}) | _only("datum.ratio == null"),
            height=26 * len(named),
        )
        for key in FIGURES
    }  # fmt: skip


def _ratio(line: Row, base: Row, key: str, named: bool) -> Row:
    """Return one ratio, its interval, and what they are in figures; or say why there is none."""
    place = f"recall {line['recall']:.2f}"
    # The recall comes first: the end of a long name is cut where the page is narrow.
    row = {"index": line["index"], "row": f"{line['recall']:.2f}: {line['index']}" if named else place}
    ratio = line[f"{key}_ratio"]
    if ratio is None:
        return row | {"ratio": None, "low": None, "high": None, "tip": _no_ratio(line, base, key)}
    tip = f"{line['index']} at {place}\n{FIGURES[key]}: {ratio:.3f}x"
    low, high = line.get(f"{key}_ratio_low"), line.get(f"{key}_ratio_high")
    if low is None or high is None:
        low = high = ratio
    else:
        tip += f"\n95% interval {low:.3f} to {high:.3f}"
    return row | {"ratio": ratio, "low": low, "high": high, "said": f"{ratio:.2f}x", "tip": tip}


def _no_ratio(line: Row, base: Row, key: str) -> str:
    """Say which curve does not cross the recall, and on which side of it that one lies."""
    if line[key] is None:
        return "not reached"
    if line[f"{key}_bound"]:
        return "starts above"
    return f"not reached by {base['index']}" if base[key] is None else f"{base['index']} starts above"


def stacked_bars(title: str, unit: str, lines: Iterable[tuple[str, Mapping[str, tuple[float, str]]]]) -> Spec:
    """Draw amounts one after the other, a bar for each line.

    Parameters
    ----------
    lines : iterable of (name, parts)
        Parts map a name to an amount and its colour.
    """
    values = [
        {
            "name": name,
            "place": i,
            "amount": amount,
            "colour": colour,
            "tip": f"{name}\n{part}: {amount:,.1f} {unit}",
        }
        for name, parts in lines
        for i, (part, (amount, colour)) in enumerate(parts.items())
    ]
    bars = layer(
        {"type": "bar", "stroke": "var(--card)"}, x={**number("amount", unit), "stack": "zero"},
        y={"field": "name", "type": "nominal", "title": None, "sort": None},
        color=_OWN, order=number("place"),
    )  # fmt: skip
    return chart(title, values, bars, height=32 * len({row["name"] for row in values}))


def right_answers(k: int) -> Spec:
    """Draw right answers at hand against pages read; the page explorer sets ``steps``, ``most`` and ``done``.

    Rows of ``steps`` have ``side, pages, right, last, colour, tip``; ``last`` is how many pages the side read,
    ``most`` how many the longer side did.
    """
    whole = {"tickMinStep": 1, "format": "d"}
    x = number("pages", "pages read", whole, domainMin=0, domainMax={"expr": "most"}, nice=False)
    y = number("right", "right answers at hand", whole, domain=[0, k])
    side: Spec = {"x": x, "y": y, "color": _OWN, "detail": {"field": "side"}}
    marks = points(**side) | _only("datum.pages == min(done, datum.last)")
    done = layer({"type": "rule", "opacity": 0.55, "aria": False}, x=x) | _only("datum.pages == done")
    line = layer({**_LINE, "interpolate": "step-after"}, **side)
    return chart("Right answers at hand against pages read", [], done, line, marks, height=170) | {
        "data": {"name": "steps", "values": []},
        "params": [{"name": "done", "value": 0}, {"name": "most", "value": 1}],
    }


def chart(title: str, rows: Sequence[Row], *layers: Spec, height: int = 300) -> Spec:
    """Put layers over each other, as wide as the page's column; those without rows of their own take `rows`."""
    return {
        "description": title, "width": "container", "height": height, "data": {"values": rows}, "layer": list(layers),
    }  # fmt: skip


def layer(mark: Spec, rows: Sequence[Row] | None = None, /, **channels: Spec) -> Spec:
    """Draw a mark for each row, which says the row's tip unless screen readers pass it by (``aria``)."""
    own = {} if rows is None else {"data": {"values": rows}}
    said = {} if mark.get("aria") is False else _SAID
    return {"mark": mark, **own, "encoding": {**channels, **said}}


def points(**channels: Spec) -> Spec:
    """Draw a dot for each row; the one nearest to the pointer grows and says its tip."""
    channels["size"] = {"condition": {**_NEAR, "value": 130}, "value": 50}
    select = {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"}
    mark = {"type": "point", "filled": True, "opacity": 1, "stroke": "var(--card)", "strokeWidth": 1}
    return layer(mark, **channels) | {"params": [{"name": "near", "select": select}]}


def line_at(value: float, x: Spec, **style: Any) -> Spec:
    """Draw a vertical line at a value of the channel `x`."""
    return layer({"type": "rule", "aria": False, **style}, [{x["field"]: value}], x=x)


def number(field: str, title: str | None = None, axis: Spec | None = None, **scale: Any) -> Spec:
    """Encode an amount, from zero unless `scale` says otherwise."""
    return {"field": field, "type": "quantitative", "title": title, "axis": axis or {}, "scale": scale}


def logarithmic(field: str, title: str | None = None, axis: Spec | None = None, **scale: Any) -> Spec:
    """Encode a cost, where factors matter."""
    return number(field, title, axis, **({"type": "log", "nice": False, "padding": 12} | scale))


def _only(test: str) -> Spec:
    return {"transform": [{"filter": test}]}
