"""Tables of the benchmark of layouts, for the page of benchmarks and the guide to layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import tables
from indexmill.jobs.bench.common.cells import NOT_REACHED, figure, number, share, table, value
from indexmill.jobs.bench.common.curves import key
from indexmill.jobs.bench.layouts import tables_speed as tables_layouts_speed
from indexmill.jobs.bench.layouts.targets import TARGETS

MARKS = ("<!-- layouts: begin -->", "<!-- layouts: end -->")
POLICIES, ENTRIES = ("page", "pipeline"), ("navigation", "centroids")
#: The index that the guide shows.
GUIDE_CASE = "sift1m-R32"
MB = 1e6


def write_pages(record: dict[str, Any], source: str, page: Path, guide_page: Path) -> None:
    """Write the tables of `record`, which is kept in `source`, into both pages."""
    tables.write_into(page, render(record, source), MARKS)
    tables.write_into(guide_page, guide(record, source), MARKS)


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`, which is kept in `source`; parts that were not measured have none."""
    parts = record["parts"]
    cases = list(record["parameters"]["indexes"])
    sections = [tables.render(record, source, "", {}, TARGETS).strip()]
    for case in cases:
        fit, reads, command = (parts.get(f"{part}-{case}") for part in ("fit", "reads", "command"))
        if fit or reads:
            sections.append(_case(case, fit, reads, command))
    sections += tables_layouts_speed.sections(parts, cases)
    return "\n\n".join(sections) + "\n"


def _case(
    case: str, fit: dict[str, Any] | None, reads: dict[str, Any] | None, command: dict[str, Any] | None
) -> str:
    shape = (fit or reads or {})["index"]
    head = (
        f"### {case}\n\n{shape['n_vectors']:,} vectors of {shape['dim']} components, R = {shape['R']}, codes of"
        f" {shape['pq_bytes']} bytes, {shape['nodes_per_page']} nodes a page."
    )
    pieces = [head]
    if reads:
        pieces[0] += f" Fewest page reads of the tuning queries: **{reads['best']}**."
    if fit:
        pieces += [_costs(fit, reads), _gorder(fit)]
    if command:
        pieces.append(_command(command))
    if reads:
        pieces += [_reads(reads, entry) for entry in ENTRIES] + [_ratios(reads), _written(reads["written"])]
    return "\n\n".join(pieces)


def _costs(fit: dict[str, Any], reads: dict[str, Any] | None) -> str:
    """DiskANN++ Tables I and V with more columns."""
    found = {} if reads is None else places(reads)
    rows = []
    for order, cost in fit["orders"].items():
        metrics = cost["metrics"]
        rows.append(
            (
                order, number(cost["seconds"], 2), number(cost["bytes"] / MB, 0),
                f"{metrics['overlap_ratio']:.3f}", f"{metrics['in_page_edges']:.3f}",
                f"{metrics['page_compactness']:.3f}", *_gain(found, order),
            )
        )  # fmt: skip
    names = (
        "order", "seconds", "memory MB", "overlap ratio", "in-page edges", "page compactness",
        "page reads at 0.95", "identity / order at 0.95", "at 0.98",
    )  # fmt: skip
    text = (
        f"Costs with {fit['threads']} threads, medians of {_repeats(fit)} runs where one takes less than 15 s; page"
        " reads with page search from the navigation graph."
    )
    return f"{text}\n\n" + table(names, rows, "lrrrrrrrr")


def _repeats(fit: dict[str, Any]) -> int:
    return max(len(cost["runs"]) for cost in fit["orders"].values())


def _gain(found: dict[tuple[str, str, str], Any], order: str) -> list[str]:
    """Page reads at 0.95, and how many times fewer than in input order they are at 0.95 and at 0.98."""
    if not found:
        return ["", "", ""]
    cells = [value(found[order, "page", "navigation"]["pages_read"]["0.95"], 1)]
    for at in ("0.95", "0.98"):
        plain, mine = (found[who, "page", "navigation"]["pages_read"][at] for who in ("identity", order))
        known = plain is not None and mine is not None
        cells.append(number(plain["value"] / mine["value"], 2, "x") if known else NOT_REACHED)
    return cells


def _gorder(fit: dict[str, Any]) -> str:
    held, streamed = fit["gorder_held"], fit["orders"]["gorder"]["bytes"]
    return (
        f"Our Gorder takes {number(fit['gorder_to_star_s'], 1)} times as long as star packing, which has"
        f" {share(fit['star_to_gorder_bytes'])} of its memory ({number(streamed / MB)} MB, neighbour lists in a mapped"
        f" file); one that holds the lists in memory takes {number(held['bytes'] / MB)} MB, of which it is"
        f" {share(fit['star_to_gorder_held_bytes'])}."
    )


def _command(command: dict[str, Any]) -> str:
    return (
        "`indexmill layout --order star` as a whole, files written and published:"
        f" {number(command['wall_s'], 1)} s; its memory grows by {number(command['growth_bytes'] / MB, 1)} MB,"
        f" {command['to_index']:.1%} of the index's size, to {number(command['process_bytes'] / MB)} MB with"
        " interpreter and libraries."
    )


def places(reads: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return what was measured by order, policy and entry."""
    return {(row["order"], row["policy"], row["entry"]): row for row in reads["settings"]}


def _reads(reads: dict[str, Any], entry: str) -> str:
    found, keys = places(reads), [key(r) for r in reads["recalls"]]
    rows = []
    for order in dict.fromkeys(place[0] for place in found):
        cells = []
        for policy in POLICIES:
            row = found[order, policy, entry]
            cells += [value(row["pages_read"][at], 1) for at in keys] + [
                figure(row["to_star"]["0.95"], 3, "x")
            ]
        rows.append((order, *cells))
    names = [
        f"{policy}, {what}"
        for policy in POLICIES
        for what in (*(f"at {at}" for at in keys), "/ star at 0.95")
    ]
    beam = found["identity", "beam", entry]["pages_read"]
    text = (
        f"Page reads a query, entry {entry}. Beam search, in input order:"
        f" {', '.join(value(beam[at], 1) for at in keys)}."
    )
    return f"{text}\n\n" + table(("order", *names), rows, "l" + "r" * len(names))


def _ratios(reads: dict[str, Any]) -> str:
    keys = [key(r) for r in reads["recalls"]]
    rows = [
        (name.replace("best", reads["best"]), *setting.split(), *(figure(found[at], 3, "x") for at in keys))
        for setting, ratios in reads["ratios"].items()
        for name, found in ratios.items()
    ]
    return table(("page reads", "policy", "entry", *(f"at {at}" for at in keys)), rows, "lllrrr")


def _written(found: dict[str, Any]) -> str:
    each = sum(row["same_pages_each"] for row in found["rows"])
    return (
        f"The order {found['order']} was written and searched from the disk ({found['engine']}): page reads differ from"
        f" those of its view by {found['worst']:.2%} at most; in {each} of {len(found['rows'])} searches those of every"
        " query are equal."
    )


def guide(record: dict[str, Any], source: str) -> str:
    """Return what the guide shows of `record`: what orders cost and read on one index."""
    parts = record["parts"]
    fit, reads = parts[f"fit-{GUIDE_CASE}"], parts[f"reads-{GUIDE_CASE}"]
    found, shape = places(reads), reads["index"]
    rows = []
    for order, cost in fit["orders"].items():
        cells = [number(cost["seconds"], 1), number(cost["bytes"] / MB)]
        for policy in POLICIES:
            row = found[order, policy, "navigation"]
            cells += [value(row["pages_read"]["0.95"], 1), value(row["to_star"]["0.95"], 2, "x")]
        rows.append((order, *cells))
    names = ("order", "seconds", "memory MB", "page search", "/ star", "pipeline search", "/ star")
    day = max(part["started"] for part in (fit, reads))[:10]
    text = (
        f"Page reads a query at recall@10 = 0.95 on sift1m: {shape['n_vectors']:,} vectors, R = {shape['R']},"
        f" {shape['nodes_per_page']} nodes a page, the last 1,000 queries, from the navigation graph; {day}, record"
        f" `{source}`. Intervals and other indexes: [benchmarks](../benchmarks.md#layouts)."
    )
    return f"{text}\n\n" + table(names, rows, "lrrrrrr") + "\n"
