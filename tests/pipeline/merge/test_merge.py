"""`merge`: one index out of several, whichever comes first."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.cli import run, run_json
from tests.support.indexes.append import (
    SMALL,
    assert_sound,
    build,
    manifest,
    merge,
    points,
    recall,
    run_record,
)
from tests.support.indexes.builds import data_files
from tests.support.indexes.built import Built

import indexmill
from indexmill.formats.errors import BudgetError, InputError, OutputExistsError
from indexmill.formats.graph.index import IndexFiles
from indexmill.pipeline.merge import run as merge_run

LARGE, LITTLE = points(900, 1), points(300, 2)
BOTH = np.concatenate([LARGE, LITTLE])


@pytest.fixture(scope="module")
def large(built: Built) -> Path:
    return built(build, LARGE)


@pytest.fixture(scope="module")
def little(built: Built) -> Path:
    return built(build, LITTLE)


@pytest.fixture(scope="module")
def merged(built: Built, large: Path, little: Path) -> Path:
    return built(merge, large, little)


def test_a_merge_finds_as_much_as_a_build_of_everything(merged: Path, tmp_path: Path) -> None:
    assert_sound(merged)
    queries = points(100, 7)
    rebuilt = build(tmp_path / "rebuilt", BOTH)
    assert recall(merged, BOTH, queries) > recall(rebuilt, BOTH, queries) - 0.01


def test_halves_of_one_set_are_joined_as_well(tmp_path: Path) -> None:
    a, b = build(tmp_path / "a", BOTH[::2].copy()), build(tmp_path / "b", BOTH[1::2].copy())
    indexmill.merge(a, b)
    assert_sound(a)
    assert recall(a, np.concatenate([BOTH[::2], BOTH[1::2]]), points(100, 7)) > 0.95


def test_vector_ids_of_the_first_come_first_whichever_is_larger(
    large: Path, little: Path, merged: Path, tmp_path: Path
) -> None:
    indexmill.merge(little, large, out=tmp_path / "ix")
    assert_sound(tmp_path / "ix")
    for index, order in ((merged, BOTH), (tmp_path / "ix", np.concatenate([LITTLE, LARGE]))):
        found = indexmill.open(index).search(order, 1).vector_ids[:, 0]
        assert (found == np.arange(len(order))).mean() > 0.97
    assert run_record(tmp_path / "ix")["distances"] == run_record(merged)["distances"]
    one, two = manifest(merged), manifest(tmp_path / "ix")
    assert one["parents"] == two["parents"][::-1]
    assert {**one["drift"], "first_built": len(LITTLE)} == two["drift"]
    with IndexFiles(merged) as a, IndexFiles(tmp_path / "ix") as b:  # only the numbering differs
        assert np.array_equal(a.graph.read_all().neighbours, b.graph.read_all().neighbours)


def test_slots_of_the_larger_stay(large: Path, merged: Path) -> None:
    with IndexFiles(large) as a, IndexFiles(merged) as b:
        np.testing.assert_array_equal(b.vector_ids[: len(LARGE)], a.vector_ids)
        np.testing.assert_array_equal(b.codes[: len(LARGE)], a.codes)
    assert manifest(merged)["drift"]["built_vectors"] == len(LARGE)


def test_user_ids_and_metadata_of_both_come_back(tmp_path: Path) -> None:
    for name, rows, first in (("a", LITTLE, 5000), ("b", LARGE, 0)):
        ids = np.arange(first, first + len(rows), dtype=np.uint64)
        table = pa.table({"shop": [f"{name}{i}" for i in range(len(rows))]})
        indexmill.build(rows, tmp_path / name, ids=ids, metadata=table, **SMALL)
    opened = indexmill.merge(tmp_path / "a", tmp_path / "b")
    assert_sound(tmp_path / "a")
    found = opened.search(BOTH, 1)
    wanted = np.concatenate([np.arange(900), np.arange(5000, 5300)])
    assert (found.ids[:, 0] == wanted).mean() > 0.97
    shops = pq.read_table(tmp_path / "a" / "metadata.parquet")["shop"].to_pylist()
    assert shops == [f"a{i}" for i in range(300)] + [f"b{i}" for i in range(900)]
    for user, vector in zip(found.ids[:, 0].tolist(), found.vector_ids[:, 0].tolist(), strict=True):
        assert shops[vector] == (f"a{user - 5000}" if user >= 5000 else f"b{user}")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
def test_every_type_is_merged(tmp_path: Path, dtype: str) -> None:
    both = points(900, 3, dtype)
    a, b = build(tmp_path / "a", both[:600]), build(tmp_path / "b", both[600:])
    indexmill.merge(a, b)
    assert_sound(a)
    assert recall(a, both, both[::20]) > 0.95


@pytest.mark.parametrize(
    ("metric", "node_dtype"), [("ip", "same"), ("cosine", "sq8"), ("l2", "sq16"), ("ip", "sq16")]
)
def test_metrics_and_compressed_nodes_are_merged(tmp_path: Path, metric: str, node_dtype: str) -> None:
    both = points(900, 4) * np.random.default_rng(0).uniform(0.5, 1, (900, 1)).astype(np.float32)
    both[5] *= 3
    a = build(tmp_path / "a", both[:600], metric=metric, node_dtype=node_dtype)
    b = build(tmp_path / "b", both[600:], metric=metric, node_dtype=node_dtype)
    indexmill.merge(a, b)
    assert_sound(a)
    assert recall(a, both, both[::20], metric) > (0.8 if node_dtype == "sq8" else 0.9)


@pytest.mark.parametrize(
    "other", [{"R": 40}, {"R": 4}, {"pq_bytes": 3}, {"navigation": 0}, {"order": "random"}]
)
def test_the_result_has_the_parameters_of_the_larger(
    large: Path, tmp_path: Path, other: dict[str, Any]
) -> None:
    little = build(tmp_path / "little", LITTLE, **other)
    indexmill.merge(little, large)
    assert_sound(little)
    assert manifest(little)["parameters"] == manifest(large)["parameters"]
    assert recall(little, np.concatenate([LITTLE, LARGE]), points(50, 8)) > 0.95


def test_the_same_input_gives_the_same_bytes_for_any_workers(
    large: Path, little: Path, merged: Path, tmp_path: Path
) -> None:
    for workers in (1, 3):
        indexmill.merge(large, little, out=tmp_path / "ix", workers=workers, force=True)
        assert data_files(tmp_path / "ix") == data_files(merged)


def test_the_first_becomes_the_next_generation_and_the_second_stays(
    large: Path, little: Path, tmp_path: Path
) -> None:
    a, b = shutil.copytree(large, tmp_path / "a"), shutil.copytree(little, tmp_path / "b")
    before = data_files(b)
    indexmill.append(a, points(10, 5))
    indexmill.merge(a, b)
    assert manifest(a)["generation"] == 3
    assert data_files(b) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_an_index_is_not_merged_with_itself(large: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(large)
    copy = shutil.copytree(large, tmp_path / "copy")
    for other, message in (
        (large, "same index twice"),
        (tmp_path / "link", "same index twice"),
        (copy, "same index"),
    ):
        with pytest.raises(InputError, match=message):
            indexmill.merge(large, other)


def test_copies_with_different_deletions_are_merged_if_forced(large: Path, tmp_path: Path) -> None:
    copies = [shutil.copytree(large, tmp_path / name) for name in "ab"]
    indexmill.delete(copies[0], np.arange(0, 900, 2), by="vector")
    indexmill.delete(copies[1], np.arange(1, 900, 2), by="vector")
    with pytest.raises(InputError, match=r"a copy of the same index as .*add --force"):
        indexmill.merge(*copies)
    indexmill.merge(*copies, force=True)
    assert_sound(copies[0])
    assert recall(copies[0], np.concatenate([LARGE[1::2], LARGE[::2]]), points(50, 7)) > 0.95
    assert run_record(copies[0])["seconds"].keys() >= {"unpack", "repair", "insert"}


def test_vectors_that_are_there_already_are_not_merged_again_unless_forced(
    large: Path, little: Path, merged: Path, tmp_path: Path
) -> None:
    grown = tmp_path / "grown"
    indexmill.append(merged, points(10, 5), out=grown)
    assert manifest(grown)["parents"] == [manifest(merged)["build_id"]]
    assert manifest(grown)["ancestors"] == sorted(manifest(index)["build_id"] for index in (large, little))
    assert "ancestors" not in manifest(merged)
    sibling = tmp_path / "sibling"
    indexmill.append(large, points(10, 6), out=sibling)
    before = data_files(grown)
    for other in (little, large, merged, sibling):
        with pytest.raises(
            InputError, match=r"in common with .*both contain index [0-9a-f]{16}, .*add --force"
        ):
            indexmill.merge(grown, other)
    assert data_files(grown) == before
    assert len(indexmill.merge(grown, little, force=True)) == len(BOTH) + 10 + len(LITTLE)


def test_indexes_that_differ_are_refused_and_nothing_changes(large: Path, tmp_path: Path) -> None:
    index = shutil.copytree(large, tmp_path / "ix")
    before = data_files(index)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (LITTLE, {"metric": "cosine"}, r"other: metric cosine; expected l2 as in .*ix"),
        (LITTLE[:, :5].copy(), {}, "dimension 5; expected 12"),
        (LITTLE.astype(np.float16), {}, "dtype float16; expected float32"),
        (LITTLE, {"node_dtype": "sq8"}, "node dtype sq8; expected float32"),
        (LITTLE, {"ids": list(range(300))}, "id type int64; expected none"),
        (LITTLE, {"metadata": pa.table({"x": range(300)})}, "metadata columns x: int64; expected none"),
    ]
    for i, (rows, how, message) in enumerate(cases):
        other = build(tmp_path / f"{i}-other", rows, **how)
        with pytest.raises(InputError, match=message):
            indexmill.merge(index, other)
    assert data_files(index) == before


def test_a_user_id_in_both_is_named_with_both_places(tmp_path: Path) -> None:
    indexmill.build(LARGE, tmp_path / "a", ids=[f"s{i}" for i in range(900)], **SMALL)
    indexmill.build(LITTLE, tmp_path / "b", ids=[f"s{1000 - i}" for i in range(300)], **SMALL)
    with pytest.raises(InputError, match=r"id 's\d+' is not unique: .*a row \d+ and .*b row \d+"):
        indexmill.merge(tmp_path / "a", tmp_path / "b")


def test_user_ids_that_meet_are_named_before_anything_is_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{i}" for i in range(1200)]
    a, b = (
        build(tmp_path / name, rows, ids=names[first : first + len(rows)])
        for name, rows, first in (("a", LITTLE, 0), ("b", LARGE, 290))
    )
    for index in (a, b):
        indexmill.delete(index, np.arange(8), by="vector")
    indexmill.delete(a, np.arange(290, 300), by="vector")
    indexmill.merge(a, b, out=tmp_path / "apart")
    indexmill.rollback(a)
    monkeypatch.setattr(merge_run, "CompactRecipe", None)
    with pytest.raises(InputError, match=r"id 's298' is not unique: .*a row 298 and .*b row 8;"):
        indexmill.merge(a, b)


def test_a_smaller_index_with_longer_vectors_needs_a_rebuild(tmp_path: Path) -> None:
    a, b = build(tmp_path / "a", LARGE, metric="ip"), build(tmp_path / "b", LITTLE * 9, metric="ip")
    with pytest.raises(InputError, match=r"b: largest norm .*build one index of both"):
        indexmill.merge(a, b)


def test_a_scale_that_does_not_reach_needs_a_rebuild(tmp_path: Path) -> None:
    a, b = build(tmp_path / "a", LARGE, node_dtype="sq8"), build(tmp_path / "b", LITTLE * 3, node_dtype="sq8")
    with pytest.raises(InputError, match=r"b: component \d+ of a vector is .*build one index of both"):
        indexmill.merge(a, b)


def test_settings_that_cannot_work_are_refused(large: Path, little: Path, merged: Path) -> None:
    with pytest.raises(BudgetError, match="give at least"):
        indexmill.merge(large, little, memory=1000)
    with pytest.raises(OutputExistsError, match="add --force"):
        indexmill.merge(large, little, out=merged)
    with pytest.raises(InputError, match="no such index"):
        indexmill.merge(large, large.with_name("none"))


def test_the_command_prints_the_manifest(large: Path, little: Path, merged: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run_json("merge", large, little, "--out", out) == manifest(merged) == manifest(out)
    assert run("merge", large, little, "--out", out).exit_code == 5
    assert run("merge", large, large, "--out", out).exit_code == 3
    assert "indexmill merge a.index b.index" in run("merge", "--help").stdout


THIRD = points(350, 3)
ALL = np.concatenate([LARGE, LITTLE, THIRD])


@pytest.fixture(scope="module")
def third(built: Built) -> Path:
    return built(build, THIRD)


def test_many_are_merged_at_once_as_well_as_one_after_the_other(
    large: Path, little: Path, third: Path, tmp_path: Path
) -> None:
    indexmill.merge(large, little, third, out=tmp_path / "once")
    indexmill.merge(large, little, out=tmp_path / "both")
    indexmill.merge(tmp_path / "both", third, out=tmp_path / "twice")
    for index in (tmp_path / "once", tmp_path / "twice"):
        assert_sound(index)
        assert recall(index, ALL, points(100, 7)) > 0.97
    once = manifest(tmp_path / "once")
    assert once["parents"] == [manifest(index)["build_id"] for index in (large, little, third)]
    assert (once["drift"]["built_vectors"], once["drift"]["laid_out_vectors"]) == (len(LARGE), len(ALL))


def test_vector_ids_user_ids_and_metadata_follow_in_the_order_of_the_indexes(tmp_path: Path) -> None:
    rows = [LITTLE, LARGE, THIRD]
    for name, vectors in zip("abc", rows, strict=True):
        ids = [f"{name}{i}" for i in range(len(vectors))]
        indexmill.build(vectors, tmp_path / name, ids=ids, metadata=pa.table({"shop": ids}), **SMALL)
    opened = indexmill.merge(*(tmp_path / name for name in "abc"), out=tmp_path / "abc")
    assert_sound(tmp_path / "abc")
    found = opened.search(np.concatenate(rows), 1)
    wanted = [f"{name}{i}" for name, vectors in zip("abc", rows, strict=True) for i in range(len(vectors))]
    assert (found.vector_ids[:, 0] == np.arange(len(ALL))).mean() > 0.97
    assert np.mean([a == b for a, b in zip(found.ids[:, 0].tolist(), wanted, strict=True)]) > 0.97
    assert pq.read_table(tmp_path / "abc" / "metadata.parquet")["shop"].to_pylist() == wanted
    indexmill.build(THIRD, tmp_path / "d", ids=[f"c{i}" for i in range(350)], metadata=pa.table({"shop": ["x"] * 350}),
                    **SMALL)  # fmt: skip
    with pytest.raises(InputError, match=r"id 'c\d+' is not unique: .*c row \d+ and .*d row \d+"):
        indexmill.merge(*(tmp_path / name for name in "acd"), out=tmp_path / "none")


def test_deleted_vectors_stay_behind(large: Path, little: Path, third: Path, tmp_path: Path) -> None:
    copies = [shutil.copytree(index, tmp_path / index.parent.name) for index in (large, little, third)]
    indexmill.delete(copies[0], np.arange(0, 900, 3), by="vector")
    indexmill.delete(copies[2], np.arange(0, 350, 2), by="vector")
    left = np.concatenate([np.delete(LARGE, np.s_[::3], axis=0), LITTLE, THIRD[1::2]])
    before = [data_files(index) for index in copies]
    for workers in (1, 3):
        indexmill.merge(*copies, out=tmp_path / f"{workers}", workers=workers)
    assert data_files(tmp_path / "1") == data_files(tmp_path / "3")
    assert_sound(tmp_path / "1")
    found = manifest(tmp_path / "1")
    assert found["input"]["n_vectors"] == len(left)
    assert found["parents"] == [manifest(index)["build_id"] for index in copies]
    indexmill.compact(copies[0], out=tmp_path / "compact")
    indexmill.merge(tmp_path / "compact", *copies[1:], out=tmp_path / "two-steps")
    layout, wanted = found["layout"], manifest(tmp_path / "two-steps")["layout"]
    assert layout["order"] == wanted["order"] == manifest(large)["layout"]["order"] != "identity"
    assert layout["overlap_ratio"] == pytest.approx(wanted["overlap_ratio"], rel=0.1)
    assert recall(tmp_path / "1", left, points(100, 7)) > 0.95
    assert [data_files(index) for index in copies] == before
    indexmill.delete(copies[1], np.arange(300), by="vector")
    with pytest.raises(InputError, match="all 300 vectors were deleted"):
        indexmill.merge(*copies, out=tmp_path / "none")
    indexmill.merge(*copies[::2])  # in place
    assert manifest(copies[0])["generation"] == 3


def test_few_vectors_keep_the_slots_of_the_largest_where_rows_were_deleted(
    large: Path, tmp_path: Path
) -> None:
    index = shutil.copytree(large, tmp_path / "ix")
    few = build(tmp_path / "few", points(60, 9))
    indexmill.delete(index, np.arange(0, 900, 10), by="vector")
    indexmill.compact(index, out=tmp_path / "compact")
    indexmill.merge(index, few, out=tmp_path / "merged")
    assert_sound(tmp_path / "merged")
    with IndexFiles(tmp_path / "compact") as a, IndexFiles(tmp_path / "merged") as b:
        np.testing.assert_array_equal(b.vector_ids[:810], a.vector_ids)
    indexmill.merge(tmp_path / "compact", few, out=tmp_path / "two-steps")
    with IndexFiles(tmp_path / "merged") as a, IndexFiles(tmp_path / "two-steps") as b:
        np.testing.assert_array_equal(a.graph.read_all().neighbours, b.graph.read_all().neighbours)


def test_two_of_the_others_have_no_vectors_in_common(
    large: Path, little: Path, third: Path, tmp_path: Path
) -> None:
    indexmill.append(little, points(5, 4), out=tmp_path / "grown")
    with pytest.raises(InputError, match=r"in common with .*add --force"):
        indexmill.merge(large, little, third, tmp_path / "grown", out=tmp_path / "none")
    with pytest.raises(InputError, match="same index twice"):
        indexmill.merge(large, little, third, little, out=tmp_path / "none")
