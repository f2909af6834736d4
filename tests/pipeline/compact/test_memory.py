"""A compaction keeps to the smallest budget that it accepts: of a graph with long ids, of lists and of tables."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import DIM, build
from tests.support.processes.memory import least_budget, needs_sizes, peak_of_command

import indexmill

pytestmark = pytest.mark.memory


@needs_sizes
def test_a_compaction_stays_within_the_smallest_budget_it_accepts(tmp_path: Path) -> None:
    n = 10_000
    vectors = np.random.default_rng(1).integers(0, 256, (n, DIM), dtype=np.uint8)
    ids = [f"{i:016000}" for i in range(n)]
    index = build(tmp_path / "ix", vectors, ids=ids, R=8, L=8, order="identity", navigation=0)
    indexmill.delete(index, np.arange(0, n, 100), by="vector")
    budget = least_budget(partial(indexmill.compact, index))
    assert 0 < peak_of_command(budget, "compact", index) <= budget


@needs_sizes
@pytest.mark.parametrize(
    "how",
    [
        {"kind": "ivf", "lists": 2000, "copies": 2},
        {"kind": "lsh", "n_tables": 3, "n_radii": 2},
    ],
    ids=str,
)
def test_a_compaction_of_lists_or_tables_stays_within_the_smallest_budget_it_accepts(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    n = 100_000
    vectors = np.random.default_rng(1).integers(0, 256, (n, 16), dtype=np.uint8)
    index = tmp_path / "ix"
    indexmill.build(vectors, index, workers=1, **how)
    indexmill.delete(index, np.arange(0, n, 100), by="vector")
    budget = least_budget(partial(indexmill.compact, index))
    assert 0 < peak_of_command(budget, "compact", index) <= budget
