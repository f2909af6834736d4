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
from tests.support.processes.kill import Driver

from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.sources.source import array_source, open_source
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.common import preview
from indexmill.pipeline.kinds.common.metric import as_stored
from indexmill.pipeline.kinds.graph import memory
from indexmill.pipeline.kinds.graph.candidates import LEAST_TRIAL, LEAST_VECTORS, QUERIES, Format
from indexmill.pipeline.kinds.graph.format import drawn_alone, format_of_each_size, predicted_format
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
    """A choice that was made is not made again."""
    out, work = tmp_path / "ix", tmp_path / "ix.work"
    inside = ["encode-done", "emit-begun:2"]  # of small indexes
    for moment in ("format-begun", *inside, "format-written", "format-done"):
        driver.die(out, 0, moment, builder="partition")
    made = {path: path.stat().st_mtime_ns for path in work.glob("format-*/format.json")}
    assert len(made) == 1
    driver.die(out, 0, "encode-written", builder="partition")
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert driver.die_at_each(out, 0, ["emit-begun"], builder="partition") == undisturbed


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


def test_queries_of_inner_products_have_nothing_in_the_added_component() -> None:
    rows = as_stored(correlated(LEAST_TRIAL + QUERIES, DIM), "ip")
    drawn = drawn_alone(rows, "ip")
    assert not drawn.queries[:, -1].any()
    assert np.array_equal(drawn.queries[:, :-1], rows[:QUERIES, :-1])
    assert rows[:QUERIES, -1].any()
    assert drawn.rows[:, -1].any()


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
    return lambda ceiling: format_of_each_size(array_source(vectors), p, every, ceiling, place, 2)


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


def test_sizes_that_only_some_nodes_have_do_not_decide_on_the_nodes(
    vectors: np.ndarray, tmp_path: Path
) -> None:
    every = [Format(size, "none", node, 16) for node, size in (("sq8", 7), ("same", 4))]
    p = Parameters(builder="partition", R=16)
    for ceiling, wanted in ((0.5, every[:1]), (1.0, every[1:])):
        assert format_of_each_size(array_source(vectors), p, every, ceiling, tmp_path, 2) == wanted


# Inputs whose first rows are not like the others


@pytest.fixture(scope="module")
def two_parts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of vectors without common directions, and of several times as many with them."""
    folder = tmp_path_factory.mktemp("parts")
    np.save(folder / "0.npy", np.random.default_rng(1).normal(size=(2 * LEAST_TRIAL, 24)).astype(np.float32))
    np.save(folder / "1.npy", correlated(2 * LEAST_VECTORS, 24))
    return [str(folder / "0.npy"), str(folder / "1.npy")]


def test_tuning_judges_by_rows_of_the_whole_input(
    two_parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "WHOLE_BYTES", 1)
    source, p = open_source(two_parts), Parameters(builder="partition", R=16)
    every = [Format(6, rotation, "same", 16) for rotation in ("none", "opq")]
    assert format_of_each_size(source, p, every, 0.9, tmp_path, 2) == every[1:]
    assert predicted_format(source, p, every, tmp_path, 2) == every[0]  # by the first rows


def test_a_short_first_file_is_no_obstacle_to_a_plan(
    two_parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "WHOLE_BYTES", 1)
    np.save(tmp_path / "few.npy", np.load(two_parts[0])[:100])
    source, p = open_source([str(tmp_path / "few.npy"), *two_parts]), Parameters(builder="partition", R=16)
    every = [Format(6, rotation, "same", 16) for rotation in ("none", "opq")]
    assert predicted_format(source, p, every, tmp_path, 2) == every[0]  # without a trial it would be the last
