"""Blocks that a page is made of: tables, figures, sections, stacked bars."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from indexmill.jobs.console.tables import holds_words
from indexmill.jobs.report.markup import Markup, element, join

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
        drawn.append(
            element(
                "rect",
                x=left,
                y=0.0,
                width=width,
                height=_BAR_HEIGHT,
                class_=f"mark part {style}",
                data_tip=tip,
            )
        )
        left += width
    return element(
        "svg",
        join(*drawn),
        viewBox=f"0 0 {_BAR_WIDTH:.0f} {_BAR_HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
        class_="stacked",
    )
