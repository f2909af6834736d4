"""Part *memory*: resident memory of the C example while it searches, against codes + entry structures + 64 MiB."""

from __future__ import annotations

import re
from typing import Any

from indexmill.jobs.bench.common.dataset import K, read_bin
from indexmill.jobs.bench.common.parameters import PQ_BYTES, THREADS
from indexmill.jobs.bench.common.process import output_of
from indexmill.jobs.bench.programs import native, ours
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m.qps import ORDER

#: L of the search, about recall 0.95.
SIZE = 64
#: Bytes that a search may need beside codes and entry structures.
ALLOWANCE = 64 * 2**20
#: Bytes of a big-ann file before its vectors.
_HEADER_BYTES = 8
_PEAK = re.compile(r"^peak memory: ([\d.]+) MiB; the index holds ([\d.]+) MiB$", re.MULTILINE)


def measure(space: Workspace) -> dict[str, Any]:
    """Search all queries from C; the program tells its high-water mark of resident memory (VmHWM) at its end.

    Raises
    ------
    RuntimeError
        If the program fails or does not tell.
    """
    index, program = space.index(ours.ensure(space, ORDER)), native.c_example(space)
    options = [f"k={K}", f"L={SIZE}", f"threads={THREADS}", f"skip={_HEADER_BYTES}"]
    command = [program, index, space.data.query, *options]
    told = _PEAK.search(text := output_of(command))
    if told is None:
        raise RuntimeError(f"{program}: told no peak memory: {text[-500:]}")
    peak, held = (float(value) * 2**20 for value in told.groups())
    codes = space.data.shape()[0] * PQ_BYTES
    entries = sum((index / name).stat().st_size for name in ("entries.imx", "navigation.imx"))
    return {
        "command": ["search", "INDEX", "QUERIES", *options],
        "n_queries": len(read_bin(space.data.query)),
        "threads": THREADS,
        "peak_bytes": round(peak),
        "held_bytes": round(held),
        "codes_bytes": codes,
        "entry_bytes": entries,
        "allowed_bytes": codes + entries + ALLOWANCE,
        "to_allowed": peak / (codes + entries + ALLOWANCE),
    }
