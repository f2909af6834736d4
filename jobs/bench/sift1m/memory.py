"""Parts *memory* and *open*: resident memory of C programs that search, and how long an index takes to open.

They search the second half of the queries with the setting that the part *qps* chose.
"""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import ORDER, PQ_BYTES
from indexmill.jobs.bench.programs import native, ours
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m.qps import c_options, chosen_setting

#: Bytes that a search may need beside codes and entry structures.
ALLOWANCE = 64 * 2**20


def measure(space: Workspace) -> dict[str, Any]:
    """Search from C; see `native.memory_of_search`."""
    index, options = space.index(ours.ensure(space, ORDER)), c_options(space)
    program = native.c_example(space)
    peak, held = native.memory_of_search(program, index, space.data.query, options)
    codes = space.data.shape()[0] * PQ_BYTES
    entries = sum((index / name).stat().st_size for name in ("entries.imx", "navigation.imx"))
    first, last = space.halves["report"]
    return {
        "command": ["search", "INDEX", "QUERIES", *options],
        "n_queries": last - first,
        "threads": chosen_setting(space).threads,
        "peak_bytes": round(peak),
        "held_bytes": round(held),
        "codes_bytes": codes,
        "entry_bytes": entries,
        "allowed_bytes": codes + entries + ALLOWANCE,
        "to_allowed": peak / (codes + entries + ALLOWANCE),
    }


def opening(space: Workspace) -> dict[str, Any]:
    """Open the index to search, then again and again, from C; see `native.cost_of_opening`."""
    options, setting = c_options(space), chosen_setting(space)
    index = space.index(ours.ensure(space, ORDER))
    rounds, resident = native.cost_of_opening(space, index, space.data.query, options)
    held, in_flight = resident["memory_bytes"], setting.threads * setting.inflight
    return {
        "command": ["opening", "INDEX", "QUERIES", *options],
        "rounds": len(rounds),
        "ms": over_rounds(rounds),
        "resident_bytes": resident,
        "in_flight": in_flight,
        "grown_to_held": (resident["opened"] - resident["before"]) / held,
        "searched_to_held": (resident["searched"] - resident["before"]) / held,
        "again_to_searched": (resident["again"] - resident["before"])
        / (resident["searched"] - resident["before"]),
        "bytes_a_query": (resident["searched"] - resident["opened"]) / in_flight,
    }
