"""The frontier of a comparison: indexes that no other beats in page reads, in time to order and in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from indexmill.jobs.console.tables import human_bytes
from indexmill.jobs.report.blocks import figure, section, table
from indexmill.jobs.report.charts import chart, layer, logarithmic, points
from indexmill.jobs.report.markup import Markup, element
from indexmill.jobs.report.series import Series, Spec
from indexmill.jobs.report.text import ordering_seconds

Row = dict[str, Any]


class Costs(NamedTuple):
    """What an index costs: page reads a query, seconds to order its nodes, and peak memory of the run that did so."""

    pages_read: float
    seconds: float
    peak_bytes: float


def frontier(result: Row, series: Series) -> Markup | None:
    """Draw and list page reads, time and memory of each index; None if they are known of fewer than two."""
    costs = known_costs(result)
    if len(costs) < 2:
        return None
    best, detail = unbeaten(costs), result["detail"]
    cells = [
        [
            name,
            "yes" if name in best else "",
            f"{one.pages_read:.1f}",
            f"{one.seconds:,.1f}",
            human_bytes(one.peak_bytes),
        ]
        for name, one in costs.items()
    ]
    return section(
        "frontier",
        "Page reads, time and memory",
        f"Page reads at recall {detail['recall']:.2f} with {detail['policy']} search, seconds of the stages that"
        " ordered the nodes (of a layout by auto or by a log, those that tried or judged orders, too), and peak memory"
        " of the whole build or layout. An index is on the frontier if no other is as good in all three and better in"
        " one. Indexes whose order was taken over from another build, or in part, are left out.",
        element(
            "div",
            figure("Frontier", "filled: no other index is better", _drawn(costs, best, series)),
            class_="plots one",
        ),
        table(
            ["index", "frontier", "page reads", "order s", "peak memory"],
            cells,
            title="Page reads, time and memory",
            strong=[i for i, name in enumerate(costs) if name in best],
        ),
    )


def known_costs(result: Row) -> dict[str, Costs]:
    """Return the costs of each index of which all are known, page reads where queries are looked at one by one."""
    point = result["detail"]["policy"], result["detail"]["recall"]
    reads = {
        line["index"]: line["pages_read"]
        for line in result["at_recall"]
        if (line["policy"], line["recall"]) == point and not line["pages_read_bound"]
    }
    costs = {}
    for row in result["build"]:
        pages, seconds, peak = reads.get(row["index"]), ordering_seconds(row), row["peak_memory_bytes"]
        if pages and seconds and peak:
            costs[row["index"]] = Costs(pages, seconds, peak)
    return costs


def unbeaten(costs: dict[str, Costs]) -> set[str]:
    """Name those whose costs no other has, or less, with one of them less."""
    return {name for name, one in costs.items() if not any(_beats(other, one) for other in costs.values())}


def _beats(one: Costs, other: Costs) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _drawn(costs: dict[str, Costs], best: set[str], series: Series) -> Spec:
    rows = [
        {
            "index": name, "seconds": one.seconds, "reads": one.pages_read, "best": name in best,
            "tip": f"{name}\n{one.pages_read:.1f} page reads\n{one.seconds:,.1f} s to order\n"
            + human_bytes(one.peak_bytes),
        }
        for name, one in costs.items()
    ]  # fmt: skip
    x = logarithmic("seconds", "seconds to order", padding=60)
    y = logarithmic("reads", "page reads a query", padding=30)
    names = layer({"type": "text", "dy": -14, "limit": 150, "aria": False}, x=x, y=y, text={"field": "index"})
    filled: Spec = {"condition": {"test": "datum.best", "value": 1}, "value": 0.15}
    dots = points(x=x, y=y, color=series.colours(), stroke=series.colours(), fillOpacity=filled)
    return chart("Page reads of each index against the seconds that its order took", rows, names, dots)
