"""Part *tree*: ten million vectors, with the tree of the paper and leaves of its size (eCP study, Table 2)."""

from __future__ import annotations

from typing import Any

from indexmill.builders.leaders.base import n_leaders
from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, facts
from indexmill.jobs.bench.common.generate import generate
from indexmill.jobs.bench.common.parameters import LEAF_KIB, SEED, THREADS
from indexmill.jobs.console.progress import stderr_progress
from indexmill.jobs.grouping.setting import Setting, make_record, median_runs

ROUNDS = 3
#: Vectors, of which the paper has 110 million.
LARGE = 10_000_000
#: In-buffer that makes about 100 chunk files and appends about 10 vectors at a time, as in the paper.
PAPER_BUFFER = 12 << 20
#: Bytes of in-buffers: three times as many chunk files, as many as the paper has, and its own bytes.
BUFFERS = (4 << 20, PAPER_BUFFER, 128 << 20)


def tree(run: Run) -> dict[str, Any]:
    """Assign generated vectors by both policies; leaders are found by descending into one node a level."""
    data = generated(run)

    def open_input() -> VectorSource:
        return open_source(data.base)

    setting = Setting(
        leaders_of(data), BUFFERS, run.options.scratch, THREADS, run.options.rounds or ROUNDS, index="tree"
    )
    with stderr_progress() as progress:
        found = make_record(open_input, setting, progress, "generated")
    return {"data": facts(f"generated, seed {SEED}", data)} | assigned(found)


def generated(run: Run) -> Dataset:
    """Return the vectors of parts *tree* and *drives*, written unless they are there."""
    n_vectors = 10 * run.rows if run.rows else LARGE
    data = Dataset(run.out / f"generated-{n_vectors}")
    if not (data.folder / "query.u8bin").exists():
        generate(data.folder, n_vectors, 1, SEED, THREADS)
    return data


def leaders_of(data: Dataset) -> int:
    """Return the number of leaders with leaves of the paper's size."""
    n_vectors, dim = data.shape()
    return n_leaders(n_vectors, dim * data.dtype().itemsize, LEAF_KIB)


def assigned(found: dict[str, Any]) -> dict[str, Any]:
    """Return what the record keeps of one of `indexmill bench assign`: all runs, and those of median rounds."""
    scratch, runs = found["scratch"], found["runs"]
    medians = [run for place in range(len(scratch)) for run in median_runs(runs, place)]
    return {"leaders": found["parameters"], "scratch": scratch, "runs": runs, "medians": medians}
