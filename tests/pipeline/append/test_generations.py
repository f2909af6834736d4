"""`append`: generations, drift, and the generation that each reader sees."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.hostile import patch_manifest
from tests.support.cli import run, run_json
from tests.support.indexes.append import (
    append,
    assert_sound,
    build,
    manifest,
    points,
)
from tests.support.indexes.built import Built

import indexmill
from indexmill.formats.graph.index import IndexFiles
from indexmill.pipeline.append.codes import optimism
from indexmill.pipeline.append.drift import advise

OLD, NEW = points(900, 1), points(200, 2)
BOTH = np.concatenate([OLD, NEW])


@pytest.fixture(scope="module")
def old(built: Built) -> Path:
    return built(build, OLD)


@pytest.fixture(scope="module")
def appended(built: Built, old: Path) -> Path:
    return built(append, old, NEW)


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
    """A rebuild where codes err; another layout, which is cheaper, where the layout alone is worse."""
    for figures, rebuild, first, word in (
        ((1.74, 0.8), False, "keep", "no figure"),
        ((None, None), False, "keep", "no figure"),
        ((1.75, 1.0), True, "rebuild", "err 1.75 times"),
        ((1.0, 0.79), False, "layout", "fell to 79%"),
        ((None, 0.79), False, "layout", "fell to 79%"),
        ((1.75, 0.79), True, "rebuild", "err 1.75 times"),
    ):
        told, advice = advise(*figures)
        assert (told, advice.partition(":")[0]) == (rebuild, first)
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


def test_the_navigation_graph_follows_vectors_that_move(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", points(1500, 3), navigation=0.1)
    indexmill.append(index, points(200, 4))  # the tail
    sampled = []
    for more in (points(1, 5), points(1, 6)):  # too few for another vertex of the navigation graph
        with IndexFiles(index) as files:
            assert files.navigation is not None
            sampled.append(set(files.vector_ids[files.navigation.slots].tolist()))
        indexmill.append(index, more)
    assert sampled[0] == sampled[1]
    assert_sound(index)


def test_a_link_to_an_index_leads_to_the_next_generation(old: Path, tmp_path: Path) -> None:
    shutil.copytree(old, tmp_path / "ix")
    (tmp_path / "link").symlink_to("ix")
    indexmill.append(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert manifest(tmp_path / "ix")["generation"] == 2


def test_the_command_prints_the_manifest_and_the_drift(old: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.npy"
    np.save(more, NEW)
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
