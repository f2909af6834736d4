"""The manifest of an index that was laid out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.layout.order import Adjacency
from indexmill.pipeline.append.drift import drift_after_layout
from indexmill.pipeline.generations.descent import descent_of
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.graph.order import degree_facts, layout_facts
from indexmill.pipeline.mill.store import software_versions
from indexmill.pipeline.relayout.fitting import Fitted

#: Key of a layout whose neighbour lists were chosen for its pages, or for those of a layout before.
PRUNED = "pruned_edges"
#: Key of a layout that was weighed by a log of queries.
QUERY_LOG = "query_log"


def inherited_log(layout: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a log of queries changed in a `layout` that stays, marked as such; None without a log."""
    return {**layout[QUERY_LOG], "inherited": True} if QUERY_LOG in layout else None


def manifest_of(
    index: OpenedIndex,
    layout: Mapping[str, Any],
    build_id: str,
    files: tuple[FileEntry, ...],
    lists: Adjacency | None = None,
) -> Manifest:
    """Return the manifest of the written files: what the index was, with another layout, and not yet measured.

    Parameters
    ----------
    lists : Adjacency, optional
        Neighbour lists where they are not those of `index`.
    """
    old = index.manifest
    return Manifest(
        kind="graph",
        build_id=build_id,
        **descent_of([old]),
        parameters=dict(old.parameters),
        input=dict(old.input),
        software=software_versions(),
        layout=layout,
        graph=_graph_of(index, lists),
        drift=drift_after_layout(index, float(layout["overlap_ratio"])),
        certificate=None,
        files=files,
    )


def _graph_of(index: OpenedIndex, lists: Adjacency | None) -> dict[str, Any]:
    """Return key ``graph``: what it was, or without labels and with other degrees where lists were chosen anew."""
    graph = dict(index.manifest.graph)
    if lists is None:
        return graph
    graph.pop("labels", None)
    return graph | index.handed_down | degree_facts(lists.degrees)


def layout_record(index: OpenedIndex, graph: Adjacency, fitted: Fitted, threads: int) -> dict[str, Any]:
    """Return key ``layout`` of the manifest (docs/formats/manifest.md).

    Parameters
    ----------
    graph : Adjacency
        By vector id, as ``fitted.order`` is.
    threads : int
        They do not change the record.
    """
    record: dict[str, Any] = {
        "order": fitted.name,
        **layout_facts(graph, fitted.order, index.graph.node_format, threads),
        "parameters": fitted.parameters,
        "work": fitted.work,
        "work_limit": fitted.work_limit,
    }
    if PRUNED in index.manifest.layout:
        record[PRUNED] = {**index.manifest.layout[PRUNED], "inherited": True}
    if fitted.choice is not None:
        record["choice"] = fitted.choice
    if fitted.query_log is not None:
        record[QUERY_LOG] = fitted.query_log
    return record
