"""Tables of what `indexmill layout` chose, of pruning, of the best order beside DiskANN, and of the paper's figures."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.cells import figure, number, setting, share, table, value
from indexmill.jobs.bench.common.curves import key
from indexmill.jobs.bench.common.papers import TABLE_1, TABLE_5

_MB = 1e6


def sections(parts: dict[str, Any], cases: list[str]) -> list[str]:
    """Return the sections of the parts that were measured."""
    found = []
    chosen = {case: parts[f"auto-{case}"] for case in cases if f"auto-{case}" in parts}
    if chosen:
        found.append(_auto(chosen, parts))
    pruned = {case: parts[f"prune-{case}"] for case in cases if f"prune-{case}" in parts}
    if pruned:
        found.append(_prune(pruned))
    if "speed" in parts:
        found.append(_speed(parts["speed"]))
    if f"fit-{cases[0]}" in parts:
        found.append(_paper(parts, cases))
    return found


def _auto(chosen: dict[str, Any], parts: dict[str, Any]) -> str:
    rows = []
    for case, part in chosen.items():
        choice, policies = part["choice"], part["policies"]
        best = parts.get(f"reads-{case}", {}).get("best", "")
        cells = [
            cell
            for policy in ("page", "pipeline")
            for cell in (
                figure(policies[policy]["pages_read"]["0.95"], 1),
                figure(policies[policy]["to_star"]["0.95"], 3, "x"),
            )
        ]
        rows.append(
            (
                case, part["chosen"], best, f"{choice['sample_vectors']:,}", number(part["wall_s"]),
                number(part["told_peak_bytes"] / _MB), *cells,
            )
        )  # fmt: skip
    names = (
        "index", "chosen", "best of all", "vectors of the sample", "seconds", "memory MB", "page reads, page", "/ star",
        "page reads, pipeline", "/ star",
    )  # fmt: skip
    text = (
        "`indexmill layout --order auto` with the first half of the queries; page reads of the second half at 0.95 from"
        " the index that it wrote. Seconds and memory are of the whole command: trials, order and files."
    )
    return f"### What auto chooses\n\n{text}\n\n" + table(names, rows, "lllrrrrrrr")


def _prune(pruned: dict[str, Any]) -> str:
    rows = []
    for case, part in pruned.items():
        if part["reason"]:
            rows.append((case, f"kept none: {part['reason']}", "", "", "", ""))
            continue
        cells = [
            figure(part["policies"][policy][what]["0.95"], digits, unit)
            for policy in ("page", "pipeline")
            for what, digits, unit in (("pages_read", 1, ""), ("to_order", 3, "x"))
        ]
        rows.append((case, part["order"], *cells))
    names = ("index", "order", "page reads, page", "/ without", "page reads, pipeline", "/ without")
    return "### Pruning with regard to pages\n\nExperimental; page reads at 0.95.\n\n" + table(
        names, rows, "llrrrr"
    )


def _speed(part: dict[str, Any]) -> str:
    keys = [key(recall) for recall in part["recalls"]]
    best = part["best"]
    rows = [
        [f"{name}, queries a second", *(figure(rates[at]) for at in keys)]
        for name, rates in part["qps"].items()
    ]
    rows += [
        [f"{name} / DiskANN", *(figure(rates[at], 2, "x") for at in keys)]
        for name, rates in part["ratio"].items()
    ]
    rows += [
        [f"{name} / identity", *(figure(rates[at], 2, "x") for at in keys)]
        for name, rates in part["to_identity"].items()
        if not name.startswith("identity ")
    ]
    rows += [
        [f"{name}, share of the disk's reads", *(share((found[at] or {}).get("value")) for at in keys)]
        for name, found in part["disk_share"].items()
    ]
    rows += [
        [
            f"{name if name == 'DiskANN' else f'{best} {name}'}, page reads",
            *(figure(found[at], 1) for at in keys),
        ]
        for name, found in part["pages_read"].items()
    ]
    rows += [
        [f"{best} {policy} / DiskANN, page reads", *(figure(found[at], 3, "x") for at in keys)]
        for policy, found in part["pages_ratio"].items()
    ]
    used = "; ".join(f"{policy}: {setting(one)}" for policy, one in part["settings"].items())
    disk = part["rounds"][0]["disk"]
    text = (
        f"Widths and queries in flight are chosen on the first half of the queries for {best}: {used}. DiskANN:"
        f" {part['threads']} threads, beam width {part['diskann_width']}. Medians of {len(part['rounds'])} rounds in"
        f" turns; ratios and shares are of the same round. The disk gave {figure(part['disk'])} reads a second in the"
        f" same rounds ({disk['method']}, {disk['depth']} in flight). Page reads are means over the queries, with the"
        f" reader's own widths; DiskANN's are {part['counted']}."
    )
    return f"### The best order beside DiskANN\n\n{text}\n\n" + table(
        ("", *(f"at {at}" for at in keys)), rows, "lrrr"
    )


def _paper(parts: dict[str, Any], cases: list[str]) -> str:
    """DiskANN++ Tables I and V, the paper's figures beside ours."""
    fits = {case: parts[f"fit-{case}"]["orders"] for case in cases if f"fit-{case}" in parts}
    compactness = [
        (name, f"{plain:.6f}", f"{remapped:.3f}", "the paper") for name, (plain, remapped) in TABLE_1.items()
    ]
    compactness += [
        (case, f"{_compactness(orders, 'identity'):.6f}", f"{_compactness(orders, 'star'):.3f}", "ours")
        for case, orders in fits.items()
    ]
    orders, speed, threads = fits[cases[0]], parts.get("speed"), parts[f"fit-{cases[0]}"]["threads"]
    rows = []
    for name, theirs in TABLE_5.items():
        mine = orders[name]
        gain = "" if speed is None else value(speed["to_identity"][f"{name} page"]["0.98"], 2, "x")
        rows.append(
            (
                name, number(theirs.memory_gb, 1), number(mine["bytes"] / 1e9, 3), number(theirs.seconds, 1),
                number(mine["seconds"], 2), f"{theirs.speedup:.2f}x", gain,
            )
        )  # fmt: skip
    names = (
        "order", "GB, paper", "GB, ours", "seconds, paper", "seconds, ours", "speed-up, paper", "speed-up, ours",
    )  # fmt: skip
    return (
        "### Beside the paper\n\nPage compactness (DiskANN++ Table I), and what orders cost and gain (Table V:"
        f" sift100M, 8 threads, recall@100 of 97%; ours: {cases[0]}, {threads} threads, recall@10 of 0.98,"
        " queries a second with page search over those in input order). Only ratios compare.\n\n"
        + table(("set", "input order", "star packing", ""), compactness, "lrrl")
        + "\n\n"
        + table(names, rows, "lrrrrrr")
    )


def _compactness(orders: dict[str, Any], name: str) -> float:
    return float(orders[name]["metrics"]["page_compactness"])
