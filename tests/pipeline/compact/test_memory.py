"""A compaction of a graph with long ids keeps to the smallest budget that it accepts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

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
