"""A merge of many indexes with long ids keeps to the smallest budget that it accepts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import DIM, build
from tests.support.processes.memory import least_budget, needs_sizes, peak_of_command

import indexmill

pytestmark = pytest.mark.memory

N, PARTS, ID_BYTES = 6_000, 6, 24_000
VECTORS = np.random.default_rng(1).integers(0, 256, (N, DIM), dtype=np.uint8)
IDS = [f"{i:0{ID_BYTES}}" for i in range(N)]
FRUGAL = {"R": 8, "L": 8, "order": "identity", "navigation": 0}


@pytest.fixture(scope="module")
def parts(disk: Path) -> list[Path]:
    """Indexes whose ids take 144 MB together."""
    folder, step = Path(tempfile.mkdtemp(dir=disk)), N // PARTS
    return [
        build(folder / str(first), VECTORS[first : first + step], ids=IDS[first : first + step], **FRUGAL)
        for first in range(0, N, step)
    ]


@needs_sizes
def test_a_merge_of_many_stays_within_the_smallest_budget_it_accepts(
    parts: list[Path], tmp_path: Path
) -> None:
    budget = least_budget(partial(indexmill.merge, *parts, out=tmp_path / "none"))
    assert 0 < peak_of_command(budget, "merge", *parts, "--out", tmp_path / "all") <= budget


@needs_sizes
def test_a_merge_that_compacts_all_stays_within_the_smallest_budget_it_accepts(
    parts: list[Path], tmp_path: Path
) -> None:
    some = [shutil.copytree(part, tmp_path / part.name) for part in parts]
    for index in some:
        indexmill.delete(index, np.arange(0, N // PARTS, 100), by="vector")
    budget = least_budget(partial(indexmill.merge, *some, out=tmp_path / "none"))
    assert 0 < peak_of_command(budget, "merge", *some, "--out", tmp_path / "all") <= budget


#: Parameters of a part, by its place: of other centroids or functions than those of the first.
OTHERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "lists": lambda at: {"kind": "ivf", "lists": 8, "seed": at},
    "copies": lambda at: {"kind": "ivf", "lists": 8, "copies": 2, "seed": at},
    "codes": lambda at: {"kind": "ivf", "lists": 8, "codec": "pq", "keep_vectors": True, "seed": at},
    "tables": lambda at: {"kind": "lsh", "n_tables": 4, "n_functions": 4, "seed": at},
}


@needs_sizes
@pytest.mark.parametrize("kind", OTHERS)
def test_a_merge_that_assigns_or_hashes_stays_within_the_smallest_budget_it_accepts(
    kind: str, disk: Path, tmp_path: Path
) -> None:
    folder, step = Path(tempfile.mkdtemp(dir=disk)), N // PARTS
    parts = []
    for at in range(3):
        rows = slice(at * step, (at + 1) * step)
        indexmill.build(VECTORS[rows], folder / str(at), ids=IDS[rows], workers=1, **OTHERS[kind](at))
        parts.append(folder / str(at))
    budget = least_budget(partial(indexmill.merge, *parts, out=tmp_path / "none"))
    assert 0 < peak_of_command(budget, "merge", *parts, "--out", tmp_path / "all") <= budget
