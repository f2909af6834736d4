"""Blocks that a page is made of: tables, charts, figures, sections."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from indexmill.jobs.console.tables import holds_words
from indexmill.jobs.report.markup import Markup, element, embedded_json, finite


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


def drawing(spec: dict[str, Any], **attributes: Any) -> Markup:
    """Put the specification of a chart where the page's script draws it."""
    inside = element("script", embedded_json(finite(spec)), type="application/json")
    return element("div", inside, class_="chart", **attributes)


def figure(title: str, note: str, spec: dict[str, Any]) -> Markup:
    """Put a chart under its title and a line on how to read it."""
    caption = element("figcaption", element("strong", title), element("span", note))
    return element("figure", caption, drawing(spec))


def section(name: str, title: str, lead: str | None, *children: Markup | None) -> Markup:
    """Make a section with a heading that can be linked to."""
    return element(
        "section",
        element("h2", title),
        None if lead is None else element("p", lead, class_="soft"),
        *children,
        id=name,
    )


def folded(title: str, inside: Markup) -> Markup:
    """Show a title that opens what is inside."""
    return element("details", element("summary", title), inside)
