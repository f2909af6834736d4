"""Tables of the parts that build: cost, graph and layout."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.cells import number, table
from indexmill.jobs.bench.sift1m.targets import GIB


def build(part: dict[str, Any], images: str) -> str:
    """Cost of both builds, and the stages of ours."""
    rows = []
    for side in ("diskann", "indexmill"):
        cost = part[side]
        memory, file = cost["peak_bytes"] / GIB, cost["graph_file_bytes"] / 1e6
        rows.append((side, f"{cost['wall_s']:.0f}", f"{cost['cpu_s']:.0f}", f"{memory:.2f}", f"{file:.0f}"))
    rows.append(("ratio", number(part["wall_ratio"], 2), number(part["cpu_ratio"], 2), "", ""))
    mine = part["indexmill"]
    stages = [(name, f"{seconds:.1f}") for name, seconds in mine["stage_s"].items()]
    return (
        "### Build\n\n"
        + table(("", "wall s", "CPU s", "peak GiB", "graph file MB"), rows, "lrrrr")
        + f"\n\nOne build each. Mean degree {mine['graph']['mean_degree']:.1f}. Stages of indexmill:\n\n"
        + table(("stage", "s"), stages, "lr")
    )


def quality(part: dict[str, Any], images: str) -> str:
    """Distances by list size of one search over both graphs."""
    rows = [
        (a["L"], f"{a['recall']:.4f}", f"{a['distances']:.0f}", f"{b['recall']:.4f}", f"{b['distances']:.0f}")
        for a, b in zip(part["diskann"]["rows"], part["indexmill"]["rows"], strict=True)
    ]
    both = [number(part[side]["distances"]) for side in ("diskann", "indexmill")]
    line = f"Distances a query at recall@10 {part['recall']}: DiskANN {both[0]}, indexmill {both[1]}"
    names = ("L", "DiskANN recall", "distances", "indexmill recall", "distances")
    return f"### Graph\n\n{line}, ratio {number(part['distances_ratio'], 3)}.\n\n" + table(
        names, rows, "rrrrr"
    )


def compactness(part: dict[str, Any], images: str) -> str:
    """Proxies of the layout of large nodes."""
    layout = part["layout"]
    return (
        f"### Layout of float32 vectors\n\nStar order, 6 nodes a page: page compactness"
        f" {layout['page_compactness']:.3f}, overlap ratio {layout['overlap_ratio']:.3f}; stage `order`"
        f" {part['order_s']:.1f} s."
    )
