"""Any sequence of append, delete, upsert, merge, compact and rollback answers as brute force over the rows left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.indexes.builds import assert_sound
from tests.support.indexes.deleted import DIM, KINDS, LISTS, NAMES, VECTORS, Built, N, build_all

import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.kinds import KINDS as FILES
from indexmill.pipeline.generations.history import history

#: Numbers of names: those of the build and further ones.
NUMBERS = st.sets(st.integers(0, N + 30), min_size=1, max_size=40)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "upsert",
                "upsert",
                "delete",
                "merge",
                "merge",
                "rollback",
                "rollback",
                "compact",
                "gc",
            ]
        ),
        NUMBERS,
    ),
    min_size=1,
    max_size=6,
)

#: How all rows are searched.
HOW: dict[str, dict[str, Any]] = {
    "graph": {"L": 10_000}, "ivf": {"nprobe": LISTS}, "scanned": {"candidates": 10_000}
}  # fmt: skip
#: Hash tables with a radius so large that all vectors lie in one bucket.
SCANNED: dict[str, Any] = {
    "kind": "lsh", "first_radius": 1e6, "n_functions": 3, "n_radii": 1, "n_tables": 3, "hash_bits": 1
}  # fmt: skip


#: How indexes that are merged into those of `built` are built: with the same lists or hash functions, or with others.
OTHERS: dict[str, list[dict[str, Any]]] = {
    "graph": [KINDS["graph"], {**KINDS["graph"], "seed": 2}],
    "ivf": [{"kind": "ivf", "centroids": "given"}, {"kind": "ivf", "lists": LISTS, "seed": 2}],
    "scanned": [SCANNED, {**SCANNED, "seed": 2}],
}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An index of each kind, not to be changed."""
    built = build_all(tmp_path_factory.mktemp("appended"))
    np.save(built.folder / "centroids.npy", IvfFiles(built.folder / "ivf").centroids.centroids)
    indexmill.build(VECTORS, built.folder / "scanned", ids=NAMES, workers=1, **SCANNED)
    return built


def name(number: int) -> str:
    return f"ü{number}"


class Model:
    """All rows that an index was ever given, and those that are left."""

    def __init__(self) -> None:
        self.vectors: NDArray[np.uint8] = VECTORS
        self.names = list(NAMES)
        self.left = set(range(N))
        self.states: dict[int, tuple[NDArray[np.uint8], list[str], set[int]]] = {}

    def remember(self, index: Path) -> None:
        """Write down the present generation, which is kept beside the one before."""
        numbers = kept(index)
        if numbers[-1] not in self.states:
            assert not self.states or max(self.states) in numbers
            self.states[numbers[-1]] = self.vectors, list(self.names), set(self.left)

    def go_back(self, number: int) -> None:
        self.vectors, names, left = self.states[number]
        self.names, self.left = list(names), set(left)

    def with_names(self, names: set[str]) -> set[int]:
        return {row for row in self.left if self.names[row] in names}

    def add(self, vectors: NDArray[np.uint8], names: list[str]) -> None:
        self.left = self.left - self.with_names(set(names))
        self.left |= set(range(len(self.names), len(self.names) + len(names)))
        self.vectors = np.concatenate([self.vectors, vectors])
        self.names += names

    def close_up(self) -> None:
        rows = sorted(self.left)
        self.vectors, self.names = self.vectors[rows], [self.names[row] for row in rows]
        self.left = set(range(len(rows)))


def change(index: Path, model: Model, step: str, numbers: set[int], rng: np.random.Generator) -> None:
    names = [name(number) for number in sorted(numbers)]
    vectors = rng.integers(0, 60, (len(names), DIM)).astype(np.uint8)
    there = model.with_names(set(names))
    if step == "append" and there:
        first = next(given for given in names if model.with_names({given}))
        with pytest.raises(InputError, match=f"id '{first}' is not unique"):
            indexmill.append(index, vectors, ids=names)
    elif step in ("append", "upsert"):
        indexmill.append(index, vectors, ids=names, replace=step == "upsert")
        model.add(vectors, names)
    elif step == "delete" and there:
        assert indexmill.delete(index, names, missing="ignore")["deleted"] == len(there)
        model.left -= there
    elif step == "compact" and model.left:
        indexmill.compact(index)
        model.close_up()
    elif step == "compact":
        with pytest.raises(InputError, match="were deleted, and an index holds at least one"):
            indexmill.compact(index)
    elif step == "rollback" and kept(index)[:-1]:
        earlier = kept(index)[:-1]
        indexmill.rollback(index, to := earlier[-1 - len(numbers) % len(earlier)])
        model.go_back(to)
    elif step == "gc":
        assert indexmill.gc(index, len(numbers))["generations"] == kept(index)
    model.remember(index)


def merge(
    index: Path, model: Model, numbers: set[int], rng: np.random.Generator, how: dict[str, Any]
) -> None:
    """Merge an index of rows with names that are not left, some of them deleted; with names that are, it is refused."""
    names = [name(number) for number in sorted(numbers)]
    there = {model.names[row] for row in model.with_names(set(names))}
    fresh = [given for given in names if given not in there]
    vectors = rng.integers(0, 60, (len(names), DIM)).astype(np.uint8)
    other = index.with_name(f"other-{kept(index)[-1]}")
    indexmill.build(vectors, other, ids=names, workers=1, force=True, **how)
    if not model.left or not fresh:
        with pytest.raises(InputError, match=r"were deleted, and an index holds|is not unique"):
            indexmill.merge(index, other)
        return
    if there:
        with pytest.raises(InputError, match="is not unique"):
            indexmill.merge(index, other)
        indexmill.delete(other, sorted(there))
    indexmill.merge(index, other)
    model.close_up()
    model.add(vectors[[given in fresh for given in names]], fresh)


def kept(index: Path) -> list[int]:
    found, damaged = history(index)
    assert damaged == []
    return [one.manifest.generation for one in found]


@pytest.mark.parametrize("kind", HOW)
@settings(max_examples=12, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 9))
def test_any_sequence_answers_as_brute_force(
    built: Built, tmp_path_factory: pytest.TempPathFactory, kind: str, steps: list[tuple[str, Any]], seed: int
) -> None:
    index, model = built.copy(kind, tmp_path_factory.mktemp("sequence") / "ix"), Model()
    model.remember(index)
    rng = np.random.default_rng(seed)
    for step, numbers in steps:
        if step == "merge":
            how = dict(OTHERS[kind][len(numbers) % 2])
            if "centroids" in how:
                how["centroids"] = str(built.folder / "centroids.npy")
            merge(index, model, numbers, rng, how)
            model.remember(index)
        else:
            change(index, model, step, numbers, rng)
    manifest = read_manifest(index, FILES)
    assert manifest.input["n_vectors"] - manifest.n_deleted == len(model.left)
    n, left = len(model.names), np.array(sorted(model.left), np.int64)
    opened: Any = indexmill.open(index)
    result = opened.search(VECTORS[:4], n, **HOW[kind])
    for query, row, ids in zip(VECTORS[:4].astype(int), result.vector_ids, result.ids, strict=True):
        got = row[row >= 0]
        assert sorted(got.tolist()) == left.tolist()
        distances = ((model.vectors[got].astype(int) - query) ** 2).sum(axis=1)
        assert (np.diff(distances) >= 0).all()
        assert list(ids[: len(got)]) == [model.names[i] for i in got]
    for row in list(model.left)[:5]:
        assert opened.vector_ids_of([model.names[row]]).tolist() == [row]
    assert_sound(index)


@pytest.mark.parametrize("kind", HOW)
def test_an_upsert_is_one_generation_and_deletes_what_it_replaces(
    built: Built, tmp_path: Path, kind: str
) -> None:
    index = built.copy(kind, tmp_path / "ix")
    indexmill.delete(index, NAMES[:3])
    changed = (VECTORS[2:6].astype(int) * 4).astype(np.uint8)
    opened = indexmill.append(index, changed, ids=NAMES[2:6], replace=True)
    manifest = read_manifest(index, FILES)
    assert manifest.generation == 3
    assert manifest.deleted == {"file": "deleted-000003.imx", "vectors": 6, "previous": 2}
    assert (len(opened), opened.n_deleted) == (N + 4, 6)
    assert opened.vector_ids_of(NAMES[:8]).tolist() == [-1, -1, N, N + 1, N + 2, N + 3, 6, 7]
    found = opened.search(changed, 1, **HOW[kind]).ids[:, 0]
    assert found.tolist() == NAMES[2:6]
    assert indexmill.delete(index, NAMES[2:4])["deleted"] == 2
    assert indexmill.append(index, changed[:1], ids=NAMES[:1]).vector_ids_of(NAMES[:1]).tolist() == [N + 4]
