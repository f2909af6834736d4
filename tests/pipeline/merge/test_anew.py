"""Merges of graphs whose vectors would mostly be inserted: one graph is built of all."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run_json
from tests.support.indexes.append import assert_sound, build, manifest, points, recall, run_record
from tests.support.indexes.builds import data_files
from tests.support.indexes.built import Built
from tests.support.processes.memory import least_budget, needs_sizes, peak_of_command

import indexmill
from indexmill.builders.partition.build import partitioned_bytes
from indexmill.pipeline.append.memory import Growth, building_bytes
from indexmill.pipeline.generations.opened import OpenedIndex

ALL = points(1500, 1)
QUERIES = points(100, 7)
THIRDS = [np.ascontiguousarray(ALL[first::3]) for first in range(3)]


@pytest.fixture(scope="module")
def thirds(built: Built) -> list[Path]:
    return [built(build, third) for third in THIRDS]


def merged(out: Path, indexes: list[Path], **options: Any) -> dict[str, Any]:
    indexmill.merge(*indexes, out=out, **options)
    assert_sound(out)
    return run_record(out)


def test_a_graph_of_all_is_built_if_its_memory_is_there(thirds: list[Path], tmp_path: Path) -> None:
    record = merged(tmp_path / "ix", thirds)
    assert "build" in record["seconds"]
    assert record["changed_lists"] == len(ALL)
    assert "distances" not in record
    rebuilt = build(tmp_path / "rebuilt", np.concatenate(THIRDS))
    found = [recall(index, np.concatenate(THIRDS), QUERIES) for index in (tmp_path / "ix", rebuilt)]
    assert found[0] > found[1] - 0.01
    least = least_budget(partial(indexmill.merge, *thirds, out=tmp_path / "none"))
    record = merged(tmp_path / "little", thirds, memory=least)
    assert "insert" in record["seconds"]
    assert record["distances"] > 0


def test_vertices_of_a_half_are_inserted(thirds: list[Path], tmp_path: Path) -> None:
    assert "insert" in merged(tmp_path / "ix", thirds[:2])["seconds"]


def test_workers_do_not_change_the_bytes(thirds: list[Path], tmp_path: Path) -> None:
    for workers in (1, 3):
        assert "build" in merged(tmp_path / str(workers), thirds, workers=workers)["seconds"]
    assert data_files(tmp_path / "1") == data_files(tmp_path / "3")


def test_merged_twice_or_once_as_much_is_found(thirds: list[Path], tmp_path: Path) -> None:
    merged(tmp_path / "two", thirds[:2])
    merged(tmp_path / "twice", [tmp_path / "two", thirds[2]])
    merged(tmp_path / "once", thirds)
    everything = np.concatenate(THIRDS)
    one, two = (recall(tmp_path / name, everything, QUERIES) for name in ("once", "twice"))
    assert abs(one - two) < 0.01


def test_drift_of_a_graph_that_was_built_anew_asks_for_nothing(thirds: list[Path], tmp_path: Path) -> None:
    index = tmp_path / "ix"
    merged(index, thirds)

    def told() -> tuple[int, bool, str]:
        drift = manifest(index)["drift"]
        return drift["laid_out_vectors"], drift["rebuild"], drift["advice"].partition(":")[0]

    assert told() == (1500, False, "keep")  # most are not of the first build, but the graph is as good as one
    indexmill.append(index, points(100, 3))
    assert told() == (1500, False, "keep")
    run_json("layout", str(index), "--order", "star")
    assert told() == (1600, False, "keep")
    indexmill.delete(index, np.arange(200), by="vector")
    indexmill.compact(index)
    assert told() == (1400, False, "keep")
    assert_sound(index)


def test_the_plan_of_an_update_says_what_the_merge_does(thirds: list[Path], tmp_path: Path) -> None:
    def planned(**options: Any) -> set[str]:
        (tmp_path / "job.toml").write_text(
            f"base = {[str(third) for third in thirds]}\nout = '{tmp_path / 'ix'}'\n"
            + "".join(f"{name} = {value!r}\n" for name, value in options.items())
        )
        return set(run_json("plan", str(tmp_path / "job.toml"))["stages"])

    assert "merge build" in planned()
    least = least_budget(partial(indexmill.merge, *thirds, out=tmp_path / "none"))
    assert "merge insert" in planned(memory=least)


@pytest.fixture(scope="module", params=["another builder", "queries"])
def shaped(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> list[Path]:
    """Thirds that another builder than the default one, or queries, shaped."""
    folder = tmp_path_factory.mktemp("shaped")
    np.save(folder / "queries.npy", points(200, 8))
    kept = {
        "another builder": {"builder": "vamana"},
        "queries": {"query_sample": str(folder / "queries.npy")},
    }
    return [build(folder / str(i), third, **kept[request.param]) for i, third in enumerate(THIRDS)]


@pytest.mark.parametrize("change", ["none", "append", "compact"])
def test_a_graph_that_another_builder_or_queries_shaped_is_kept(
    shaped: list[Path], tmp_path: Path, change: str
) -> None:
    indexes = [shutil.copytree(shaped[0], tmp_path / "0"), *shaped[1:]]
    if change == "append":
        indexmill.append(indexes[0], points(5, 9))
    if change == "compact":
        indexmill.delete(indexes[0], [3], by="vector")
        indexmill.compact(indexes[0])
    assert "insert" in merged(tmp_path / "ix", indexes)["seconds"]


@pytest.mark.memory
@needs_sizes
def test_the_build_stays_within_the_memory_from_which_it_is_chosen(tmp_path: Path) -> None:
    rows = np.random.default_rng(3).integers(0, 256, (75_000, 16), dtype=np.uint8)
    frugal = {"R": 32, "L": 32, "order": "identity", "navigation": 0, "workers": 2, "pq_rotation": "none"}
    parts = [build(tmp_path / str(i), part, **frugal) for i, part in enumerate(np.split(rows, 3))]
    with OpenedIndex(parts[0]) as largest:
        growth = Growth(25_000, 50_000, 0, 3 * largest.ids_bytes)
        budget = building_bytes(largest, growth)
    peaks = {}
    for memory, stage in ((budget, "build"), (budget - (1 << 20), "insert")):
        peaks[stage] = peak_of_command(memory, "merge", *parts, "--out", tmp_path / stage)
        assert 0 < peaks[stage] <= memory
        assert stage in run_record(tmp_path / stage)["seconds"]
    counted = partitioned_bytes(len(rows), rows.shape[1], frugal["R"])
    assert 0.3 * counted < peaks["build"] - peaks["insert"] < counted
