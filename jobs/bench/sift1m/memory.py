"""Parts *memory* and *open*: resident memory of C programs that search, and how long an index takes to open."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import ORDER, PQ_BYTES, THREADS
from indexmill.jobs.bench.programs import native, ours
from indexmill.jobs.bench.programs.workspace import Workspace

#: L of the search, about recall 0.95.
SIZE = 64
#: Bytes that a search may need beside codes and entry structures.
ALLOWANCE = 64 * 2**20


def measure(space: Workspace) -> dict[str, Any]:
    """Search all queries from C; see `native.memory_of_search`."""
    index, program = space.index(ours.ensure(space, ORDER)), native.c_example(space)
    options = [f"k={K}", f"L={SIZE}", f"threads={THREADS}"]
    peak, held = native.memory_of_search(program, index, space.data.query, options)
    codes = space.data.shape()[0] * PQ_BYTES
    entries = sum((index / name).stat().st_size for name in ("entries.imx", "navigation.imx"))
    return {
        "command": ["search", "INDEX", "QUERIES", *options, native.SKIP],
        "n_queries": len(read_bin(space.data.query)),
        "threads": THREADS,
        "peak_bytes": round(peak),
        "held_bytes": round(held),
        "codes_bytes": codes,
        "entry_bytes": entries,
        "allowed_bytes": codes + entries + ALLOWANCE,
        "to_allowed": peak / (codes + entries + ALLOWANCE),
    }


def opening(space: Workspace) -> dict[str, Any]:
    """Open the index again and again, then open it and search all queries, from C; see `native.cost_of_opening`."""
    options = [f"k={K}", f"L={SIZE}", f"threads={THREADS}"]
    index = space.index(ours.ensure(space, ORDER))
    rounds, resident = native.cost_of_opening(space, index, space.data.query, options)
    held = resident["memory_bytes"]
    return {
        "command": ["opening", "INDEX", "QUERIES", *options, native.SKIP],
        "rounds": len(rounds),
        "ms": over_rounds(rounds),
        "resident_bytes": resident,
        "grown_to_held": (resident["opened"] - resident["before"]) / held,
        "searched_to_held": (resident["searched"] - resident["before"]) / held,
    }
