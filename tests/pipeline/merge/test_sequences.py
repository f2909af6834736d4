"""Any sequence of appends, upserts, deletions, compactions, merges and rollbacks of a graph answers as brute force.

Appends, upserts and merges find deleted vectors in the index, and compactions those that upserts replaced.
"""

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
from indexmill.pipeline.generations.history import history

N, MOST = 240, 60
FEW = st.integers(1, MOST)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), FEW),
        st.tuples(st.just("upsert"), st.sets(st.integers(0, 2 * N), min_size=1, max_size=MOST)),
        st.tuples(st.just("delete"), st.sets(st.integers(0, 2 * N), min_size=1, max_size=80)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("merge"), st.integers(30, 120)),
        st.tuples(st.sampled_from(["rollback", "gc"]), st.integers(0, 5)),
    ),
    min_size=2,
    max_size=5,
)


@dataclass
class Model:
    """Vectors and user ids by vector id, and the deleted ones; and all in each generation there was."""

    vectors: np.ndarray
    ids: np.ndarray
    gone: set[int] = field(default_factory=set)
    states: dict[int, tuple[np.ndarray, np.ndarray, set[int]]] = field(default_factory=dict)

    @property
    def left(self) -> list[int]:
        return [i for i in range(len(self.vectors)) if i not in self.gone]

    def close_up(self) -> None:
        """A new directory without the deleted vectors."""
        self.vectors, self.ids, self.gone = self.vectors[self.left], self.ids[self.left], set()

    def add(self, vectors: np.ndarray, ids: np.ndarray) -> None:
        """A new directory with further vectors, in which those with the same user ids are deleted."""
        self.gone = self.gone | {i for i in self.left if self.ids[i] in ids}
        self.vectors, self.ids = np.concatenate([self.vectors, vectors]), np.concatenate([self.ids, ids])

    def remember(self, index: Path) -> None:
        """Write down the present generation, which is kept beside the one before."""
        numbers = kept(index)
        if numbers[-1] not in self.states:
            assert not self.states or max(self.states) in numbers
            self.states[numbers[-1]] = self.vectors, self.ids, set(self.gone)


def kept(index: Path) -> list[int]:
    found, damaged = history(index)
    assert damaged == []
    return [one.manifest.generation for one in found]


@pytest.fixture(scope="module")
def small(built: Built) -> Path:
    return built(build, points(N, 1), ids=list(range(N)))


@settings(max_examples=8, deadline=None)
@given(steps=STEPS)
def test_any_sequence_answers_as_brute_force(
    small: Path, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("sequence")
    index, model = shutil.copytree(small, folder / "ix"), Model(points(N, 1), np.arange(N))
    model.remember(index)
    for seed, (step, what) in enumerate(steps, 100):
        before = indexmill.open(index)
        queries = points(3, 8)
        answers = before.search(queries, 5).vector_ids
        change(step, what, index, model, folder / f"{seed}", seed)
        model.remember(index)
        np.testing.assert_array_equal(before.search(queries, 5).vector_ids, answers)  # its generation goes on
        assert found(index, model) > 0.97
    assert_sound(index)


def change(step: str, what: Any, index: Path, model: Model, other: Path, seed: int) -> None:
    """Apply one step to the index and to the model of it."""
    fresh = 1000 * seed  # user ids that no vector had
    if step == "delete":
        ids = sorted({i % len(model.vectors) for i in what} - model.gone)[: len(model.left) - 1]
        if ids:
            indexmill.delete(index, ids, by="vector")
            model.gone |= set(ids)
    elif step == "rollback" and kept(index)[:-1]:
        earlier = kept(index)[:-1]
        indexmill.rollback(index, to := earlier[-1 - what % len(earlier)])
        model.vectors, model.ids, gone = model.states[to]
        model.gone = set(gone)
    elif step == "gc":
        assert indexmill.gc(index, 1 + what)["generations"] == kept(index)
    elif step == "compact":
        indexmill.compact(index)
        model.close_up()
    elif step == "merge":
        rows, ids = points(what, seed), np.arange(fresh, fresh + what)
        indexmill.delete(build(other, rows, ids=ids), ids[:9])
        indexmill.merge(index, other)
        model.close_up()
        model.add(rows[9:], ids[9:])
    elif step in ("append", "upsert"):
        ids = np.arange(fresh, fresh + what) if step == "append" else np.array(sorted(what))
        rows = points(len(ids), seed)
        indexmill.append(index, rows, ids=ids, replace=step == "upsert")
        model.add(rows, ids)


def found(index: Path, model: Model, k: int = 5) -> float:
    """Recall of searches for some of the vectors that are left, against brute force."""
    opened, left = indexmill.open(index), np.array(model.left)
    queries = points(20, 9)
    result = opened.search(queries, min(k, len(left)), L=200)
    rows = result.vector_ids
    np.testing.assert_array_equal(result.ids, model.ids[rows])
    distances = ((queries[:, None].astype(np.float64) - model.vectors[left][None]) ** 2).sum(axis=2)
    truth = left[np.argsort(distances, axis=1, kind="stable")[:, : rows.shape[1]]]
    assert not set(rows.ravel().tolist()) & model.gone
    return float(
        np.mean([len(set(a) & set(b)) for a, b in zip(rows.tolist(), truth.tolist(), strict=True)])
    ) / len(truth[0])
