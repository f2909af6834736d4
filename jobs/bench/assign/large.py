"""Parts *tree* and *tree-near*: ten million vectors, leaves of the paper's size and either reading of its tree.

The paper has a tree of depth 3, and tells neither whether its leaves count as a level nor how many nodes of a level it
looks into. Part *tree* has three levels of leaders and looks into one node, which finds the nearest leader of few
vectors. Part *tree-near* has two levels, the leaves being the third, and looks into several nodes: it agrees with brute
force far more often, and should have leaves as uneven as the paper's. Both parts record how uneven theirs are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from indexmill.builders.leaders.base import n_leaders
from indexmill.formats.sources.source import VectorSource, open_source
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, facts, read_bin
from indexmill.jobs.bench.common.generate import generate
from indexmill.jobs.bench.common.parameters import LEAF_KIB, SEED, THREADS
from indexmill.jobs.bench.counts.leaves import leaf_sizes
from indexmill.jobs.console.progress import stderr_progress
from indexmill.jobs.grouping.setting import Leaders, Setting, make_leaders, make_record, median_runs

ROUNDS = 3
#: Vectors, of which the paper has 110 million.
LARGE = 10_000_000
#: In-buffer that makes about 100 chunk files and appends about 10 vectors at a time, as in the paper.
PAPER_BUFFER = 12 << 20
#: Bytes of in-buffers: three times as many chunk files, as many as the paper has, and its own bytes.
BUFFERS = (4 << 20, PAPER_BUFFER, 128 << 20)
#: Vectors whose leaders are found at once, to see the sizes of leaves.
ROWS_AT_ONCE = 1 << 20


class Tree(NamedTuple):
    """Levels of leaders, and nodes of each level that a descent looks into."""

    depth: int
    beam: int


#: What the paper's words say at first sight; and the other reading, with nodes enough to agree with brute force mostly.
PLAIN, NEAR = Tree(3, 1), Tree(2, 8)


def tree(run: Run, shape: Tree = PLAIN) -> dict[str, Any]:
    """Assign generated vectors by both policies; leaders are found by descending into some nodes of each level."""
    data = generated(run)

    def open_input() -> VectorSource:
        return open_source(data.base)

    setting = Setting(
        leaders_of(data),
        BUFFERS,
        run.options.scratch,
        THREADS,
        run.options.rounds or ROUNDS,
        index="tree",
        **shape._asdict(),
    )
    with stderr_progress() as progress:
        found = make_record(open_input, setting, progress, "generated")
    return {
        "data": facts(f"generated, seed {SEED}", data),
        "leaves": leaves(data, make_leaders(open_input(), setting)),
        **assigned(found),
    }


def leaves(data: Dataset, leaders: Leaders) -> dict[str, float]:
    """Return how uneven the leaves are: the paper has 30% below half of the mean, 21% above one and a half."""
    base, sizes = read_bin(data.base), np.zeros(len(leaders.index.leaders), np.int64)
    for first in range(0, len(base), ROWS_AT_ONCE):
        owners = leaders.index.nearest(np.asarray(base[first : first + ROWS_AT_ONCE]), 1, THREADS)[:, 0]
        sizes += np.bincount(owners, minlength=len(sizes))
    return leaf_sizes(sizes)


def generated(run: Run) -> Dataset:
    """Return the vectors of all parts with a tree, written unless they are there."""
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
