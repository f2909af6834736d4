"""Builds that search on codes of a byte a component and prune by vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import run
from tests.support.indexes.builds import assert_sound, build, clustered, data_files, l2, recall

import indexmill
from indexmill.builders.quantize.scalar import comparable_codes
from indexmill.builders.vamana.build import build_vamana
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.formats.errors import ConfigError
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.manifest import read_manifest
from indexmill.pipeline.kinds.graph.shape import GraphShape, built_bytes
from indexmill.pipeline.spec import Parameters


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_distances_of_codes_are_those_of_the_vectors_up_to_rounding(dtype: str) -> None:
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(300, 20)) * rng.uniform(0.1, 5, 20) + rng.normal(size=20) * 100).astype(dtype)
    vectors[:, 3] = 7.0  # no variance
    codes = comparable_codes(vectors)
    step = np.ptp(vectors.astype(np.float64), axis=0).max() / 255
    wide, coded = vectors.astype(np.float64), codes.astype(np.float64) * step
    exact, near = (np.linalg.norm(rows[None] - rows[:, None], axis=2) for rows in (wide, coded))
    assert np.abs(exact - near).max() <= 1.01 * step * np.sqrt(20)
    assert codes.max() == 255
    np.testing.assert_array_equal(comparable_codes(np.full((4, 2), 3, dtype)), 0)


def test_where_codes_lose_nothing_the_graph_is_that_of_the_vectors() -> None:
    whole = np.random.default_rng(1).integers(0, 256, (700, 12)).astype(np.float32)
    whole[0], whole[1] = 0, 255
    p = VamanaParameters(8, 24, 1.2)
    codes = comparable_codes(whole)
    np.testing.assert_array_equal(codes, whole)
    one, two = build_vamana(whole, 0, p, seed=1), build_vamana(whole, 0, p, seed=1, codes=codes)
    np.testing.assert_array_equal(one.neighbours, two.neighbours)


@pytest.mark.parametrize("shard_vectors", [None, 800], ids=["one piece", "shards"])
def test_builds_are_good_and_the_same_for_any_workers(tmp_path: Path, shard_vectors: int | None) -> None:
    vectors = clustered(1500, 12)
    one, two, exact = (
        build(tmp_path / name, vectors, workers=w, build_codes=c, shard_vectors=shard_vectors, navigation=0)
        for name, w, c in (("one", 1, "sq8"), ("two", 2, "sq8"), ("exact", 1, "none"))
    )
    assert_sound(one)
    assert data_files(one) == data_files(two)
    assert read_manifest(one).parameters["build_codes"] == "sq8"
    queries = clustered(40, 12, seed=1)
    assert recall(one, vectors, queries, l2) > recall(exact, vectors, queries, l2) - 0.01
    with IndexFiles(one) as a, IndexFiles(exact) as b:
        assert (a.graph.read_all().neighbours != b.graph.read_all().neighbours).any()


def test_what_has_no_use_for_codes_refuses_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"build_codes: goes with builder vamana"):
        indexmill.build(clustered(300, 8), tmp_path / "ix", builder="partition", build_codes="sq8")
    with pytest.raises(ConfigError, match=r"build_codes: sq8 goes with float vectors, <array> holds int8"):
        indexmill.build(clustered(300, 8, "int8"), tmp_path / "ix", build_codes="sq8")
    np.save(tmp_path / "v.npy", clustered(300, 8))
    said = run("build", "--input", tmp_path / "v.npy", "--out", tmp_path / "ix", "--build-codes", "pq")
    assert said.exit_code == 2
    assert said.stderr.startswith("error: --build-codes: input should be 'none' or 'sq8'")


def test_a_build_by_codes_reserves_room_for_them() -> None:
    none, sq8 = (
        built_bytes(
            9_000, GraphShape(9_000, 70, np.dtype(np.float32), 0, Parameters(builder="vamana", build_codes=c))
        )
        for c in ("none", "sq8")
    )
    assert sq8 == none + 9_000 * 70
