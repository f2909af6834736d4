"""`compact`: what goes, what stays, and what a search finds afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.append import SMALL, assert_sound, build, manifest, points, recall, run_record
from tests.support.indexes.builds import data_files
from tests.support.indexes.built import Built

import indexmill
from indexmill.formats.errors import BudgetError, InputError, OutputExistsError
from indexmill.formats.graph.index import IndexFiles

N = 900
ROWS = points(N, 1)
GONE = np.random.default_rng(5).choice(N, 270, replace=False)
LEFT = np.setdiff1d(np.arange(N), GONE)


@pytest.fixture(scope="module")
def whole(built: Built) -> Path:
    return built(build, ROWS)


@pytest.fixture
def deleted(whole: Path, tmp_path: Path) -> Path:
    index = shutil.copytree(whole, tmp_path / "ix")
    indexmill.delete(index, GONE, by="vector")
    return index


def test_what_remains_is_found_as_well_as_in_a_build_of_it(deleted: Path, tmp_path: Path) -> None:
    before = indexmill.open(deleted)
    answers = before.search(ROWS[:20], 5).vector_ids
    indexmill.compact(deleted)
    assert_sound(deleted)
    rebuilt = build(tmp_path / "rebuilt", ROWS[LEFT])
    queries = points(100, 7)
    assert recall(deleted, ROWS[LEFT], queries) > recall(rebuilt, ROWS[LEFT], queries) - 0.01
    np.testing.assert_array_equal(before.search(ROWS[:20], 5).vector_ids, answers)  # its generation goes on


def test_rows_go_for_good_and_the_others_keep_their_bytes(whole: Path, deleted: Path) -> None:
    indexmill.compact(deleted)
    with IndexFiles(whole) as a, IndexFiles(deleted) as b:
        old, new = np.argsort(a.vector_ids)[LEFT], np.argsort(b.vector_ids)
        np.testing.assert_array_equal(b.graph.read_all().vectors[new], a.graph.read_all().vectors[old])
        np.testing.assert_array_equal(b.codes[new], a.codes[old])
        np.testing.assert_array_equal(b.entries.centroids, a.entries.centroids)
    found = manifest(deleted)
    assert found["input"]["n_vectors"] == len(LEFT)
    assert found["input"]["fingerprint"] != manifest(whole)["input"]["fingerprint"]
    assert "deleted" not in found
    assert (found["generation"], found["parents"]) == (3, [manifest(whole)["build_id"]])
    assert found["certificate"]["recall"] > 0.95
    assert found["drift"]["removed_vectors"] == len(GONE)
    assert (found["drift"]["built_vectors"], found["drift"]["added_vectors"]) == (len(LEFT), 0)
    assert run_record(deleted)["repaired_lists"] > 0
    assert not [p for p in deleted.iterdir() if p.name.startswith(("deleted", "manifest-"))]


def test_user_ids_and_metadata_of_the_others_stay(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(N)]
    indexmill.build(ROWS, tmp_path / "ix", ids=names, metadata=pa.table({"x": np.arange(N)}), **SMALL)
    indexmill.delete(tmp_path / "ix", [names[i] for i in GONE])
    opened = indexmill.compact(tmp_path / "ix")
    assert_sound(tmp_path / "ix")
    result = opened.search(ROWS[LEFT], 1)
    nearest = result.ids[:, 0].tolist()
    assert np.mean([name == names[i] for name, i in zip(nearest, LEFT, strict=True)]) > 0.97
    kept = pq.read_table(tmp_path / "ix" / "metadata.parquet")["x"].to_pylist()
    assert kept == LEFT.tolist()
    for user, vector in zip(nearest, result.vector_ids[:, 0].tolist(), strict=True):
        assert user == f"s{kept[vector]}"


@pytest.mark.parametrize(
    "how",
    [
        {"dtype": "uint8"},
        {"dtype": "int8"},
        {"dtype": "float16"},
        {"metric": "ip", "node_dtype": "sq8"},
        {"metric": "cosine", "node_dtype": "sq16", "keep_vectors": True},
        {"codes_on_page": True},
        {"navigation": 0},
        {"order": "random"},
    ],
)
def test_every_type_is_compacted(how: dict[str, Any], tmp_path: Path) -> None:
    parameters = dict(how)
    rows = points(N, 3, parameters.pop("dtype", "float32"))
    index = build(tmp_path / "ix", rows, **parameters)
    indexmill.delete(index, GONE, by="vector")
    indexmill.compact(index, workers=3)
    assert_sound(index)
    assert recall(index, rows[LEFT], rows[::20], how.get("metric", "l2")) > (
        0.8 if "sq8" in how.values() else 0.9
    )


def test_rounds_of_appends_deletions_and_compactions_ask_for_no_rebuild(whole: Path, tmp_path: Path) -> None:
    """However many vectors were inserted: a compaction repairs their lists and lays all out again."""
    index, random = shutil.copytree(whole, tmp_path / "ix"), np.random.default_rng(8)
    for number in range(4):
        indexmill.append(index, points(300, 20 + number))
        indexmill.delete(index, random.choice(N + 300, 300, replace=False), by="vector")
        indexmill.compact(index)
        drift = manifest(index)["drift"]
        assert (drift["rebuild"], drift["advice"].partition(":")[0]) == (False, "keep")
    assert drift["added_share"] > 0.6


def test_the_same_bytes_for_any_workers_and_memory(deleted: Path, tmp_path: Path) -> None:
    indexmill.compact(deleted, out=tmp_path / "a", workers=1)
    indexmill.compact(deleted, out=tmp_path / "b", workers=3, memory="600MiB")
    assert data_files(tmp_path / "a") == data_files(tmp_path / "b")
    assert manifest(deleted)["deleted"]["vectors"] == len(GONE)  # --out leaves the index
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "ix"]


def test_without_deletions_it_writes_what_a_layout_writes(whole: Path, tmp_path: Path) -> None:
    index = shutil.copytree(whole, tmp_path / "ix")
    indexmill.append(index, points(100, 2))
    order = manifest(index)["layout"]["order"]
    indexmill.lay_out(index, order, certify=True, out=tmp_path / "layout")
    indexmill.compact(index, out=tmp_path / "compact")
    assert data_files(tmp_path / "compact") == data_files(tmp_path / "layout")
    indexmill.compact(index)
    written = data_files(index)
    indexmill.compact(index)  # is laid out so: nothing is written
    assert data_files(index) == written


def test_the_entry_may_be_deleted_and_nearly_everything(whole: Path, tmp_path: Path) -> None:
    with IndexFiles(whole) as files:
        medoid = int(files.vector_ids[files.entries.medoid])
    for keep in (1, 2, 30):
        index = shutil.copytree(whole, tmp_path / f"{keep}")
        left = [i for i in range(N) if i != medoid][:: N // keep][:keep]
        indexmill.delete(index, np.setdiff1d(np.arange(N), left), by="vector")
        opened = indexmill.compact(index)
        assert_sound(index)
        k = min(10, keep)
        assert {*opened.search(ROWS[:1], keep, L=2 * keep + 10).vector_ids[0].tolist()} == set(range(keep))
        assert recall(index, ROWS[left], points(20, 7), k=k) > 0.9


def test_everything_deleted_is_refused(whole: Path, tmp_path: Path) -> None:
    index = shutil.copytree(whole, tmp_path / "ix")
    indexmill.delete(index, np.arange(N), by="vector")
    before = data_files(index)
    with pytest.raises(InputError, match=r"all 900 vectors were deleted.*indexmill rollback"):
        indexmill.compact(index)
    assert data_files(index) == before
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_settings_that_cannot_work_are_refused(whole: Path, deleted: Path) -> None:
    with pytest.raises(BudgetError, match=r"compacting 900 vectors takes.*give at least"):
        indexmill.compact(deleted, memory=1000)
    with pytest.raises(OutputExistsError, match="add --force"):
        indexmill.compact(deleted, out=whole)
    with pytest.raises(TypeError, match=r"compact.. got an unexpected keyword argument 'metric'"):
        indexmill.compact(deleted, metric="l2")  # type: ignore[call-arg]
