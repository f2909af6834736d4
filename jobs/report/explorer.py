"""The page explorer: paths of single queries over pages, as compact JSON for the page's script."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.jobs.report.blocks import drawing, section
from indexmill.jobs.report.charts import right_answers
from indexmill.jobs.report.markup import Markup, element, embedded_json
from indexmill.jobs.report.series import Series

_LEAD = (
    "A column is a hop, a tile a page that was read, a cell one of its nodes. Cells in colour were expanded: the search"
    " followed their edges. Golden ones are right answers, pale ones were read for nothing. A good layout reads few"
    " tiles and fills them. Choose a tile with the pointer, or with the arrow keys once Tab has led to the tiles, to"
    " see what was on its page."
)


def explorer(
    paths: pa.Table, nodes_per_page: Mapping[str, int], series: Series, policy: str, k: int
) -> Markup:
    """Make the section of the explorer; the script fills it from the JSON that it holds."""
    data = {
        "k": k,
        "policy": policy,
        "layouts": [
            {"name": name, "style": series.style(name), "nodes": max(nodes_per_page[name], 1)}
            for name in series.names
        ],
        "queries": compact_paths(paths, nodes_per_page, series.names),
    }
    slider = element("input", type="range", min=0, max=1, value=1, step=1, data_role="reads")
    controls = element(
        "div",
        element("button", "◀", type="button", data_do="before", aria_label="Query before"),
        element("label", "Query ", element("select", data_role="query")),
        element("button", "▶", type="button", data_do="after", aria_label="Next query"),
        element("span", class_="grow"),
        element("button", "Play", type="button", data_do="play"),
        element("label", "Reads ", slider),
        class_="controls",
    )
    tiles = element("div", class_="tiles", data_role="tiles", role="listbox")
    sides = [
        element(
            "div",
            element("label", element("select", data_role="layout", aria_label=f"Layout {side}")),
            element("p", data_role="said", aria_live="polite"),
            tiles,
            element("p", class_="soft", data_role="page"),
            class_="side",
            data_side=i,
        )
        for i, side in enumerate(("left", "right"))
    ]
    return section(
        "explorer",
        "Page explorer",
        _LEAD,
        element("script", embedded_json(data), type="application/json", id="paths"),
        element(
            "div",
            controls,
            element("div", *sides, class_="sides"),
            drawing(right_answers(k), data_role="found"),
            class_="explorer",
        ),
    )


def compact_paths(
    paths: pa.Table, nodes_per_page: Mapping[str, int], names: tuple[str, ...]
) -> list[list[dict[str, list[Any]]]]:
    """Turn the table of `record_paths` into lists a query and index.

    Returns
    -------
    list (queries) of list (indexes) of dict
        ``reads``: [page, hop] in the order of reading. ``used``: [read, cell, when, distance] of each vertex expanded,
        and ``found``: [read, cell, right, score] of each result. ``read`` is the place of the page in ``reads``, -1 if
        it was not read, ``cell`` the place of the node on it, and ``when`` the number of reads before.
    """
    n_queries = max(paths["query"].to_pylist(), default=-1) + 1
    found: list[list[dict[str, list[Any]]]] = [
        [{"reads": [], "used": [], "found": []} for _ in names] for _ in range(n_queries)
    ]
    at: dict[tuple[int, int, int], int] = {}
    shown = paths.filter(pc.is_in(paths["kind"], pa.array(["read", "expand", "result"])))
    columns = [
        shown[name].to_pylist()
        for name in ("index", "query", "hop", "page", "kind", "slot", "distance", "right")
    ]
    for name, query, hop, page, kind, slot, distance, right in zip(*columns, strict=True):
        place = names.index(name)
        one = found[query][place]
        if kind == "read":
            at[query, place, page] = len(one["reads"])
            one["reads"].append([page, hop])
            continue
        read = at.get((query, place, page), -1)
        cell = slot % nodes_per_page[name] if nodes_per_page[name] else 0
        score = None if distance is None or not math.isfinite(distance) else float(f"{distance:.5g}")
        if kind == "expand":
            one["used"].append([read, cell, len(one["reads"]), score])
        else:
            one["found"].append([read, cell, int(right), score])
    return found
