"""Measure assignment by append files and by chunk files (eCP study, Tables 2 and 3).

The measurement is `indexmill bench assign` with the parameters below. Part *tree* has the paper's tree of depth 3, its
size of a leaf and its in-buffer, on generated vectors. Scratch paths on several devices give its setups of two drives,
since merged files stay on the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexmill.builders.leaders.base import n_leaders
from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.jobs.bench.common.benchmark import ROUNDS_OPTION, Benchmark, Run
from indexmill.jobs.bench.common.dataset import Dataset, facts
from indexmill.jobs.bench.common.generate import generate
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.console.progress import stderr_progress
from indexmill.jobs.grouping.setting import INDEXES, Setting, make_record, median_runs

LEADERS = 10_000
IN_BUFFERS = (16 << 20, 32 << 20, 64 << 20)
ROUNDS = 3
#: Part *tree*: vectors, of which the paper has 110 million; KiB of a leaf, and bytes of the in-buffer, as there.
LARGE, LEAF_KIB, LARGE_BUFFER = 10_000_000, 128, 128 << 20


def measure(run: Run) -> dict[str, Any]:
    """Assign the vectors of the set by both policies, with parts on each scratch path."""
    given = run.options

    def open_input() -> VectorSource:
        return open_source(run.sets["sift1m"].base)

    rounds = given.rounds or ROUNDS
    setting = Setting(given.leaders, IN_BUFFERS, given.scratch, THREADS, rounds, index=given.leader_index)
    with stderr_progress() as progress:
        found = make_record(open_input, setting, progress, "sift1m")
    return assigned(found)


def tree(run: Run) -> dict[str, Any]:
    """Assign generated vectors by both policies; leaders are found by descending into one node a level."""
    data = _generated(run)

    def open_input() -> VectorSource:
        return open_source(data.base)

    n_vectors, dim = data.shape()
    leaders = n_leaders(n_vectors, dim, LEAF_KIB)
    rounds = run.options.rounds or ROUNDS
    setting = Setting(leaders, (LARGE_BUFFER,), run.options.scratch, THREADS, rounds, index="tree")
    with stderr_progress() as progress:
        found = make_record(open_input, setting, progress, "generated")
    return {"data": facts(f"generated, seed {SEED}", data)} | assigned(found)


def _generated(run: Run) -> Dataset:
    """Write the vectors of part *tree* unless they are there."""
    n_vectors = 10 * run.rows if run.rows else LARGE
    data = Dataset(run.out / f"generated-{n_vectors}")
    if not (data.folder / "query.u8bin").exists():
        generate(data.folder, n_vectors, 1, SEED, THREADS)
    return data


def assigned(found: dict[str, Any]) -> dict[str, Any]:
    """Return what the record keeps of one of `indexmill bench assign`: all runs, and those of median rounds."""
    scratch, runs = found["scratch"], found["runs"]
    medians = [run for place in range(len(scratch)) for run in median_runs(runs, place)]
    return {"leaders": found["parameters"], "scratch": scratch, "runs": runs, "medians": medians}


BENCHMARK = Benchmark[Run](
    "assign",
    {"assign": measure, "tree": tree},
    options=ROUNDS_OPTION
    | {
        "--scratch": {
            "type": Path, "action": "append", "required": True, "help": "where parts are written; may repeat"
        },
        "--leaders": {"type": int, "default": LEADERS, "help": "vectors that the others are assigned to"},
        "--leader-index": {"choices": INDEXES, "default": "groups", "help": "how a leader is found"},
    },
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
