"""Provenance of a comparison: its indexes, the costs of building them, software, machine and date."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from indexmill.formats.graph.file import GraphFile
from indexmill.jobs.compare.contenders import Contender
from indexmill.jobs.console.tables import read_run
from indexmill.jobs.devices.machine import commit, filesystem_of, machine_facts, software_versions

#: Places of graph.imx where edges are counted, and nodes looked at there: the share's standard error is below 0.002.
_SAMPLES, _SAMPLE_NODES = 1024, 64


def provenance() -> dict[str, Any]:
    """Date, machine, software and commit of this run."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "software": software_versions(),
        "commit": commit(),
    }


def layout_rows(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    """Layout of each index by its manifest, one row an index; the A/A run has none.

    Manifests are not trusted: only the share of edges within pages is taken from them.
    """
    return [
        {"index": contender.name}
        | contender.manifest["layout"]
        | {
            "index": contender.name,
            "n_vectors": contender.manifest["input"]["n_vectors"],
            "max_degree": contender.manifest["parameters"]["max_degree"],
            "node_dtype": contender.manifest["parameters"]["node_dtype"],
            "pq_bytes": contender.manifest["parameters"]["pq_bytes"],
            "nodes_per_page": contender.index.native.nodes_per_page,
            "in_page_edges": in_page_edges(contender),
            "build_id": contender.manifest["build_id"],
        }
        for contender in contenders
        if not contender.again
    ]


def in_page_edges(contender: Contender) -> float:
    """Share of the edges of the graph that stay on their page.

    As the manifest has it; where it has none, of all nodes of a small index, else of runs of nodes spread evenly over
    graph.imx.
    """
    known = contender.manifest["layout"].get("in_page_edges")
    if _is_number(known):
        return float(known)
    with GraphFile(contender.index.path / "graph.imx") as file:
        per_page = file.node_format.nodes_per_page
        if per_page < 2:
            return 0.0
        n = file.n_vertices
        run = -(-_SAMPLE_NODES // per_page) * per_page
        count = min(_SAMPLES, -(-n // run))
        starts = np.linspace(0, (n - 1) // run, count).astype(np.int64) * run
        staying = edges = 0
        for first in starts.tolist():
            block = file.read_nodes(first, min(run, n - first))
            pages = (first + np.arange(len(block))) // per_page
            there = np.arange(block.neighbours.shape[1]) < block.degrees[:, None]
            staying += int(np.sum(there & (block.neighbours // per_page == pages[:, None])))
            edges += int(np.sum(block.degrees))
    return staying / edges if edges else 0.0


def build_rows(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    """Costs of writing each index, by its run.json; the A/A run has none.

    ``of`` tells what that was: ``"layout only"`` of an index laid out again, else ``"build"``.
    No checksum covers run.json, so it is not trusted: values that are not numbers are left out.
    """
    rows = []
    for contender in contenders:
        if contender.again:
            continue
        run = read_run(contender.index.path)
        seconds = run.get("seconds")
        stages = seconds if isinstance(seconds, Mapping) else {}
        peak = run.get("peak_memory_bytes")
        rows.append(
            {
                "index": contender.name,
                "of": "layout only" if "work" in run else "build",
                "started": str(run.get("started", "unknown")),
                "workers": run.get("workers") if _is_number(run.get("workers")) else None,
                "peak_memory_bytes": peak if _is_number(peak) else None,
                "seconds": {str(name): float(took) for name, took in stages.items() if _is_number(took)},
            }
        )
    return rows


def index_rows(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    """Identity of each index: its manifest, engine and file system; the A/A run has none."""
    return [
        {
            "index": contender.name,
            "path": str(contender.index.path),
            "engine": contender.index.engine,
            "engine_note": contender.index.engine_note,
            "file_system": filesystem_of(contender.index.path),
            "bytes": sum(file["bytes"] for file in contender.manifest["files"]),
            "manifest": contender.manifest,
        }
        for contender in contenders
        if not contender.again
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
