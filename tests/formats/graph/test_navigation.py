"""The navigation graph: its file, its sample, its build, and a search that ends near the query."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.oracles.files.hostile import field_offset, patch_page_file, section_offset
from tests.oracles.files.small_index import Aids, random_navigation, write_small_index
from tests.oracles.files.verify import verify_index
from tests.oracles.graph.navigation import navigation_search
from tests.oracles.graph.search import SearchOracle
from tests.support.indexes.builds import assert_sound, build, clustered, data_files

from indexmill.builders.vamana.navigation import (
    build_navigation,
    in_slot_order,
    navigation_sample,
    navigation_size,
)
from indexmill.formats.errors import BudgetError, ConfigError, CorruptFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.graph.navigation import Navigation, read_navigation, write_navigation
from indexmill.formats.index.manifest import read_manifest
from indexmill.jobs.jobfile import make_spec
from indexmill.pipeline.kinds.graph.memory import check_memory
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import Parameters
from indexmill.reader.index import Index


def lists(navigation: Navigation) -> list[list[int]]:
    return [part.tolist() for part in np.split(navigation.neighbours, navigation.offsets[1:-1])]


# The file


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 400), share=st.floats(0, 1), seed=st.integers(0, 99))
def test_navigation_comes_back(tmp_path: Path, n: int, share: float, seed: int) -> None:
    written = random_navigation(np.random.default_rng(seed), n, max(1, round(share * n)))
    write_navigation(tmp_path / "navigation.imx", written, n)
    got = read_navigation(tmp_path / "navigation.imx", bytes(16), n)
    for name, want in vars(written).items():
        assert np.array_equal(getattr(got, name), want), name


SMALL = Navigation(
    np.array([3, 5, 8], np.uint32), np.array([0, 2, 2, 3], np.uint32), np.array([2, 1, 0], np.uint32), 1, 2
)


def test_navigation_stands_where_the_specification_says(tmp_path: Path) -> None:
    path = tmp_path / "navigation.imx"
    write_navigation(path, SMALL, 9)
    data = path.read_bytes()
    assert data[8:12] == b"NAVI"
    for name, want in (("slots", (3, 5, 8)), ("offsets", (0, 2, 2, 3)), ("neighbours", (2, 1, 0))):
        assert struct.unpack_from(f"<{len(want)}I", data, section_offset(path, name)) == want
    for name, value in {"n_vertices": 9, "n_sample": 3, "max_degree": 2, "n_edges": 3, "entry": 1}.items():
        assert struct.unpack_from("<Q", data, field_offset(path, name)) == (value,)


@pytest.mark.parametrize(
    "change",
    [
        {"slots": [3, 5, 9]},
        {"slots": [3, 3, 8]},
        {"slots": []},
        {"offsets": [0, 2, 3]},
        {"offsets": [1, 2, 2, 3]},
        {"offsets": [0, 3, 3, 3]},
        {"offsets": [0, 2, 1, 3]},
        {"neighbours": [2, 2, 0]},
        {"neighbours": [3, 1, 0]},
        {"entry": 3},
        {"max_degree": 513},
    ],
)
def test_the_writer_refuses_what_is_no_navigation_graph(tmp_path: Path, change: dict[str, Any]) -> None:
    change = {k: np.array(v, np.uint32) if isinstance(v, list) else v for k, v in change.items()}
    with pytest.raises(ValueError, match="navigation: "):
        write_navigation(tmp_path / "navigation.imx", replace(SMALL, **change), 9)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "at", "value", "message"),
    [
        ("n_vertices", 0, 10, "field 'n_vertices': expected 9, got 10"),
        ("n_sample", 0, 0, "field 'n_sample': expected 1..9, got 0"),
        ("n_sample", 0, 2, "section 'slots': payload: expected 8 bytes, got 12"),
        ("max_degree", 0, 0, "field 'max_degree'"),
        ("max_degree", 0, 1, "offset 1: expected 0..1 more than offset 0, got 2"),
        ("n_edges", 0, 4, "section 'neighbours': payload: expected 16 bytes, got 12"),
        ("n_edges", 0, 7, "field 'n_edges': expected 0..6, got 7"),
        ("entry", 0, 3, "field 'entry': expected 0..2, got 3"),
        ("slots", 2, 9, "section 'slots': expected ascending slots below 9"),
        ("slots", 0, 5, "section 'slots': expected ascending slots"),
        ("offsets", 0, 1, "section 'offsets': expected 4 offsets from 0 to 3"),
        ("offsets", 3, 2, "section 'offsets': expected 4 offsets from 0 to 3"),
        ("offsets", 2, 1, "offset 2: expected 0..2 more than offset 1, got -1"),
        ("neighbours", 2, 3, "neighbour 2: expected a local position below 3, got 3"),
        ("neighbours", 0, 1, "local position 0: expected different neighbours"),
    ],
)
def test_a_hostile_navigation_is_rejected(
    tmp_path: Path, place: str, at: int, value: int, message: str
) -> None:
    path = tmp_path / "navigation.imx"
    write_navigation(path, SMALL, 9)
    if place in ("slots", "offsets", "neighbours"):
        offset, new = section_offset(path, place) + 4 * at, struct.pack("<I", value)
    else:
        offset, new = field_offset(path, place), struct.pack("<Q", value)
    patch_page_file(path, {offset: new})
    with pytest.raises(CorruptFile, match=r"navigation\.imx: " + message):
        read_navigation(path, n_vertices=9)


def test_an_index_without_the_graph_is_whole_and_one_not_named_is_ignored(tmp_path: Path) -> None:
    write_small_index(tmp_path, n=60, aids=Aids(n_navigation=0))
    (tmp_path / "navigation.imx").write_bytes(b"nothing of ours")
    assert verify_index(tmp_path) == []
    with IndexFiles(tmp_path) as index:
        assert index.navigation is None
    assert Index(tmp_path).native.n_navigation == 0


# Sample and graph


def test_a_sample_is_its_share_but_not_too_few_and_repeats_with_the_seed() -> None:
    assert [navigation_size(0.01, n) for n in (1, 1000, 50_000, 1_000_000)] == [1, 1000, 1024, 10_000]
    assert navigation_size(0, 1_000_000) == 0
    sample = navigation_sample(0.02, 90_000, seed=4)
    assert len(sample) == 1800
    assert (np.diff(sample.astype(np.int64)) > 0).all()
    assert sample[-1] < 90_000
    assert np.array_equal(sample, navigation_sample(0.02, 90_000, seed=4))
    assert not np.array_equal(sample, navigation_sample(0.02, 90_000, seed=5))


@pytest.mark.parametrize("n", [1, 2, 500])
def test_slot_order_renames_the_vertices_of_the_same_graph(n: int) -> None:
    vectors = np.random.default_rng(n).normal(size=(n, 8)).astype(np.float32)
    graph = build_navigation(vectors, seed=1)
    slots = np.random.default_rng(1).choice(5 * n, n, replace=False).astype(np.uint32)
    navigation = in_slot_order(graph, slots)
    named = navigation.slots.tolist()
    assert named == sorted(slots.tolist())
    assert named[navigation.entry] == slots[graph.entry]
    got = {slot: [named[u] for u in row] for slot, row in zip(named, lists(navigation), strict=True)}
    rows = (row[:degree] for row, degree in zip(graph.neighbours, graph.degrees, strict=True))
    assert got == {int(slot): slots[row].tolist() for slot, row in zip(slots, rows, strict=True)}


@pytest.mark.parametrize(("dtype", "metric"), [("int8", "l2"), ("float16", "l2"), ("float32", "ip")])
def test_every_sampled_vertex_can_be_reached_whatever_the_input(
    tmp_path: Path, dtype: str, metric: str
) -> None:
    index = build(tmp_path / "ix", clustered(1500, 12, dtype), metric=metric, navigation=0.1)
    assert_sound(index)
    with IndexFiles(index) as files:
        assert files.navigation is not None
        rows = lists(files.navigation)
        assert len(rows) == 1024 == Index(index).native.n_navigation
        reached, waiting = {files.navigation.entry}, [files.navigation.entry]
        while waiting:
            fresh = set(rows[waiting.pop()]) - reached
            reached |= fresh
            waiting += fresh
        assert len(reached) == 1024


def test_the_search_ends_at_the_nearest_sampled_vertex_and_nearer_than_the_centroids_lead(
    tmp_path: Path,
) -> None:
    vectors, queries = np.split(clustered(6040, 16), [6000])
    index = build(tmp_path / "ix", vectors, entries=64, pq_bytes=16)
    oracle = SearchOracle(index)
    with IndexFiles(index) as files:
        navigation, codes = files.navigation, files.codes
    assert navigation is not None
    found, nearest, entered = [], [], []
    for query in queries:
        table = oracle.distance_table(query.astype(np.float64))
        everywhere = table[np.arange(16), codes].sum(axis=1)
        candidates, n_scored = navigation_search(navigation, codes, table, 16)
        assert len(candidates) == 16
        assert n_scored < len(navigation.neighbours) / 4
        assert candidates == sorted(candidates)
        found.append(everywhere[candidates[0][1]])
        nearest.append(everywhere[navigation.slots].min())
        entered.append(everywhere[oracle.entry_vertex(query.astype(np.float64), "centroids")])
    assert np.isclose(found, nearest).mean() >= 0.9
    assert np.mean(found) < 0.8 * np.mean(entered)


# The stage


def test_the_same_job_gives_the_same_graph_for_any_workers_and_layouts_share_it(tmp_path: Path) -> None:
    vectors = clustered(2500, 10)
    work = str(tmp_path / "work")
    one = build(tmp_path / "one", vectors, work=work)
    two = build(tmp_path / "two", vectors, workers=2)
    assert data_files(one)["navigation.imx"] == data_files(two)["navigation.imx"]
    other = build(tmp_path / "other", vectors, order="random", L=34, work=work)
    names = [p.name.split("-")[0] for p in Path(work).iterdir()]
    assert (names.count("navigation"), names.count("build")) == (1, 2)
    edges = []
    for index in (one, other):
        with IndexFiles(index) as files:
            assert files.navigation is not None
            ids = files.vector_ids[files.navigation.slots]
            rows = [ids[row].tolist() for row in lists(files.navigation)]
            edges.append(dict(zip(ids.tolist(), rows, strict=True)))
    assert edges[0] == edges[1]  # one graph of vectors, in slots of two layouts


def test_another_fraction_rebuilds_the_navigation_graph_alone(tmp_path: Path) -> None:
    vectors = clustered(12_000, 6)
    work = str(tmp_path / "work")
    sizes = []
    for fraction in (0.01, 0.1, 0):
        index = build(tmp_path / f"ix{fraction}", vectors, navigation=fraction, work=work)
        assert_sound(index)
        assert read_manifest(index).parameters["navigation"] == fraction
        sizes.append(Index(index).native.n_navigation)
    assert sizes == [1024, 1200, 0]
    names = [p.name.split("-")[0] for p in Path(work).iterdir()]
    assert (names.count("navigation"), names.count("build"), names.count("emit")) == (2, 1, 3)
    assert "navigation.imx" not in data_files(tmp_path / "ix0")
    assert "navigation" not in json.loads((tmp_path / "ix0" / "run.json").read_text())["seconds"]


@pytest.mark.parametrize("fraction", [-0.01, 0.11])
def test_fractions_out_of_range_are_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match=r"navigation: .*0"):
        make_spec({"input": ["v.npy"], "out": "ix", "parameters": {"navigation": fraction}})


def test_a_sample_over_the_budget_is_refused() -> None:
    parameters = Parameters(
        builder="vamana", order="star", navigation=0.1, shard_vectors=100_000, pq_bytes=16
    )
    shape = GraphShape(10_000_000, 128, np.dtype(np.uint8), 0, parameters)
    with pytest.raises(BudgetError, match=r"stage navigation needs .* lower --navigation, or give at least"):
        check_memory(shape, 500 << 20, "local", 2)
