"""Blocks that a page is made of: tables, figures, sections, stacked bars."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from indexmill.jobs.console.tables import holds_words
from indexmill.jobs.report.axes import box, plot
from indexmill.jobs.report.markup import Markup, element

#: Of a stacked bar, in its own units.
_BAR_WIDTH, _BAR_HEIGHT = 1000.0, 22.0


def table(
    headings: Sequence[str], lines: Sequence[Sequence[str | None]], title: str, strong: Collection[int] = ()
) -> Markup:
    """Make a table that scrolls where it is too wide; lines of numbers `strong` stand out."""
    kinds = [None if holds_words(heading) else "n" for heading in headings]
    head = [element("th", h, class_=kind, scope="col") for h, kind in zip(headings, kinds, strict=True)]
    body = [
        element(
            "tr",
            *(element("td", cell, class_=kind) for cell, kind in zip(line, kinds, strict=True)),
            class_="strong" if i in strong else None,
        )
        for i, line in enumerate(lines)
    ]
    inside = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", inside, class_="wide", tabindex=0, role="region", aria_label=title)


def figure(title: str, note: str, drawing: Markup) -> Markup:
    """Put a plot under its title and a line on how to read it."""
    caption = element("figcaption", element("strong", title), element("span", note))
    return element("figure", caption, drawing)


def section(name: str, title: str, lead: str | None, *children: Markup | None) -> Markup:
    """Make a section with a heading that can be linked to."""
    return element(
        "section",
        element("h2", title),
        None if lead is None else element("p", lead, class_="soft"),
        *children,
        id=name,
    )


def stacked_bar(parts: Mapping[str, tuple[float, str]], most: float, title: str) -> Markup:
    """Draw amounts one after the other on a bar of width `most`.

    Parameters
    ----------
    parts : mapping
        Name to amount and class.
    """
    drawn, left = [], 0.0
    for name, (amount, style) in parts.items():
        width = _BAR_WIDTH * amount / most if most else 0.0
        if width <= 0:
            continue
        tip = f"{name}: {amount:,.1f}"
        drawn.append(box(left, 0.0, width, _BAR_HEIGHT, f"mark part {style}", tip))
        left += width
    return plot(title, *drawn, size=(_BAR_WIDTH, _BAR_HEIGHT), class_="stacked", preserveAspectRatio="none")


def bars(lines: Iterable[tuple[str, Mapping[str, tuple[float, str]], str]], most: float) -> Markup:
    """Put stacked bars of one scale under each other.

    Parameters
    ----------
    lines : iterable of (name, parts, title)
        See `stacked_bar`.
    """
    rows = [
        element("div", element("span", name), stacked_bar(parts, most, title), class_="bar-row")
        for name, parts, title in lines
    ]
    return element("div", *rows, class_="bars")


def folded(title: str, inside: Markup) -> Markup:
    """Show a title that opens what is inside."""
    return element("details", element("summary", title), inside)
