"""Measure assignment by append files and by chunk files (eCP study, Tables 2 and 3).

The measurement is `indexmill bench assign` with the parameters below; parts *assign-exact* and *assign-graph* find
leaders by brute force and through a graph, which take longer than groups. Parts *tree* and *drives* have generated
vectors, a tree of depth 3 that keeps one node, leaves of the paper's size, and an in-buffer that makes as many chunk
files; *tree-near* and *drives-near* have the same with a tree that agrees with brute force more often, and is likelier
to be the paper's. Part *chunks* writes and sorts the chunk files of builds, raw and compressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.jobs.bench.assign import chunks, drives
from indexmill.jobs.bench.assign.large import NEAR, ROUNDS, assigned, tree
from indexmill.jobs.bench.common.benchmark import ROUNDS_OPTION, Benchmark, Run
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.console.progress import stderr_progress
from indexmill.jobs.grouping.setting import Setting, make_record

LEADERS = 10_000
#: Bytes of in-buffers: from 123 chunk files down to 2.
IN_BUFFERS = (1 << 20, 4 << 20, 16 << 20, 32 << 20, 64 << 20)
#: Bytes of the in-buffer of parts *assign-exact* and *assign-graph*.
ONE_BUFFER = (32 << 20,)


def measure(run: Run, index: str = "groups", in_buffers: Sequence[int] = IN_BUFFERS) -> dict[str, Any]:
    """Assign the vectors of the set by both policies, with parts on each scratch path."""
    given = run.options

    def open_input() -> VectorSource:
        return open_source(run.sets["sift1m"].base)

    rounds = given.rounds or ROUNDS
    setting = Setting(given.leaders, in_buffers, given.scratch, THREADS, rounds, index=index)
    with stderr_progress() as progress:
        found = make_record(open_input, setting, progress, "sift1m")
    return assigned(found)


BENCHMARK = Benchmark[Run](
    "assign",
    {
        "assign": measure,
        **{f"assign-{index}": partial(measure, index=index, in_buffers=ONE_BUFFER) for index in ("exact", "graph")},
        "tree": tree,
        "drives": drives.measure,
        "tree-near": partial(tree, shape=NEAR),
        "drives-near": partial(drives.measure, shape=NEAR, setups=drives.PAPER_SETUPS),
        "chunks": chunks.measure,
    },
    options=ROUNDS_OPTION
    | {
        "--scratch": {
            "type": Path, "action": "append", "required": True, "help": "where parts are written; may repeat"
        },
        "--leaders": {"type": int, "default": LEADERS, "help": "vectors that the others are assigned to"},
    },
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
