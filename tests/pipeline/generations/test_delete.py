"""Deletions by user ids and vector ids, from every kind of index, against brute force over what is left."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.files.small_index import write_small_index
from tests.support.damage import reseal
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.deleted import KINDS, LISTS, NAMES, VECTORS, Built, N, found_in
from tests.support.indexes.ivf import join, result

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, InputError, TooNew
from indexmill.formats.index import manifest as manifests
from indexmill.formats.index.deleted import read_deleted
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.kinds import KINDS as FILES
from indexmill.pipeline.execution import failpoint
from indexmill.pipeline.generations import removal

#: A generation to go back to (by its place among those known), or vectors to delete, by user ids or vector ids.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rollback"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["user", "vector"]), st.sets(st.integers(0, N - 1), min_size=1)),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(steps=STEPS)
def test_any_sequence_of_changes_answers_as_brute_force_over_what_is_left(
    built: Built, tmp_path_factory: pytest.TempPathFactory, kind: str, steps: list[tuple[str, Any]]
) -> None:
    index = built.copy(kind, tmp_path_factory.mktemp("sequence") / "ix")
    states: dict[int, set[int]] = {1: set()}
    for step, what in steps:
        present = max(states)
        if step == "rollback":
            to = sorted(states)[what % len(states)]
            if to != present:
                assert indexmill.rollback(index, to)["generation"] == present + 1
                states[present + 1] = states[to]
            continue
        ids = [NAMES[i] for i in what] if step == "user" else sorted(what)
        report = indexmill.delete(index, ids, by=step)
        gone = states[present] | what
        assert report["deleted"] == len(gone - states[present])
        assert report["vectors"] == N - len(gone)
        if gone != states[present]:
            states[present + 1] = gone
        assert report["generation"] == max(states)
    left = set(range(N)) - states[max(states)]
    found, rows = found_in(index)
    assert found == built.found[kind] & left
    if kind != "lsh":
        for query, row in zip(VECTORS[:4].astype(int), rows, strict=True):
            distances = ((VECTORS.astype(int) - query) ** 2).sum(axis=1)
            got = row[row >= 0]
            assert set(got.tolist()) == left
            assert (np.diff(distances[got]) >= 0).all()
    if kind == "ivf":
        join(index, VECTORS[:4], index.parent / "join.parquet", k=N, nprobe=LISTS)
        ids, _ = result(index.parent / "join.parquet", 4, N)
        np.testing.assert_array_equal(ids, rows)
    assert_sound(index)


@pytest.mark.parametrize("kind", KINDS)
def test_readers_keep_the_generation_that_they_opened(built: Built, tmp_path: Path, kind: str) -> None:
    index = built.copy(kind, tmp_path / "ix")
    opened: Any = indexmill.open(index)
    before = opened.search(VECTORS[:9], 5)
    indexmill.delete(index, NAMES[:60])
    again = opened.search(VECTORS[:9], 5)
    np.testing.assert_array_equal(again.vector_ids, before.vector_ids)
    assert (opened.n_deleted, len(opened)) == (0, N)
    fresh: Any = indexmill.open(index)
    assert (fresh.n_deleted, len(fresh)) == (60, N)
    assert fresh.vector_ids_of([NAMES[0], NAMES[70]]).tolist() == [-1, 70]
    assert (fresh.search(VECTORS[:9], 5).vector_ids >= 60).all()


@pytest.mark.parametrize("kind", KINDS)
def test_everything_may_be_deleted(built: Built, tmp_path: Path, kind: str) -> None:
    index = built.copy(kind, tmp_path / "ix")
    assert indexmill.delete(index, NAMES)["vectors"] == 0
    found, rows = found_in(index)
    assert (found, set(rows.ravel().tolist())) == (set(), {-1})
    assert_sound(index)
    indexmill.rollback(index)
    assert found_in(index)[0] == built.found[kind]


def test_only_the_manifest_and_a_file_of_slots_are_written(built: Built, tmp_path: Path) -> None:
    index = built.copy("graph", tmp_path / "ix")
    before = data_files(index)
    indexmill.delete(index, NAMES[7:9])
    after = data_files(index)
    assert after["manifest-000001.json"] == before.pop("manifest.json")
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"manifest.json", "manifest-000001.json", "deleted-000002.imx"}
    manifest = read_manifest(index)
    assert manifest.deleted == {"file": "deleted-000002.imx", "vectors": 2, "previous": 1}
    assert len(read_deleted(index, manifest, N)) == 2
    assert b'"major": 3' in after["manifest.json"]


def test_a_reader_of_older_formats_refuses_deletions(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = built.copy("graph", tmp_path / "ix")
    indexmill.delete(index, NAMES[:1])
    monkeypatch.setattr(manifests, "NEWEST", (2, 0))
    with pytest.raises(TooNew, match=r"expected major 1 to 2, got 3\.0"):
        read_manifest(index)


def test_ids_that_are_not_there_are_counted_and_ten_are_named(built: Built, tmp_path: Path) -> None:
    index = built.copy("graph", tmp_path / "ix")
    before = data_files(index)
    wrong = [f"x{i}" for i in range(12)]
    with pytest.raises(InputError, match=r"12 of 14 ids are not there: 'x0', .*'x9', \.\.\.; nothing was"):
        indexmill.delete(index, [*wrong, *NAMES[:2]])
    assert data_files(index) == before
    report = indexmill.delete(index, [*wrong, *NAMES[:2], *NAMES[:2]], missing="ignore")
    assert (report["ids"], report["missing"], report["deleted"]) == (14, 12, 2)
    again = indexmill.delete(index, NAMES[:3])
    assert (again["gone"], again["deleted"], again["deleted_before"]) == (2, 1, 2)
    nothing = indexmill.delete(index, NAMES[:3])
    assert (nothing["deleted"], nothing["generation"]) == (0, again["generation"])
    assert indexmill.delete(index, [])["deleted"] == 0


def test_ids_of_another_type_are_refused(built: Built, tmp_path: Path) -> None:
    index = built.copy("ivf", tmp_path / "ix")
    for ids, by, message in (
        ([1, 2], "user", "ids are of type string, got ids of type int64"),
        ([b"a"], "user", "ids are of type string, got ids of type binary"),
        (["1"], "vector", "ids are of type uint32, got ids of type string"),
        ([1.5], "user", "ids of type double"),
        ([None, "a"], "user", "null"),
    ):
        with pytest.raises(InputError, match=message):
            indexmill.delete(index, ids, by=by)
    with pytest.raises(InputError, match=rf"2 of 3 ids are not there: -1, {N}; nothing"):
        indexmill.delete(index, [-1, 3, N], by="vector")
    with pytest.raises(ConfigError, match="by: expected user or vector, got 'slot'"):
        indexmill.delete(index, [1], by="slot")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="missing: expected error or ignore"):
        indexmill.delete(index, [1], missing="warn")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no such index"):
        indexmill.delete(tmp_path / "none", [1])


@pytest.mark.parametrize("id_type", [pa.int64(), pa.uint64(), pa.large_string(), pa.large_binary()])
def test_all_vectors_of_an_id_go(tmp_path: Path, id_type: pa.DataType) -> None:
    index = write_small_index(tmp_path, n=90, R=4).path
    values: list[Any] = [i // 3 for i in range(90)]
    if id_type == pa.large_string():
        values = ["é" * (i % 5) + f"x{i}" for i in values]
    elif id_type == pa.large_binary():
        values = [bytes([i]) for i in values]
    slots = np.random.default_rng(1).permutation(90).astype(np.uint32)
    write_ids(index / "ids.imx", slots, pa.array([values[i] for i in slots], id_type))
    reseal(index)
    ids = [values[0], values[30], values[89]]
    report = indexmill.delete(index, ids)
    same = [i for i in range(90) if values[i] in ids]
    assert (report["deleted"], report["ids"], report["shared"]) == (len(same), 3, 3)
    gone = read_deleted(index, read_manifest(index), 90)
    assert sorted(slots[gone].tolist()) == same


@pytest.mark.parametrize("id_type", [pa.uint32(), pa.int64(), pa.uint64()])
def test_numbers_of_a_text_are_missing_where_they_are_out_of_range(
    tmp_path: Path, id_type: pa.DataType
) -> None:
    index = write_small_index(tmp_path, n=90, R=4, id_type="none").path
    if id_type != pa.uint32():
        write_ids(index / "ids.imx", np.arange(90, dtype=np.uint32), pa.array(range(90), id_type))
        reseal(index)
    path = tmp_path / "ids.txt"
    path.write_text(f" 3 \n\n04\n4\n-1\n{2**63 - 1}\n{2**64}\n{-(2**63) - 1}\n{'9' * 5000}\n")
    report = indexmill.delete(index, path, missing="ignore")
    assert (report["deleted"], report["ids"], report["missing"]) == (2, 7, 5)
    path.write_text("5\n\n1.5\n")
    with pytest.raises(InputError, match=rf"^{path}: line 3: ids are whole numbers .*, got '1\.5'; correct"):
        indexmill.delete(index, path)
    np.save(tmp_path / "ids.npy", np.array(["a"]))
    with pytest.raises(InputError, match=rf"^{tmp_path}/ids\.npy: .*, got ids of type string; give"):
        indexmill.delete(index, tmp_path / "ids.npy")


def test_without_user_ids_vector_ids_are_meant(tmp_path: Path) -> None:
    index = write_small_index(tmp_path, n=90, R=4, id_type="none").path
    assert indexmill.delete(index, np.array([3, 4], np.uint64))["deleted"] == 2
    assert indexmill.open(index).filter([2, 3, 4, 5]).n_allowed == 2


def test_a_full_disk_leaves_the_generation_before(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = built.copy("lsh", tmp_path / "ix")
    before = data_files(index)
    failpoint.arm("publish-copied=ENOSPC")
    try:
        with pytest.raises(
            BudgetError,
            match=r"copied: No space left on device; the present generation is as it was; free some.*gc",
        ):
            indexmill.delete(index, NAMES[:5])
    finally:
        failpoint.arm("")
    assert {name: data_files(index)[name] for name in before} == before
    assert_sound(index)
    assert indexmill.delete(index, NAMES[:5])["generation"] == 2

    def full(directory: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(removal, "fsync_dir", full)
    with pytest.raises(
        BudgetError, match=r"ix: No space left on device; .*as it was; free some space, and run again$"
    ):
        indexmill.gc(index)


@pytest.mark.parametrize("kind", KINDS)
def test_without_user_ids_those_of_deleted_vectors_are_not_found(tmp_path: Path, kind: str) -> None:
    index = tmp_path / "ix"
    indexmill.build(VECTORS, index, workers=1, **KINDS[kind])
    wanted = [-1, 0, 3, 4, N - 1, N, 2**40, 3]
    opened: Any = indexmill.open(index)
    assert opened.vector_ids_of(wanted).tolist() == [-1, 0, 3, 4, N - 1, -1, -1, 3]
    indexmill.delete(index, [3, N - 1])
    opened = indexmill.open(index)
    assert opened.vector_ids_of(wanted).tolist() == [-1, 0, -1, 4, -1, -1, -1, -1]


def test_a_layout_that_would_bring_deleted_vectors_back_is_refused(built: Built, tmp_path: Path) -> None:
    index = built.copy("graph", tmp_path / "ix")
    indexmill.delete(index, NAMES[:5])
    with pytest.raises(ConfigError, match="5 vectors were deleted, and layout would bring them back"):
        indexmill.lay_out(index, "random")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ix"]


def test_a_join_that_was_cut_off_does_not_resume_over_other_deletions(built: Built, tmp_path: Path) -> None:
    index = built.copy("ivf", tmp_path / "ix")
    state = read_manifest(index, FILES).state
    indexmill.delete(index, NAMES[:1])
    after = read_manifest(index, FILES).state
    indexmill.rollback(index)
    indexmill.delete(index, NAMES[1:2])
    assert len({state, after, read_manifest(index, FILES).state}) == 3
