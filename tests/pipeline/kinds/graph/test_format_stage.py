"""Stage *format*: the same choice however a build is cut, where it runs, and whatever interrupts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support.indexes.builds import assert_sound, build, correlated, data_files, recall
from tests.support.processes.kill import Driver, moments_of

from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.common.metric import as_stored
from indexmill.pipeline.kinds.graph import memory
from indexmill.pipeline.kinds.graph.candidates import LEAST_TRIAL, LEAST_VECTORS, QUERIES, Format
from indexmill.pipeline.kinds.graph.format import drawn_alone, settled_by_size, trials
from indexmill.pipeline.spec import Parameters

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three

DIM = 12
#: Bytes of a region: a few of them hold all vectors.
ROOM = 1_500_000


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return correlated(LEAST_VECTORS, DIM)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray) -> Path:
    return build(tmp_path_factory.mktemp("whole") / "ix", vectors, builder="partition")


def test_regions_and_shards_choose_as_a_build_in_one_piece(
    whole: Path, vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = build(tmp_path / "shards", vectors, builder="partition", shard_vectors=4000)
    monkeypatch.setattr(common_memory, "MOST_SORT_BUFFERS", 256 << 10)
    monkeypatch.setattr(memory, "fitted_shape", lambda shape, *_: replace(shape, region_bytes=ROOM))
    regions = build(tmp_path / "regions", vectors, builder="partition")
    assert "regions" in json.loads((regions / "run.json").read_text())["seconds"]
    assert data_files(regions) == data_files(whole)
    found, of_shards = (read_manifest(one).graph for one in (whole, shards))
    assert len(of_shards["shards"]) > 1
    assert of_shards["format"] == found["format"]
    assert len(found["format"]["tried"]) >= 2


def test_ray_chooses_as_threads_do(three: Three, whole: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    made = build(tmp_path / "ray", vectors, builder="partition", workers=2, **three.options)
    assert data_files(made) == data_files(whole)


# Killed and run again


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray) -> Driver:
    return Driver(tmp_path_factory.mktemp("format"), vectors)


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = driver.succeed(tmp_path_factory.mktemp("undisturbed") / "ix", builder="partition")
    assert "format" in json.loads(files["manifest.json"])["graph"]
    return files


def test_killed_while_formats_are_tried_and_on_the_way_to_the_files(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    inside = ["encode-done", "emit-begun:2"]  # of small indexes
    moments = ["format-begun", *inside, "format-written", "format-done", *moments_of(["encode", "emit"])]
    assert driver.die_at_each(tmp_path / "ix", 0, moments, builder="partition") == undisturbed


def test_a_choice_that_was_made_is_not_made_again(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    out, options = tmp_path / "ix", {"builder": "partition", "work": str(tmp_path / "work")}
    driver.die(out, 0, "format-done", **options)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("format-*/format.json")}
    assert len(made) == 1
    driver.die(out, 0, "emit-begun", **options)
    assert driver.succeed(out, **options) == undisturbed
    assert {path: path.stat().st_mtime_ns for path in made} == made


# Metrics and ceilings


def test_a_format_is_chosen_for_inner_products(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    vectors = correlated(LEAST_VECTORS, 24) * rng.lognormal(sigma=0.3, size=(LEAST_VECTORS, 1)).astype(
        np.float32
    )
    index = build(tmp_path / "ix", vectors, metric="ip", R=16)
    assert_sound(index)
    found = read_manifest(index).graph["format"]
    assert {one["pq_rotation"] for one in found["tried"]} == {"none", "opq"}
    assert all(one["recall"] >= found["recall"] for one in found["tried"])
    asked = correlated(40, 24, seed=5)
    assert recall(index, vectors, asked, lambda v, q: -(v @ q)) > 0.9


def test_queries_of_inner_products_have_nothing_in_the_added_component(tmp_path: Path) -> None:
    drawn = drawn_alone(as_stored(correlated(LEAST_TRIAL + QUERIES, DIM), "ip"))
    assert drawn.queries[:, -1].any()
    with trials(drawn, "ip", tmp_path, 1):
        assert not drawn.queries[:, -1].any()
        assert drawn.rows[:, -1].any()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def of_sizes(
    vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[float], list[Format]]:
    """Formats that are settled of codes of two sizes, with a ceiling."""
    every = [
        Format(size, rotation, node, 16)
        for node in ("sq8", "same")
        for rotation in ("none", "opq")
        for size in (2, 6)
    ]
    p = Parameters(builder="partition", R=16)
    place = tmp_path_factory.mktemp("place")
    return lambda ceiling: settled_by_size(array_source(vectors), p, every, ceiling, place, 2)


def test_each_size_of_codes_has_one_rotation_and_all_have_the_same_nodes(
    of_sizes: Callable[[float], list[Format]],
) -> None:
    found = of_sizes(0.5)
    assert [one.pq_bytes for one in found] == [2, 6]
    assert {one.node_dtype for one in found} == {"sq8"}
    assert of_sizes(0.5) == found


def test_nodes_are_as_large_as_the_recall_that_is_wanted_takes(
    of_sizes: Callable[[float], list[Format]],
) -> None:
    assert {one.node_dtype for one in of_sizes(1.0)} == {"same"}
