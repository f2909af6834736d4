"""A comparison as one HTML page that needs nothing else: tables, inline plots, light and dark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import indexmill
from indexmill.formats.atomic import atomic_write
from indexmill.jobs.compare import cost_cells, layout_cells
from indexmill.jobs.plot import PANELS, inline_svg
from indexmill.jobs.tables import holds_words

_TEMPLATE = Path(__file__).with_name("report.html")
#: Columns of the sweep table: key of a row, heading, format.
_SWEEP = (
    ("index", "index", "s"),
    ("policy", "policy", "s"),
    ("L", "L", "d"),
    ("recall", "recall", ".4f"),
    ("pages_read", "page reads", ".1f"),
    ("hops", "hops", ".1f"),
    ("distances", "distances", ",.0f"),
    ("latency_us_mean", "mean us", ",.0f"),
    ("latency_us_p99", "P99 us", ",.0f"),
    ("qps", "qps", ",.0f"),
)


def write_report(result: dict[str, Any], path: Path) -> None:
    """Write the page for what `run_comparison` returned; every string in it is escaped."""
    setting = result["setting"]
    rows = result["sweep"]
    names = list(dict.fromkeys(row["index"] for row in rows))
    kind = "rows of the input, each left out of its own results" if setting["leave_one_out"] else "queries"
    facts = [
        f"{setting['queries']:,} {kind}",
        f"k = {setting['k']}",
        f"entry {setting['entry']}",
        f"beam width {setting['beam_width']}",
        f"{setting['threads']} search thread{'s' if setting['threads'] > 1 else ''}",
        f"indexmill {indexmill.__version__}",
    ]
    sweep = [[format(row[key], form) for key, _, form in _SWEEP] for row in rows]
    page = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=html.escape(" against ".join(names)),
        facts="".join(f"<li>{html.escape(fact)}</li>" for fact in facts),
        headline=html.escape(headline(result["at_recall"], setting["k"])),
        reference=html.escape(names[0]),
        costs=_table(*cost_cells(result["at_recall"])),
        plots="".join(
            f"<figure>{inline_svg(rows, cost)}"
            f"<figcaption>Recall against {html.escape(label)}</figcaption></figure>"
            for cost, label in PANELS.items()
        ),
        layout=_table(*layout_cells(result["layout"])),
        sweep=_table([heading for _, heading, _ in _SWEEP], sweep),
    )
    with atomic_write(path) as file:
        file.write(page.encode("utf-8"))


def headline(lines: Sequence[dict[str, Any]], k: int) -> str:
    """Say in one sentence who needs the fewest page reads, at the highest recall that all curves reach."""
    for target in sorted({line["recall"] for line in lines}, reverse=True):
        here = [line for line in lines if line["recall"] == target]
        if any(line["pages_read"] is None or line["pages_read_bound"] for line in here):
            continue
        best = min(here, key=lambda line: line["pages_read"])
        worst = max(here, key=lambda line: line["pages_read"])
        if best is worst:
            break
        return (
            f"At recall@{k} of {target:.2f}, {best['index']} with {best['policy']} search needs"
            f" {best['pages_read']:.1f} page reads a query, {worst['index']} with {worst['policy']} search"
            f" {worst['pages_read']:.1f}: {worst['pages_read'] / best['pages_read']:.2f} times as many."
        )
    return "The curves cross none of the recalls compared; see the sweep."


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    head = "".join(_cell("th", heading, heading) for heading in headings)
    body = "".join(
        f"<tr>{''.join(_cell('td', h, cell) for h, cell in zip(headings, line, strict=True))}</tr>"
        for line in lines
    )
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cell(tag: str, heading: str, text: str) -> str:
    return f"<{tag}{'' if holds_words(heading) else ' class=n'}>{html.escape(text)}</{tag}>"
