"""Any sequence of appends, deletions, compactions, merges and rollbacks answers as brute force over what is left."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.indexes.append import assert_sound, build, points
from tests.support.indexes.built import Built

import indexmill

N, MOST = 240, 60
FEW = st.integers(1, MOST)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), FEW),
        st.tuples(st.just("delete"), st.sets(st.integers(0, 2 * N), min_size=1, max_size=80)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("merge"), st.integers(30, 120)),
        st.tuples(st.just("rollback"), st.integers(0, 5)),
    ),
    min_size=2,
    max_size=6,
)


@dataclass
class Model:
    """Vectors by vector id, the deleted ones, and what was deleted in each generation that is kept."""

    vectors: np.ndarray
    gone: set[int] = field(default_factory=set)
    kept: list[set[int]] = field(default_factory=list)

    @property
    def left(self) -> list[int]:
        return [i for i in range(len(self.vectors)) if i not in self.gone]

    def renew(self, more: np.ndarray) -> None:
        """A new directory without the deleted vectors."""
        self.vectors, self.gone, self.kept = np.concatenate([self.vectors[self.left], more]), set(), []


@pytest.fixture(scope="module")
def small(built: Built) -> Path:
    return built(build, points(N, 1))


@settings(max_examples=10, deadline=None)
@given(steps=STEPS)
def test_any_sequence_answers_as_brute_force(
    small: Path, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("sequence")
    index, model = shutil.copytree(small, folder / "ix"), Model(points(N, 1))
    for seed, (step, what) in enumerate(steps, 100):
        before = indexmill.open(index)
        queries = points(3, 8)
        answers = before.search(queries, 5).vector_ids
        change(step, what, index, model, folder / f"{seed}", seed)
        np.testing.assert_array_equal(before.search(queries, 5).vector_ids, answers)  # its generation goes on
        assert found(index, model) > 0.97
    assert_sound(index)


def change(step: str, what: Any, index: Path, model: Model, other: Path, seed: int) -> None:
    """Apply one step to the index and to the model of it."""
    nothing = np.empty((0, model.vectors.shape[1]), np.float32)
    if step == "delete":
        ids = sorted({i % len(model.vectors) for i in what} - model.gone)[: len(model.left) - 1]
        if ids:
            indexmill.delete(index, ids, by="vector")
            model.kept.append(set(model.gone))
            model.gone |= set(ids)
    elif step == "rollback" and model.kept:
        indexmill.rollback(index)
        model.kept.append(model.gone)
        model.gone = set(model.kept[-2])
        indexmill.gc(index)  # whose history the model need not follow
        model.kept = []
    elif step == "merge":
        rows = points(what, seed)
        indexmill.merge(index, build(other, rows))
        model.renew(rows)
    elif step in ("compact", "append"):
        indexmill.compact(index)
        model.renew(nothing)
        if step == "append":
            rows = points(what, seed)
            indexmill.append(index, rows)
            model.renew(rows)


def found(index: Path, model: Model, k: int = 5) -> float:
    """Recall of searches for some of the vectors that are left, against brute force."""
    opened, left = indexmill.open(index), np.array(model.left)
    queries = points(20, 9)
    rows = opened.search(queries, min(k, len(left)), L=200).vector_ids
    distances = ((queries[:, None].astype(np.float64) - model.vectors[left][None]) ** 2).sum(axis=2)
    truth = left[np.argsort(distances, axis=1, kind="stable")[:, : rows.shape[1]]]
    assert not set(rows.ravel().tolist()) & model.gone
    return float(
        np.mean([len(set(a) & set(b)) for a, b in zip(rows.tolist(), truth.tolist(), strict=True)])
    ) / len(truth[0])
