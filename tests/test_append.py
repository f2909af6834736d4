"""`append`: what a new generation keeps, what it finds, what it costs, and what it refuses."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli_support import run, run_json
from tests.extend_support import (
    DIM,
    SMALL,
    assert_sound,
    build,
    data_files,
    manifest,
    points,
    recall,
    run_record,
)
from tests.oracles.hostile import patch_manifest

import indexmill
from indexmill.formats.errors import (
    BudgetError,
    ConfigError,
    CorruptFile,
    IndexmillError,
    InputError,
    OutputExistsError,
)
from indexmill.formats.index import IndexFiles
from indexmill.pipeline.extend_drift import advise, optimism
from indexmill.pipeline.publish import output_lock

OLD, NEW = points(900, 1), points(200, 2)
BOTH = np.concatenate([OLD, NEW])


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("append") / "old", OLD)


@pytest.fixture(scope="module")
def appended(old: Path) -> Path:
    indexmill.append(old, NEW, out=old.with_name("appended"))
    return old.with_name("appended")


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8"])
def test_every_input_type_is_appended_and_found(tmp_path: Path, dtype: str) -> None:
    both = points(1000, 3, dtype)
    index = build(tmp_path / "ix", both[:800])
    indexmill.append(index, both[800:])
    assert_sound(index)
    assert recall(index, both, both[::20]) > 0.95
    assert (
        indexmill.open(index).search(both[800:], 1).vector_ids[:, 0] == np.arange(800, 1000)
    ).mean() > 0.97


@pytest.mark.parametrize("metric", ["cosine", "ip"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_cosine_and_inner_product_rank_old_and_new_alike(tmp_path: Path, metric: str, dtype: str) -> None:
    both = points(1000, 4)
    both *= np.random.default_rng(0).uniform(0.3, 1, (1000, 1)).astype(np.float32)
    both[17] *= 10  # no appended vector is longer
    both = both.astype(dtype)
    index = build(tmp_path / "ix", both[:800], metric=metric)
    indexmill.append(index, both[800:])
    assert_sound(index)
    assert recall(index, both, both[::20], metric) > 0.9
    got = indexmill.open(index).search(both[900:901].astype(np.float32), 1000, L=1000)
    v = both.astype(np.float64)
    products = v @ v[900]
    if metric == "cosine":
        products /= np.linalg.norm(v, axis=1) * np.linalg.norm(v[900])
    np.testing.assert_allclose(got.scores[0], products[got.vector_ids[0]], rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("node_dtype", ["float16", "sq16", "sq8"])
def test_compressed_nodes_keep_their_bytes_and_take_new_ones(tmp_path: Path, node_dtype: str) -> None:
    index = build(tmp_path / "ix", OLD, node_dtype=node_dtype)
    with IndexFiles(index) as files:
        before = files.graph.read_all().vectors
    indexmill.append(index, NEW)
    assert_sound(index)
    with IndexFiles(index) as files:
        np.testing.assert_array_equal(files.graph.read_all().vectors[: len(OLD)], before)
    assert recall(index, BOTH, BOTH[::20]) > (0.8 if node_dtype == "sq8" else 0.95)


def test_an_append_finds_as_much_as_a_build_of_everything(appended: Path, tmp_path: Path) -> None:
    queries = points(100, 7)
    rebuilt = build(tmp_path / "rebuilt", BOTH)
    assert recall(appended, BOTH, queries) > recall(rebuilt, BOTH, queries) - 0.01


def test_old_vectors_keep_slots_codes_and_vector_ids(old: Path, appended: Path) -> None:
    n = len(OLD)
    with IndexFiles(old) as a, IndexFiles(appended) as b:
        np.testing.assert_array_equal(b.vector_ids[:n], a.vector_ids)
        np.testing.assert_array_equal(b.codes[:n], a.codes)
        np.testing.assert_array_equal(b.graph.read_nodes(0, n).vectors, a.graph.read_all().vectors)
        assert sorted(b.vector_ids[n:]) == list(range(n, n + len(NEW)))
        assert b.entries.medoid == a.entries.medoid
        np.testing.assert_array_equal(b.entries.centroids, a.entries.centroids)


def test_an_entry_vertex_is_never_farther_from_its_centroid_than_before(old: Path, appended: Path) -> None:
    distances = []
    for index in (old, appended):
        with IndexFiles(index) as files:
            chosen = files.graph.read_all().vectors[files.entries.vertices]
            distances.append(((chosen - files.entries.centroids) ** 2).sum(axis=1))
    assert (distances[1] <= distances[0]).all()
    assert (distances[1] < distances[0]).any()


def test_the_navigation_graph_grows_as_a_build_would_make_it(tmp_path: Path) -> None:
    vectors = points(2400, 5)
    index = build(tmp_path / "ix", vectors[:1200], navigation=0.1)
    indexmill.append(index, vectors[1200:])
    with IndexFiles(index) as files:
        assert files.navigation is not None
        assert len(files.navigation.slots) == 1024  # the least sample
        assert files.navigation.slots.max() < 1200
    index = build(tmp_path / "some", vectors[:600])
    indexmill.append(index, vectors[600:])
    with IndexFiles(index) as files:
        assert files.navigation is not None
        assert len(files.navigation.slots) == 1024
        assert (files.navigation.slots >= 600).sum() == 424
    assert recall(index, vectors, vectors[::40]) > 0.95
    none = build(tmp_path / "none", vectors[:600], navigation=0)
    indexmill.append(none, vectors[600:800])
    assert not (none / "navigation.imx").exists()


@pytest.mark.parametrize("order", ["star", "identity", "random"])
def test_new_vertices_fill_the_last_page_and_then_new_ones(tmp_path: Path, order: str) -> None:
    index = build(tmp_path / "ix", OLD[:407], order=order)
    indexmill.append(index, NEW)
    assert_sound(index)
    assert manifest(index)["layout"]["order"] == order
    with IndexFiles(index) as files:
        new = files.vector_ids[407:]
        assert (list(new) == list(range(407, 607))) == (order == "identity")


def test_user_ids_and_metadata_follow(tmp_path: Path) -> None:
    def table(vectors: np.ndarray, first: int) -> pa.Table:
        n = range(first, first + len(vectors))
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
        return pa.table({"sku": [f"s{i}" for i in n], "price": [float(i) for i in n], "v": rows})

    pq.write_table(table(OLD, 0), tmp_path / "old.parquet")
    pq.write_table(table(NEW[:120], 900), tmp_path / "more-1.parquet")
    pq.write_table(table(NEW[120:], 1020), tmp_path / "more-2.parquet")
    index = tmp_path / "ix"
    indexmill.build(tmp_path / "old.parquet", index, id_column="sku", metadata_columns=["price"], **SMALL)
    opened = indexmill.append(index, str(tmp_path / "more-*.parquet"), id_column="sku")
    assert_sound(index)
    found = opened.search(BOTH, 1)
    assert found.ids[:, 0].tolist() == [f"s{i}" for i in found.vector_ids[:, 0]]
    assert (found.vector_ids[:, 0] == np.arange(1100)).mean() > 0.97
    assert pq.read_table(index / "metadata.parquet")["price"].to_pylist() == [float(i) for i in range(1100)]
    more = table(points(5, 9), 2000)
    assert (
        indexmill.append(index, more, id_column="sku").search(points(5, 9), 1).ids[:, 0].tolist()
        == more["sku"].to_pylist()
    )


@pytest.mark.parametrize(("n", "added"), [(1, 1), (1, 40), (3, 500), (500, 1)])
def test_the_smallest_and_the_largest_shares_can_be_added(tmp_path: Path, n: int, added: int) -> None:
    index = build(tmp_path / "ix", OLD[:n])
    indexmill.append(index, BOTH[n : n + added])
    assert_sound(index)
    assert recall(index, BOTH[: n + added], BOTH[: n + added : 7], k=min(10, n + added)) > 0.97


def test_equal_vectors_stay_reachable(tmp_path: Path) -> None:
    same = np.ones((600, DIM), np.float32)
    index = build(tmp_path / "ix", same[:400])
    indexmill.append(index, same[400:])
    assert_sound(index)


def test_the_same_input_gives_the_same_bytes_for_any_workers(
    old: Path, appended: Path, tmp_path: Path
) -> None:
    for workers in (1, 3):
        indexmill.append(old, NEW, out=tmp_path / "ix", workers=workers, force=True)
        assert data_files(tmp_path / "ix") == data_files(appended)


def test_searches_are_proportional_to_what_is_added(old: Path, appended: Path, tmp_path: Path) -> None:
    indexmill.append(old, NEW[:20], out=tmp_path / "few")
    few, many = run_record(tmp_path / "few")["distances"], run_record(appended)["distances"]
    assert few < many / 5
    assert many < len(NEW) * len(OLD)  # brute force


def test_generations_count_and_drift_adds_up(old: Path, tmp_path: Path) -> None:
    assert (manifest(old)["generation"], manifest(old)["parents"], manifest(old)["drift"]) == (1, [], None)
    index = shutil.copytree(old, tmp_path / "ix")
    indexmill.append(index, NEW[:100])
    second = manifest(index)
    indexmill.append(index, NEW[100:])
    third = manifest(index)
    assert (second["generation"], third["generation"]) == (2, 3)
    assert second["parents"] == [manifest(old)["build_id"]]
    assert third["parents"] == [second["build_id"]]
    assert third["drift"]["built_vectors"] == 900
    assert third["drift"]["added_vectors"] == 200
    assert third["drift"]["added_share"] == round(200 / 1100, 6)
    assert third["input"]["n_vectors"] == 1100
    assert third["certificate"]["recall"] > 0.95
    assert third["parameters"] == manifest(old)["parameters"]
    assert_sound(index)


def test_many_small_appends_are_laid_out_as_well_as_one(old: Path, appended: Path, tmp_path: Path) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    for first in range(0, 200, 20):
        indexmill.append(index, NEW[first : first + 20])
    assert_sound(index)
    many, once = (manifest(i)["layout"]["overlap_ratio"] for i in (index, appended))
    assert many > 0.9 * once
    with IndexFiles(old) as a, IndexFiles(index) as b:
        np.testing.assert_array_equal(b.vector_ids[:900], a.vector_ids)  # built slots never move
    found = indexmill.open(index).search(BOTH, 1).vector_ids[:, 0]
    assert (found == np.arange(1100)).mean() > 0.97


@pytest.mark.parametrize("node_dtype", ["sq16", "float16"])
def test_vectors_appended_before_keep_their_bytes_and_codes_where_they_move(
    tmp_path: Path, node_dtype: str
) -> None:
    index = build(tmp_path / "ix", OLD + 1000, node_dtype=node_dtype)  # far from zero: decoding loses digits
    stored = []
    for first in (0, 100):
        indexmill.append(index, NEW[first : first + 100] + 1000)
        with IndexFiles(index) as files:
            order = np.argsort(files.vector_ids)
            stored.append((files.graph.read_all().vectors[order], files.codes[order], files.vector_ids))
    assert (stored[0][2] != stored[1][2][:1000]).any()
    for before, after in zip(stored[0][:2], stored[1][:2], strict=True):
        np.testing.assert_array_equal(after[:1000], before)


def test_drift_tells_when_the_codes_no_longer_fit(old: Path, tmp_path: Path) -> None:
    indexmill.append(old, NEW + 30, out=tmp_path / "far")
    drift = manifest(tmp_path / "far")["drift"]
    assert drift["code_error_ratio"] > 2
    assert drift["rebuild"] is True
    assert "codes of added vectors err" in drift["advice"]
    indexmill.append(old, OLD[:10], out=tmp_path / "near")
    assert manifest(tmp_path / "near")["drift"]["rebuild"] is False


def test_advice_follows_the_documented_thresholds() -> None:
    assert advise(0.49, 1.74, 0.81)[0] is False
    assert advise(0.49, None, None)[0] is False
    for figures, word in (
        ((0.5, 1.0, 1.0), "50% of"),
        ((0.1, 1.75, 1.0), "codes"),
        ((0.1, 1.0, 0.79), "overlap"),
    ):
        rebuild, advice = advise(*figures)
        assert rebuild is True
        assert word in advice


def test_codes_of_more_of_the_same_err_as_the_training_set_foretells() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6000, 4))
    means = rows.reshape(600, 10, 4).mean(axis=1)  # 600 centres of 10 rows that have nothing in common
    trained = ((rows.reshape(600, 10, 4) - means[:, None]) ** 2).sum(axis=2).mean()
    others = ((rng.normal(size=(600, 10, 4)) - means[:, None]) ** 2).sum(axis=2).mean()
    assert optimism(10) == pytest.approx(others / trained, rel=0.05)
    assert optimism(1) is None


def test_an_index_of_version_1_1_is_appended_to(old: Path, tmp_path: Path) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    keys = ("generation", "parents", "drift")
    patch_manifest(index, lambda v: (v["format"].update(minor=1), *(v.pop(key) for key in keys)))
    indexmill.append(index, NEW)
    assert manifest(index)["generation"] == 2
    assert_sound(index)


def test_a_reader_keeps_the_generation_it_opened(old: Path, tmp_path: Path) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    before = indexmill.open(index)
    wanted = before.search(NEW, 5).vector_ids
    after = indexmill.append(index, NEW)
    np.testing.assert_array_equal(before.search(NEW, 5).vector_ids, wanted)
    assert (after.search(NEW, 5).vector_ids >= len(OLD)).any()
    assert len(after) == len(before) + len(NEW)


def test_a_link_to_an_index_leads_to_the_next_generation(old: Path, tmp_path: Path) -> None:
    shutil.copytree(old, tmp_path / "ix")
    (tmp_path / "link").symlink_to("ix")
    indexmill.append(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert manifest(tmp_path / "ix")["generation"] == 2


def _save(path: Path, rows: Any) -> Path:
    np.save(path, rows)
    return path


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (points(5, 1)[:, :4].copy(), r"m\.npy: dimension 4; expected 12 as in .*ix; convert the input"),
        (points(5, 1, "uint8"), r"m\.npy: dtype uint8; expected float32 as in"),
        (np.full((3, DIM), np.nan, np.float32), r"m\.npy: row 0: component 0 is nan"),
        (np.empty((0, DIM), np.float32), r"m\.npy: no vectors"),
    ],
)
def test_vectors_that_do_not_fit_are_refused_and_nothing_changes(
    old: Path, tmp_path: Path, rows: np.ndarray, message: str
) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    before = data_files(index)
    with pytest.raises(InputError, match=message):
        indexmill.append(index, _save(tmp_path / "m.npy", rows))
    assert data_files(index) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ix", "m.npy"]


def test_ids_that_exist_or_are_of_another_type_are_refused(tmp_path: Path) -> None:
    index = tmp_path / "ix"
    indexmill.build(OLD, index, ids=np.arange(900) * 10, **SMALL)
    for ids, message in (
        ([11, 21, 70, 31], r"id 70 is not unique: .*ix row 7 and <array> row 2"),
        ([11, 21, 11, 31], r"id 11 is not unique: <array> row 0 and <array> row 2"),
        (list("abcd"), r"<array>: id type string; expected int64 as in .*ix; name a fitting column"),
        (None, r"<array>: id type none; expected int64"),
    ):
        with pytest.raises(InputError, match=message):
            indexmill.append(index, NEW[:4], ids=ids)
    assert indexmill.append(index, NEW[:2], ids=[1, -5]).search(NEW[:2], 1).ids[:, 0].tolist() == [1, -5]


def test_metadata_of_another_shape_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "ix"
    indexmill.build(OLD, index, metadata=pa.table({"price": np.arange(900.0)}), **SMALL)
    for metadata, got in ((None, "none"), (pa.table({"price": ["a", "b"]}), "price: string")):
        with pytest.raises(InputError, match=f"metadata columns {got}; expected price: double as in"):
            indexmill.append(index, NEW[:2], metadata=metadata)
    pq.write_table(pa.table({"v": NEW[:2].tolist(), "prise": [1.0, 2.0]}), tmp_path / "m.parquet")
    with pytest.raises(InputError, match=r"m\.parquet: .*price.*prise"):
        indexmill.append(index, tmp_path / "m.parquet")


def test_a_norm_above_the_largest_needs_a_rebuild(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", OLD, metric="ip")
    longest = OLD[np.argmax(np.linalg.norm(OLD, axis=1))]
    indexmill.append(index, longest[None])
    more = np.stack([OLD[0], longest * np.float32(1.001)])
    with pytest.raises(InputError, match=r"<array>: row 1: norm .*takes norms up to .*build the index again"):
        indexmill.append(index, more)


@pytest.mark.parametrize(("node_dtype", "factor"), [("sq8", 3), ("sq16", 3), ("float16", 1e5)])
def test_values_that_a_node_cannot_hold_need_a_rebuild(
    tmp_path: Path, node_dtype: str, factor: float
) -> None:
    index = build(tmp_path / "ix", OLD, node_dtype=node_dtype)
    more = np.stack([OLD[3], OLD[4]])
    more[1, 5] = np.abs(OLD[:, 5]).max() * factor
    with pytest.raises(InputError, match=r"<array>: row 1: component 5 is .*hold .*build the index again"):
        indexmill.append(index, more)


def test_a_value_just_outside_the_scale_is_stored_as_its_end(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", OLD, node_dtype="sq8")
    more = NEW[:1].copy()
    low, high = OLD[:, 3].min(), OLD[:, 3].max()
    more[0, 3] = high + 0.05 * (high - low)
    indexmill.append(index, more)
    assert manifest(index)["drift"]["clipped_share"] == 1
    with IndexFiles(index) as files:
        assert files.graph.read_nodes(900, 1).vectors[0, 3] == 255


def test_settings_that_cannot_work_are_refused(old: Path, appended: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[IndexmillError], str]] = [
        ({"memory": "1MiB"}, BudgetError, r"give at least [\d,]+ bytes with --memory"),
        ({"memory": "much"}, ConfigError, "memory: 'much' is not a size"),
        ({"workers": 0}, ConfigError, "workers: expected 1 to 1024, got 0"),
        ({"out": appended}, OutputExistsError, "add --force"),
        ({"out": tmp_path, "force": True}, OutputExistsError, "is not an index"),
    ]
    (tmp_path / "other").touch()
    for how, error, message in cases:
        with pytest.raises(error, match=message):
            indexmill.append(old, NEW, **how)
    with pytest.raises(InputError, match="no such index"):
        indexmill.append(tmp_path / "none", NEW)
    with pytest.raises(InputError, match=r"appended: an index; .*indexmill merge"):
        indexmill.append(old, appended)


def test_a_damaged_index_is_not_extended(old: Path, tmp_path: Path) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    raw = bytearray((index / "graph.imx").read_bytes())
    raw[3 * 4096 + 100] ^= 1
    (index / "graph.imx").write_bytes(raw)
    with pytest.raises(CorruptFile, match=r"graph\.imx: page 3"):
        indexmill.append(index, NEW)
    assert (index / "graph.imx").read_bytes() == raw


def test_a_full_disk_is_an_error_and_changes_nothing(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    index = shutil.copytree(old, tmp_path / "ix")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BudgetError, match=r"vectors\.npy: [\d,]+ bytes do not fit the disk"):
        indexmill.append(index, NEW)
    assert data_files(index) == data_files(old)
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_one_job_at_a_time_writes_an_index(old: Path, tmp_path: Path) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    with output_lock(index), pytest.raises(ConfigError, match="another job is writing"):
        indexmill.append(index, NEW)
    scratch = tmp_path / ".ix.indexmill-extend"
    scratch.mkdir()
    (scratch / "left-by-a-killed-run").touch()
    indexmill.append(index, NEW)
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_the_command_prints_the_manifest_and_the_drift(old: Path, tmp_path: Path) -> None:
    more = _save(tmp_path / "more.npy", NEW)
    out = tmp_path / "out"
    printed = run_json("append", old, more, "--out", out, "--workers", 1)
    assert printed == manifest(out)
    result = run("append", old, more, "--out", out)
    assert result.exit_code == 5
    result = run("append", old, more, "--out", out, "--force")
    assert result.exit_code == 0
    assert f"2, 18.2% of the vectors added since a build; {printed['drift']['advice']}" in result.stdout
    assert "insert" in result.stderr
    assert run("inspect", out).exit_code == 0
    assert run("append", old, tmp_path / "none.npy").exit_code == 3
    assert "indexmill append products.index" in run("append", "--help").stdout
