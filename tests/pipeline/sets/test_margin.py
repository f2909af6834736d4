"""The build of a set chooses a margin: it finds the neighbours, workers do not change it, and searches use it."""

from __future__ import annotations

import json
import math
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import indexmill
from indexmill.formats.errors import BudgetError, CorruptFile, InputError
from indexmill.formats.index.checked import checked_json, write_checked_json
from indexmill.formats.index.setmanifest import read_set_manifest
from indexmill.formats.sources.source import array_source
from indexmill.jobs.cli.main import app
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.sets.divide import divide, load_margin
from indexmill.pipeline.sets.margin import MOST, NEIGHBOURS, QUERIES, SHARE, NeighbourParts, margin_bytes
from indexmill.reader.choices import UNMEASURED_MARGIN
from indexmill.reader.router import Router

RNG = np.random.default_rng(23)
N, N_QUERIES, DIM = 4000, 200, 12
CENTRES = RNG.standard_normal((40, DIM)) * 6


def clustered(n: int) -> Any:
    return CENTRES[RNG.integers(0, len(CENTRES), n)] + RNG.standard_normal((n, DIM))


def unclustered(n: int) -> Any:
    return RNG.standard_normal((n, DIM))


DATA = {
    name: (made(N).astype(np.float32), made(N_QUERIES).astype(np.float32))
    for name, made in {"clustered": clustered, "unclustered": unclustered}.items()
}


def nearest(vectors: Any, queries: Any, k: int = NEIGHBOURS) -> Any:
    distances = np.square(queries[:, None].astype(np.float64) - vectors[None]).sum(axis=2)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def recall(found: Any, truth: Any) -> float:
    return sum(len(set(a) & set(b)) for a, b in zip(found.ids, truth, strict=True)) / truth.size


def rewritten(directory: Path, margin: dict[str, Any] | None) -> None:
    """Write the manifest of a set again, with this margin."""
    value = checked_json(directory / "manifest.json")
    del value["digest"], value["margin"]
    write_checked_json(directory / "manifest.json", value | ({} if margin is None else {"margin": margin}))


def inspected(directory: Path) -> str:
    return CliRunner().invoke(app, ["inspect", str(directory)], catch_exceptions=False).stdout


def unit(vectors: Any) -> Any:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module", params=list(DATA))
def graphs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return the name of some data, and the folder of a set of it."""
    out = tmp_path_factory.mktemp("margin") / "set"
    indexmill.build(DATA[request.param][0], out, parts=4, R=16, L=32, pq_bytes=12)
    return request.param, out


def test_searches_by_default_find_what_those_of_one_index_do(
    graphs: tuple[str, Path], tmp_path: Path
) -> None:
    name, made = graphs
    vectors, queries = DATA[name]
    truth = nearest(vectors, queries)
    one = indexmill.build(vectors, tmp_path / "one", R=16, L=32, pq_bytes=12)
    found = indexmill.open(made).search(queries, L=400)
    assert recall(found, truth) >= 0.98 * recall(one.search(queries, L=400), truth)
    assert found.counters["parts"].mean() < 4


@pytest.mark.parametrize("name", list(DATA))
@pytest.mark.parametrize(("metric", "dtype"), [("cosine", "float32"), ("l2", "uint8"), ("l2", "float16")])
def test_the_margin_holds_for_every_metric_and_type(
    tmp_path: Path, name: str, metric: str, dtype: str
) -> None:
    vectors, queries = DATA[name]
    if dtype == "uint8":
        vectors, queries = (np.clip(np.rint(rows * 6 + 128), 0, 255).astype(np.uint8) for rows in DATA[name])
    else:
        vectors, queries = vectors.astype(dtype), queries.astype(dtype)
    opened = indexmill.build(vectors, tmp_path / "set", parts=4, kind="ivf", lists=4, metric=metric)
    compared = (unit(vectors), unit(queries)) if metric == "cosine" else (vectors, queries)
    truth = nearest(*(rows.astype(np.float32) for rows in compared))
    owners = np.searchsorted(opened.starts, opened.vector_ids_of(np.arange(N)), side="right") - 1
    asked = opened.route(queries)
    held = np.take_along_axis(asked, owners[truth], 1).mean()
    assert held >= SHARE - 0.015, "of queries that the build did not know"
    assert opened.manifest.margin.share >= SHARE


def test_the_margin_is_the_smallest_that_holds_the_share(graphs: tuple[str, Path]) -> None:
    name, made = graphs
    opened, vectors = indexmill.open(made), DATA[name][0]
    found = opened.manifest.margin
    assert (found.neighbours, found.queries, found.drawn_from) == (NEIGHBOURS, QUERIES, "vectors")
    owners = np.searchsorted(opened.starts, opened.vector_ids_of(np.arange(N)), side="right") - 1
    others = nearest(vectors, vectors, NEIGHBOURS + 1)[:, 1:]  # each vector is its own nearest
    shares = [
        np.take_along_axis(opened.route(vectors, margin), owners[others], 1).mean()
        for margin in (max(0, found.value - 0.03), found.value, found.value + 0.03)
    ]
    assert shares[0] < SHARE + 0.003, "a sample of 512 among 4,000"
    assert shares[1] == pytest.approx(found.share, abs=0.005)
    assert shares[2] > SHARE - 0.003


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_neighbours_are_those_of_brute_force_however_vectors_come(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    n, n_parts = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 5))
    vectors = random.integers(0, 4, (n, 3)).astype(data.draw(st.sampled_from(["float32", "uint8", "int8"])))
    parts = random.integers(0, n_parts, n).astype(np.uint32)
    is_vector = data.draw(st.booleans())
    rows = np.sort(random.choice(n, min(n, 7), replace=False))
    queries = vectors[rows] if is_vector else random.integers(0, 4, (5, 3)).astype(vectors.dtype)
    origin = np.zeros(3, np.float32)  # products of small whole numbers are exact
    kept = NeighbourParts(queries, origin, rows if is_vector else None, data.draw(st.integers(1, 3)))
    first = 0
    while first < n:
        last = min(n, first + data.draw(st.integers(1, 20)))
        kept.add(first, vectors[first:last], parts[first:last])
        first = last
    router = Router(random.random((n_parts, 3)).astype(np.float32), np.zeros(n_parts, np.float32), "l2")
    _, beyond = router.beyond(queries)
    needed = []
    for at, query in enumerate(queries.astype(int)):
        there = [
            (np.square(query - vector.astype(int)).sum(), part)
            for row, (vector, part) in enumerate(zip(vectors, parts, strict=True))
            if not (is_vector and row == rows[at])
        ]
        needed += [beyond[at, part] for _, part in sorted(there)[:NEIGHBOURS]]
    found = kept.margin(router)
    if not needed:
        assert found is None
        return
    assert found is not None
    hold = lambda margin: np.mean(np.array(needed) < margin)  # noqa: E731
    assert found.share == hold(found.value) >= SHARE
    assert 0 < found.value <= MOST
    assert found.value == 0.01 or hold(found.value - 0.01) < SHARE


@pytest.mark.parametrize("name", list(DATA))
def test_workers_do_not_change_the_margin(tmp_path: Path, name: str) -> None:
    found = set()
    for threads in (1, 2, 7):
        folder = tmp_path / str(threads)
        folder.mkdir()
        divide(array_source(DATA[name][0]), "l2", 3, 5, 1 << 30, folder, Silent(), threads)
        found.add((folder / "margin.json").read_bytes())
        assert load_margin(folder) is not None
    assert len(found) == 1


def test_a_margin_that_is_given_stands(graphs: tuple[str, Path]) -> None:
    name, made = graphs
    opened, queries = indexmill.open(made), DATA[name][1]
    assert opened.margin == opened.manifest.margin.value == read_set_manifest(made).margin.value
    assert np.array_equal(opened.route(queries), opened.route(queries, opened.margin))
    for margin in (0.0, 0.1, math.inf):
        found = opened.search(queries, margin=margin)
        assert (found.counters["parts"] == opened.route(queries, margin).sum(axis=1)).all()
    by_default = opened.search(queries)
    assert np.array_equal(by_default.ids, opened.search(queries, margin=opened.margin).ids)


def test_unlike_data_get_unlike_margins() -> None:
    """Neighbours of clustered vectors lie in the same part, those of others beyond its border."""
    margins = {}
    for name, (vectors, _) in DATA.items():
        router = Router(vectors[:4], np.zeros(4, np.float32), "l2")
        kept = NeighbourParts(vectors[:QUERIES], np.zeros(DIM, np.float32), np.arange(QUERIES))
        kept.add(0, vectors, router.beyond(vectors)[0].astype(np.uint32))
        margins[name] = kept.margin(router).value
    assert margins["clustered"] < margins["unclustered"]


def test_a_sample_of_queries_chooses_the_margin(tmp_path: Path) -> None:
    vectors = DATA["clustered"][0]
    np.save(tmp_path / "sample.npy", (vectors[:300] * 0.3).astype(np.float32))  # between all clusters
    how: dict[str, Any] = {"parts": 4, "R": 12, "L": 24}
    by_vectors = indexmill.build(vectors, tmp_path / "vectors", **how).manifest.margin
    by_queries = indexmill.build(
        vectors, tmp_path / "queries", query_sample=str(tmp_path / "sample.npy"), **how
    ).manifest.margin
    assert (by_queries.drawn_from, by_queries.queries) == ("query_sample", 300)
    assert by_queries.value > by_vectors.value
    assert by_queries.share >= SHARE


def test_under_inner_product_all_parts_are_searched(tmp_path: Path) -> None:
    opened = indexmill.build(
        DATA["unclustered"][0], tmp_path / "set", parts=2, kind="ivf", lists=2, metric="ip"
    )
    assert opened.manifest.margin is None
    assert opened.margin == math.inf
    assert "margin" not in checked_json(tmp_path / "set" / "manifest.json")
    assert "margin: inf" in inspected(tmp_path / "set")


def test_a_set_from_before_has_the_margin_that_was_the_default(
    graphs: tuple[str, Path], tmp_path: Path
) -> None:
    name, made = graphs
    copy = tmp_path / "set"
    shutil.copytree(made, copy)
    rewritten(copy, None)
    opened, queries = indexmill.open(copy), DATA[name][1]
    assert opened.margin == UNMEASURED_MARGIN
    assert np.array_equal(opened.search(queries).ids, opened.search(queries, margin=0.3).ids)
    assert "margin: 0.3, not measured" in inspected(copy)


@pytest.mark.parametrize("value", [-0.1, "wide", None, {}])
def test_a_margin_that_is_none_is_refused(graphs: tuple[str, Path], tmp_path: Path, value: Any) -> None:
    copy = tmp_path / "set"
    shutil.copytree(graphs[1], copy)
    rewritten(copy, {**checked_json(copy / "manifest.json")["margin"], "value": value})
    with pytest.raises(CorruptFile, match=r"margin|keys of a set"):
        indexmill.open(copy)


def test_inspect_shows_the_margin_and_what_it_was_chosen_by(graphs: tuple[str, Path]) -> None:
    found = read_set_manifest(graphs[1]).margin
    assert found is not None
    line = next(line for line in inspected(graphs[1]).splitlines() if line.startswith("margin:"))
    assert line.startswith(
        f"margin: {found.value}, by which {found.share:.2%} of the 10 nearest neighbours of 512"
    )
    shown = json.loads(CliRunner().invoke(app, ["inspect", str(graphs[1]), "--json"]).stdout)
    assert shown["manifest"]["margin"]["value"] == found.value


def test_a_deletion_in_a_part_keeps_the_margin(graphs: tuple[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "set"
    shutil.copytree(graphs[1], copy)
    first = indexmill.open(copy).search(DATA[graphs[0]][1][:1], 1)
    owner = int(np.searchsorted(indexmill.open(copy).starts, first.vector_ids[0, 0], side="right")) - 1
    indexmill.delete(copy / f"part-{owner:03d}", first.ids[0].tolist())
    assert indexmill.open(copy).margin == indexmill.open(graphs[1]).margin
    assert indexmill.open(copy).search(DATA[graphs[0]][1][:1], 1).ids[0, 0] != first.ids[0, 0]


def test_rows_that_cannot_be_used_are_named_and_huge_ones_do_no_harm(tmp_path: Path) -> None:
    vectors = DATA["clustered"][0].copy()
    vectors[7] = np.nan
    with pytest.raises(InputError, match="row 7"):
        divide(array_source(vectors), "l2", 2, 0, 1 << 30, tmp_path, Silent())
    kept = NeighbourParts(np.full((3, 2), 3e38, np.float32), np.zeros(2, np.float32))
    kept.add(0, np.full((20, 2), -3e38, np.float32), np.zeros(20, np.uint32))
    assert kept.margin(Router(np.eye(2, dtype=np.float32), np.zeros(2, np.float32), "l2")) is None


def test_equal_centroids_leave_a_margin_that_is_finite() -> None:
    """There is no plane between equal centroids, so no margin but an endless one asks the other part."""
    router = Router(np.ones((2, 2), np.float32), np.array([0, 1], np.float32), "l2")
    kept = NeighbourParts(np.zeros((4, 2), np.float32), np.zeros(2, np.float32))
    kept.add(0, np.ones((20, 2), np.float32), np.ones(20, np.uint32))
    found = kept.margin(router)
    assert found is not None
    assert found.value == MOST
    assert found.share < SHARE


def test_memory_is_counted_and_does_not_grow_with_the_vectors(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="the router of a set needs"):
        divide(array_source(DATA["clustered"][0]), "l2", 2, 0, 1 << 20, tmp_path, Silent())
    vectors = RNG.standard_normal((8192, 256)).astype(np.float32)
    tracemalloc.start()
    origin = np.zeros(256, np.float32)
    kept = NeighbourParts(vectors[:QUERIES].copy(), origin, np.arange(QUERIES), threads=2)
    for start in range(0, 3 * len(vectors), len(vectors)):
        kept.add(start, vectors, np.zeros(len(vectors), np.uint32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < margin_bytes(256, 2)
