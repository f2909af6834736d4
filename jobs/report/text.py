"""The words and figures of a report: the headline, the cards, the table of noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from indexmill.jobs.compare.costs import show_ratio
from indexmill.jobs.console.tables import human_bytes

Row = dict[str, Any]
#: Figures that are compared, by the key of a row.
FIGURES = {
    "pages_read": "page reads", "latency_us_mean": "mean latency", "latency_us_p99": "P99 latency",
    "qps": "queries a second",
}  # fmt: skip
#: Stages that order the nodes: of a build, those of star packing in districts included; of a layout, those that choose
#: and weigh an order, too.
ORDERING = {
    "build": ("borders", "settle", "districts", "rests", "order"),
    "layout only": ("sample", "try", "order", "record", "bundle", "judge"),
}


def headline(lines: Sequence[Row], k: int, policy: str, recall: float | None) -> str:
    """Say in one sentence which index needs the fewest page reads at `recall`, against the first index."""
    here = [line for line in lines if line["policy"] == policy and line["recall"] == recall]
    if recall is None or not here:
        return "The curves have none of the recalls compared in common; see the table of the sweep."
    base = here[0]
    if len(here) == 1:
        return f"At recall@{k} of {recall:.2f}, {base['index']} needs {base['pages_read']:.1f} page reads a query."
    best = min(here[1:], key=lambda line: line["pages_read"])
    low, high = best["pages_read_ratio_low"], best["pages_read_ratio_high"]
    interval = "" if low is None else f" (95% interval {low:.2f} to {high:.2f})"
    return (
        f"At recall@{k} of {recall:.2f}, {best['index']} needs {best['pages_read']:.1f} page reads a query,"
        f" {base['index']} {base['pages_read']:.1f}: {show_ratio(best['pages_read_ratio'])}{interval}."
    )


def cards(lines: Sequence[Row], floor: Row, policy: str, recall: float | None) -> list[tuple[str, str, str]]:
    """Figure, what it is and how sure it is, of the index with the fewest page reads against the first."""
    here = [line for line in lines if line["policy"] == policy and line["recall"] == recall]
    if len(here) < 2:
        return []
    best = min(here[1:], key=lambda line: line["pages_read"])
    found = []
    for key, what in FIGURES.items():
        ratio = best[f"{key}_ratio"]
        if ratio is None:
            continue
        low, high = best.get(f"{key}_ratio_low"), best.get(f"{key}_ratio_high")
        sure = "" if low is None or high is None else f"95% interval {low:.2f} to {high:.2f}"
        if key != "pages_read":
            sure = " · ".join(part for part in (sure, f"A/A noise ± {floor[key]:.1%}") if part)
        found.append((show_ratio(ratio), what, sure))
    return found


def fact_list(setting: Row, provenance: Row) -> list[str]:
    """Conditions of the measurements, a few words each."""
    kind = "rows of the input, each left out of its own results" if setting["leave_one_out"] else "queries"
    machine = provenance["machine"]
    plural = "s" if setting["threads"] > 1 else ""
    return [
        provenance["date"].replace("T", " ").replace("+00:00", " UTC"),
        f"{setting['queries']:,} {kind}",
        f"k = {setting['k']}",
        f"entry {setting['entry']}",
        f"beam width {setting['beam_width']}",
        f"{setting['threads']} thread{plural}, {setting['inflight']} queries in flight each",
        f"median of {setting['repeat']}" if setting["repeat"] > 1 else "one run each",
        f"{machine['cores']} cores of {machine['cpu']}, {human_bytes(machine['memory_bytes'])}",
    ]


def paired_cells(detail: Row, base: str) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table of paired differences; times in microseconds."""
    headings = ["index", "cost", base, "this index", "difference", "95% interval", "lower", "equal", "higher"]
    cells = []
    for one in detail["paired"]:
        digits = 1 if one["cost"] == "pages_read" else 0
        values = [one["base_mean"], one["mean"]]
        cells.append(
            [
                one["index"],
                "page reads" if one["cost"] == "pages_read" else "latency, us",
                *(f"{value:,.{digits}f}" for value in values),
                f"{one['difference']:+,.{digits}f}",
                f"{one['difference_low']:+,.{digits}f} to {one['difference_high']:+,.{digits}f}",
                *(f"{one[key]:.1%}" for key in ("less", "equal", "more")),
            ]
        )
    return headings, cells


def noise_cells(noise: Row) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table of A/A ratios, the floor in the last line."""
    cells = [
        [one["policy"], str(one["L"]), f"{one['recall']:.4f}", *(f"{one[key]:.3f}x" for key in FIGURES)]
        for one in noise["ratios"]
    ]
    floor = ["floor", "", "", *(f"± {noise['floor'][key]:.1%}" for key in FIGURES)]
    return ["policy", "L", "recall", "page reads", "mean latency", "P99 latency", "qps"], [*cells, floor]


def ordering_seconds(row: Row) -> float | None:
    """Return the seconds in which the nodes of an index were ordered, by its row of costs; None where nobody knows.

    A build notes 0 seconds for a stage that it took over from another one.
    """
    seconds = [row["seconds"][name] for name in ORDERING[row["of"]] if name in row["seconds"]]
    is_taken_over = row["of"] == "build" and not all(seconds)
    return None if is_taken_over or not seconds else sum(seconds)


def build_cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table of the costs of building, or of laying out again."""
    headings = ["index", "costs of", "seconds", "of them order", "emit", "peak memory", "workers", "started"]
    return headings, [
        [
            row["index"],
            row["of"],
            f"{sum(row['seconds'].values()):,.1f}",
            *(
                "-" if took is None else f"{took:,.1f}"
                for took in (ordering_seconds(row), row["seconds"].get("emit"))
            ),
            "-" if row["peak_memory_bytes"] is None else human_bytes(row["peak_memory_bytes"]),
            "-" if row["workers"] is None else f"{row['workers']:g}",
            row["started"],
        ]
        for row in rows
    ]


def byte_cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table of bytes read and used."""
    headings = ["index", "L", "recall", "pages", "read", "used", "used / read", "hops", "distances"]
    return headings, [
        [
            row["index"],
            str(row["L"]),
            f"{row['recall']:.4f}",
            f"{row['pages_read']:.1f}",
            human_bytes(row["bytes_read"]),
            human_bytes(row["bytes_used"]),
            f"{row['bytes_used'] / row['bytes_read']:.1%}" if row["bytes_read"] else "-",
            f"{row['hops']:.1f}",
            f"{row['distances']:,.0f}",
        ]
        for row in rows
        if not row["again"]
    ]
