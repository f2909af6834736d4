"""Tables of the parts that repeat a paper's experiment, beside what the paper reports."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.cells import figure, number, setting, table, value
from indexmill.jobs.bench.common.curves import key
from indexmill.jobs.bench.common.papers import (
    AIO_FAST_SHARE,
    AIO_GAIN,
    AIO_SLOWEST_US,
    BANDWIDTHS,
    TABLE_4,
    TABLE_6,
)


def ablation(part: dict[str, Any], images: str) -> str:
    """DiskANN++ Table VI."""
    low, high = (key(recall) for recall in part["recalls"])
    rows, papers = [], []
    for name, (paper_low, paper_high) in TABLE_6.items():
        found = part["rows"][name]
        rows.append([name, *_row(found[low]), *_row(found[high])])
        papers.append(
            [name]
            + [
                cell
                for one in (paper_low, paper_high)
                for cell in (f"{one.qps:,.0f} ({one.ratio:.2f}x)", f"{one.ios:.0f}", f"{one.hops:.1f}")
            ]
        )
    text = (
        "DiskANN++ Table VI: query-sensitive entry vertex (A, here 1,024 centroids, else the medoid),"
        " isomorphic mapping (B, star + FFD, else identity) and page search (C, else beam search), beam"
        f" width 4, {part['threads']} threads with one query each, medians of {len(part['rounds'])} rounds in"
        " turns. Ratios are to the first row of the same round. Reads of B alone fall a little because"
        " vertices of one page that are wanted at once take one read here."
    )
    beside = (
        "The paper's, for sift100M at recall@100 of 85% and 97%: other data, another recall (of 100"
        " neighbours, not 10) and another machine, so its ratios compare and its sizes do not:"
    )
    return (
        f"### What each component brings\n\n{text}\n\n"
        + table(_names(f"at {low}", f"at {high}"), rows, "lrrrrrr")
        + f"\n\n{beside}\n\n"
        + table(_names("85%", "97%"), papers, "lrrrrrr")
    )


def _names(low: str, high: str) -> list[str]:
    return ["", *(f"{what} {at}" for at in (low, high) for what in ("QPS", "reads", "hops"))]


def _row(found: dict[str, Any]) -> list[str]:
    qps = value(found["qps"])
    shown = qps if found["ratio"] is None else f"{qps} ({value(found['ratio'], 2, 'x')})"
    return [shown, number(found["pages_read"], 1), number(found["hops"], 1)]


def bandwidth(part: dict[str, Any], images: str) -> str:
    """DiskANN++ Table IV."""
    rounds = len(next(iter(part["cells"].values()))["rounds"])
    names = ("centroids", *(f"{one} MB/s" for one in part["bandwidths_mb_per_s"]))
    rows = [
        [f"{n:,}"]
        + [figure(part["cells"][str(one)]["speedup"][str(n)], 2, "x") for one in part["bandwidths_mb_per_s"]]
        for n in part["entries"]
    ]
    papers = [[f"{n:,}", *(f"{one:.2f}x" for one in found)] for n, found in TABLE_4.items()]
    text = (
        f"DiskANN++ Table IV: queries a second at recall@10 {part['recall']} with so many centroid entries,"
        " over those from the medoid, on simulated devices of that bandwidth: reads take as long as one at a"
        f" time took on this machine's disk (median {_median(part['latency_us']):.0f} us), and all of them"
        f" together move at most so many megabytes a second. Order {part['order']},"
        f" {setting(part['setting'])}. Medians of {rounds} rounds in turns. Where bandwidth is the limit"
        " the figure is the ratio of page reads."
    )
    sides = "l" + "r" * len(BANDWIDTHS)
    return (
        f"### Centroids and bandwidth\n\n{text}\n\n{table(names, rows, sides)}\n\n"
        "The paper's, with 100 times as many vectors:\n\n" + table(names, papers, sides)
    )


def _median(latency: list[list[float]]) -> float:
    return next(us for at, us in latency if at >= 0.5)


def completion(part: dict[str, Any], images: str) -> str:
    """AIO-ANN figures 5 and 2."""
    keys = [key(recall) for recall in part["recalls"]]
    rows = [
        [f"recall@{k}", f"completion / {'our beam' if other == 'beam' else other}"]
        + [figure(part["gain"][of][other][at], 2, "x") for at in keys]
        for k, of in ((10, "recall"), (1, "recall1"))
        for other in ("beam", "DiskANN")
    ]
    least, most = AIO_GAIN
    text = (
        f"AIO-ANN Figure 5: {part['threads']} threads. `beam` and `completion` search the identity order from"
        " the medoid with beam width 4 and one query a thread, as DiskANN does: only what happens when a"
        " read lands differs. `pipeline` is the default on the star order with 8 queries a thread. Medians"
        f" of {len(part['rounds'])} rounds in turns. The paper reports {least:.0%} to {most:.0%} over DiskANN"
        " between 90% and 95%."
    )
    return (
        f"### Completion-driven search\n\n{text}\n\n![Recall against queries a second, four"
        f" threads]({images}/completion.svg)\n\n"
        + table(("", "queries a second", *(f"at {at}" for at in keys)), rows, "llrr")
        + "\n\n"
        + _read_times(part["reads"], images)
    )


def _read_times(reads: list[dict[str, Any]], images: str) -> str:
    shown = ("50", "90", "98.5", "99", "99.9", "99.99", "100")
    rows = [
        [one["depth"], number(one["reads_per_s"]), f"{one['below_100_us']:.1%}"]
        + [number(one["percentiles_us"][p]) for p in shown]
        for one in reads
    ]
    text = (
        f"AIO-ANN Figure 2, how long reads take: the paper saw {AIO_FAST_SHARE:.1%} below 100 microseconds"
        f" and the slowest at {AIO_SLOWEST_US:,}. Random 4 KiB reads of the star index past the page cache,"
        " microseconds:"
    )
    names = ("in flight", "reads/s", "below 100 us", *(f"P{p}" if p != "100" else "slowest" for p in shown))
    return (
        f"{text}\n\n![Distribution of read times at several queue depths]({images}/read-times.svg)\n\n"
        + table(names, rows, "r" * len(names))
    )
