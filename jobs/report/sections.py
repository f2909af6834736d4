"""The sections of a page: what each shows, and how to read it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from indexmill.jobs.compare.costs import cost_cells, layout_cells
from indexmill.jobs.compare.units import unit_cells
from indexmill.jobs.report import charts, text
from indexmill.jobs.report.blocks import drawing, figure, folded, section, table
from indexmill.jobs.report.markup import Markup, element
from indexmill.jobs.report.series import Series

Row = dict[str, Any]
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
    ("latency_us_p50", "P50 us", ",.0f"),
    ("latency_us_p99", "P99 us", ",.0f"),
    ("qps", "qps", ",.0f"),
)


def gate(verdicts: list[Row] | None) -> Markup | None:
    """Tell what each tolerance of a gate was held against; None without a gate."""
    if verdicts is None:
        return None
    counts = Counter(one["outcome"] for one in verdicts)
    said = [f"{counts['failed']} of {len(verdicts)} tolerances are exceeded."] if counts["failed"] else []
    if counts["inconclusive"]:
        said.append(
            f"{counts['inconclusive']} of {len(verdicts)} figures are lost in the noise of the machine."
        )
    lead = " ".join(said) or "Every figure is within its tolerance."
    lines = []
    for one in verdicts:
        word = one["outcome"]
        mark = element("b", word, class_=word.split()[0])
        lines.append(element("li", mark, element("span", one["sentence"])))
    return section("gate", "Gate", lead, element("ul", *lines, class_="gate"))


def curves(rows: list[Row], series: Series) -> Markup:
    """Draw page reads and throughput against recall."""
    k = rows[0]["k"]
    drawn = charts.recall_curves(rows, series, "pages_read", "page reads a query")
    reads = figure("Page reads", "a query; lower is better", drawn)
    drawn = charts.recall_curves(rows, series, "qps", "queries a second")
    rate = figure("Throughput", "queries a second; higher is better", drawn)
    return section(
        "curves",
        "Recall against cost",
        f"Each point is a search list size L. The recall axis gives every tenfold drop of the misses the same room."
        f" Recall@{k} of all queries.",
        series.legend(policies=True),
        element("div", reads, rate, class_="plots"),
    )


def equal_recall(result: Row, series: Series) -> Markup:
    """Draw and list costs at equal recall, and their ratios to the first index."""
    lines, detail = result["at_recall"], result["detail"]
    chosen = detail["policy"], detail["recall"]
    strong = [i for i, line in enumerate(lines) if (line["policy"], line["recall"]) == chosen]
    base = series.names[0]
    ratios = []
    if len(series.names) > 1:
        drawn = charts.ratios(lines, result["noise"]["floor"], series, detail["policy"])
        better = dict.fromkeys(drawn, "left of 1 is cheaper") | {"qps": "right of 1 is faster"}
        ratios = [
            figure(
                f"{text.FIGURES[key].capitalize()}, ratio to {base}",
                f"{detail['policy']} search; {better[key]}; grey: the first index against itself",
                spec,
            )
            for key, spec in drawn.items()
        ]
    return section(
        "costs",
        "Cost at equal recall",
        "Interpolated linearly in recall between the two neighbouring list sizes. Intervals are over queries"
        " (bootstrap, the same draws for all indexes). ≤ and ≥ mark a curve that is above the recall already at its"
        " smallest list size.",
        series.legend() if len(series.names) > 2 else None,
        element("div", *ratios, class_="plots") if ratios else None,
        table(*cost_cells(lines), title="Cost at equal recall", strong=strong),
    )


def units(result: Row) -> Markup | None:
    """List the units larger than a page that a query reads; None if none were counted."""
    sizes = result.get("units", [])
    if not sizes:
        return None
    return section(
        "units",
        "Units read at equal recall",
        "Aligned blocks of node pages, as object storage and spinning disks are read. A query reads a unit when it"
        " first reads one of its pages. Its steps are those of the search by pages.",
        table(*unit_cells(result["at_recall"], sizes), title="Units read at equal recall"),
    )


def queries(result: Row, series: Series) -> Markup:
    """Draw and list the costs of single queries, and how they differ between indexes."""
    detail, base = result["detail"], series.names[0]
    at = "the largest list size" if detail["recall"] is None else f"recall {detail['recall']:.2f}"
    differences = [
        figure(
            f"{one['index']} against {base}, query by query",
            f"{unit} more or less than with {base}; the line is the mean, the band its 95% interval",
            charts.difference_histogram(one, base, unit, factor),
        )
        for one in detail["paired"]
        for unit, factor in [("page reads", 1.0) if one["cost"] == "pages_read" else ("ms", 1e-3)]
        if not one["again"]
    ]
    found = ", ".join(
        f"{row['index']} with L = {row['L']} (recall {row['recall']:.4f})"
        for row in detail["rows"]
        if not row["again"]
    )
    reads = figure(
        "Page reads of a query", "how often each number occurred", charts.page_histogram(detail, series)
    )
    times = figure(
        "Latency of a query", "share of queries answered within a time", charts.latency_curves(detail, series)
    )
    return section(
        "queries",
        "Query by query",
        f"All queries at {at} with {detail['policy']} search: {found}.",
        series.legend(again=f"{base}, measured again"),
        element("div", reads, times, *differences, class_="plots"),
        table(*text.paired_cells(detail, base), title="Paired differences"),
    )


def layout(result: Row, series: Series) -> Markup:
    """Draw bytes used of bytes read, and list what the layouts are worth on paper."""
    rows = [row for row in result["detail"]["rows"] if not row["again"]]
    lines = [
        (
            row["index"],
            {
                "used": (row["bytes_used"] / 1024, series.colour(row["index"])),
                "read for nothing": ((row["bytes_read"] - row["bytes_used"]) / 1024, "var(--line)"),
            },
        )
        for row in rows
    ]
    return section(
        "layout",
        "Layout",
        "In colour, bytes of nodes whose edges were followed, of the bytes read a query. Below, what each layout is"
        " worth on paper: proxies, which the page reads above judge.",
        drawing(charts.stacked_bars("Bytes used, of the bytes read", "KiB a query", lines)),
        table(*text.byte_cells(rows), title="Bytes read and used"),
        table(*layout_cells(result["layout"]), title="Proxies"),
    )


def build(rows: list[Row]) -> Markup:
    """Draw and list the costs of building."""
    lines = [
        (
            row["index"] if row["of"] == "build" else f"{row['index']}, {row['of']}",
            {
                name: (
                    took,
                    f"var(--{'s1' if name in (*text.ORDERING[row['of']], 'emit') else f'stage{i % 4}'})",
                )
                for i, (name, took) in enumerate(row["seconds"].items())
            },
        )
        for row in rows
    ]
    return section(
        "build",
        "Build and layout cost",
        "Seconds of each stage, in colour those that order and write the pages. A stage of 0 seconds was taken over"
        " from another build with the same work folder. Of an index that was laid out again these are the"
        " costs of the layout only: what its build took is not known any more.",
        drawing(charts.stacked_bars("Seconds of each stage", "seconds", lines)),
        table(*text.build_cells(rows), title="Build and layout cost"),
    )


def noise(noise: Row, base: str) -> Markup:
    """List the ratios of the A/A run."""
    return section(
        "noise",
        "Noise floor",
        f"{base} was opened a second time and measured in turns with the others. The ratios of the two would be 1 on a"
        " quiet machine; 95% of them lie within the floor.",
        folded("All A/A ratios", table(*text.noise_cells(noise), title="A/A ratios")),
    )


def sweep(rows: list[Row]) -> Markup:
    """List all rows of the sweep."""
    lines = [[format(row[key], form) for key, _, form in _SWEEP] for row in rows]
    whole = table([heading for _, heading, _ in _SWEEP], lines, title="The sweep")
    return section("sweep", "The sweep", None, folded(f"All {len(rows)} rows", whole))
