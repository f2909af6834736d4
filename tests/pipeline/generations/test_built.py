"""The drift of any index counts exactly the vectors of its last build, wherever merges and layouts put them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.indexes import append as graphs
from tests.support.indexes import lists
from tests.support.indexes.lsh import clusters, fixed

import indexmill
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.kinds import KINDS
from indexmill.pipeline.generations.built import BuiltVectors

DIM = 12
VECTORS = clusters(640, DIM)
Build = Callable[..., Path]


def build_lists(out: Path, vectors: np.ndarray, **how: Any) -> Path:
    np.save(out.with_suffix(".npy"), VECTORS[::80][: lists.LISTS])
    return lists.build(out, vectors, centroids=str(out.with_suffix(".npy")), **how)


@pytest.fixture(params=[graphs.build, build_lists, fixed], ids=["graph", "ivf", "lsh"])
def build(request: pytest.FixtureRequest) -> Build:
    made: Build = request.param
    return made


def drift_of(index: Path) -> dict[str, Any]:
    manifest = read_manifest(index, KINDS)
    found: dict[str, Any] = manifest.drift or {**manifest.ivf, **manifest.lsh}["drift"]
    return found


def counts(index: Path) -> tuple[int, int, int]:
    """Vectors of the build, the first of them, and those that were added."""
    drift = drift_of(index)
    return drift["built_vectors"], drift.get("first_built", 0), drift["added_vectors"]


def remove(index: Path, ids: Any) -> None:
    indexmill.delete(index, ids, by="vector")
    indexmill.compact(index)


def test_a_merge_before_the_largest_build_is_not_of_that_build(tmp_path: Path, build: Build) -> None:
    a, b = build(tmp_path / "a", VECTORS[:100]), build(tmp_path / "b", VECTORS[100:400])
    indexmill.merge(a, b)
    assert counts(a) == (300, 100, 100)
    indexmill.append(a, VECTORS[400:440])
    assert counts(a) == (300, 100, 140)
    indexmill.delete(a, [*range(10), 200, 201, 410], by="vector")
    c = build(tmp_path / "c", VECTORS[440:480])
    indexmill.merge(c, a)
    assert counts(c) == (298, 40 + 90, 40 + 90 + 39)
    remove(c, np.arange(40 + 90))
    assert counts(c) == (298, 0, 39)
    remove(c, np.arange(298, 298 + 39))
    assert counts(c) == (298, 0, 0)


def test_an_index_may_lose_all_that_its_build_had(tmp_path: Path, build: Build) -> None:
    index = build(tmp_path / "ix", VECTORS[:200])
    indexmill.append(index, VECTORS[200:300])
    remove(index, np.arange(200))
    assert counts(index) == (0, 0, 100)
    drift = drift_of(index)
    assert (drift["added_share"], drift["removed_vectors"]) == (1, 200)
    indexmill.append(index, VECTORS[300:340])
    assert counts(index) == (0, 0, 140)
    remove(index, [0, 120])
    assert counts(index) == (0, 0, 138)


def test_a_graph_whose_layout_mixed_the_vectors_counts_exactly(tmp_path: Path) -> None:
    index = graphs.build(tmp_path / "ix", VECTORS[:200])
    indexmill.append(index, VECTORS[200:300])
    indexmill.lay_out(index, "star")
    remove(index, np.arange(200, 290))
    assert counts(index) == (200, 0, 10)
    remove(index, np.r_[0:50, 205:210])
    assert counts(index) == (150, 0, 5)


@given(
    start=st.integers(1, 9),
    steps=st.lists(st.one_of(st.integers(0, 9), st.sets(st.integers(0, 40))), max_size=6),
)
def test_removals_and_merges_are_counted_as_a_list_of_all_vectors_says(start: int, steps: list[Any]) -> None:
    of_build, built = [True] * start, BuiltVectors(0, start)
    for step in steps:
        if isinstance(step, int):
            of_build, built = [False] * step + of_build + [False], built.behind(step)
        else:
            gone = np.array([i for i in sorted(step) if i < len(of_build)], np.uint32)
            of_build = [was for i, was in enumerate(of_build) if i not in gone]
            built = built.without(gone)
        expected = [built.first <= i < built.first + built.n for i in range(len(of_build))]
        assert expected == of_build
        assert BuiltVectors.of(built.facts(len(of_build)), len(of_build)) == built
