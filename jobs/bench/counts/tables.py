"""Parts *paper-tables* and *synthetic*: Tables 4 and 1 of E2LSH on storage, as far as they are counts.

Part *paper-tables* has the paper's number of tables and its radii 1, 2, 4, ...; gamma and S are set for an overall
ratio of 1.05 on the first half of the queries, as the paper sets them.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from indexmill.jobs.bench.common import difficulty
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, read_truth
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, SEED, THREADS
from indexmill.jobs.bench.lsh.quality import judge
from indexmill.jobs.bench.lsh.sets import make_sets
from indexmill.jobs.bench.lsh.tune import TARGET, Row, least
from indexmill.jobs.bench.programs import ours
from indexmill.reader.lsh import LshIndex

#: L of the paper's Table 4.
TABLES = {"sift1m": 25, "rand": 48, "gauss": 19}
#: From many functions a compound hash to few, which let more through; the first that reaches the ratio stays.
GAMMAS = (0.55, 0.45, 0.35)
#: S is at most the vectors over this.
_MOST = 8


def measure(run: Run) -> dict[str, Any]:
    """Build, tune and count each set; None where no gamma reaches the ratio."""
    given = make_sets(run).given
    return {"ratio": TARGET, "sets": {name: _counted(run, given[name], TABLES[name]) for name in TABLES}}


def _counted(run: Run, data: Dataset, n_tables: int) -> dict[str, Any] | None:
    path = run.out / "paper-tables.index"
    for gamma in GAMMAS:
        indexmill.build(
            data.base, path, kind="lsh", n_tables=n_tables, first_radius=1.0, gamma=gamma, seed=SEED,
            memory=BUILD_MEMORY, workers=THREADS, force=True,
        )  # fmt: skip
        made = ours.manifest(path)["parameters"]
        found = _tuned(path, data)
        shutil.rmtree(path)
        if found is not None:
            names = ("n_functions", "n_tables", "n_radii")
            return {"gamma": gamma, **{name: made[name] for name in names}, **found}
    return None


def _tuned(path: Path, data: Dataset) -> dict[str, Any] | None:
    """Return counts of the second half of the queries, with the least S that reaches the ratio on the first."""
    index, halves = LshIndex(path, "memory"), data.both_halves()
    base, truth = read_bin(data.base), read_truth(data.truth)[1]

    def ask(candidates: int, half: str = "tune") -> Row:
        asked = slice(*halves[half])
        queries = np.array(read_bin(data.query)[asked])
        found = index.search(queries, 1, candidates=candidates, threads=THREADS)
        counted = {name: float(found.counters[name].mean()) for name in ("radii", "table_reads", "distances")}
        return {**judge(found.vector_ids, base, queries, truth[asked]), **counted}

    candidates, _ = least(ask, 1, max(2, data.shape()[0] // _MOST))
    if candidates is None:
        return None
    row = ask(candidates, "report")
    return {"candidates": candidates, "ios": 2 * row["table_reads"], **row}


def synthetic(run: Run) -> dict[str, Any]:
    """Estimate how hard the sets are that are drawn like the paper's synthetic ones."""
    given = make_sets(run).given
    sets = {}
    for name in ("rand", "gauss"):
        base, queries = read_bin(given[name].base), np.array(read_bin(given[name].query))
        sets[name] = asdict(difficulty.measure(base, queries, threads=THREADS))
    return {"sets": sets}
