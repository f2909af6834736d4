"""Exports to engines that search in memory: usearch and SVS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.engines.environments import Search, python_of
from tests.oracles.files.small_index import random_vectors, write_small_index
from tests.support.indexes.append import build
from tests.support.indexes.export import (
    K,
    assert_same_except_ties,
    id_map,
    our_search,
    our_search_counted,
    paste,
    permuted_lists,
    whole_points,
)

import indexmill

ENGINES = ("usearch", "svs")
QUERIES = whole_points(60, seed=8)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("memory") / "ix", whole_points(3000), R=16, pq_bytes=8)


def search(
    client: Search, engine: str, folder: Path, queries: np.ndarray, list_size: int, metric: str = "l2"
) -> np.ndarray:
    distance = {"l2": "L2", "ip": "MIP", "cosine": "Cosine"}[metric]
    found = client(
        engine, f"{engine}_client.py", folder, queries, k=K, L=list_size, view=False, distance=distance
    )
    return found["ids"].astype(np.int64)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("list_size", [10, 16, 64])
def test_the_engine_answers_as_our_own_search_does(
    index: Path, client: Search, tmp_path: Path, engine: str, list_size: int
) -> None:
    indexmill.export(index, engine, tmp_path / "out", ids="slot")
    theirs = search(client, engine, tmp_path / "out", QUERIES, list_size)
    assert_same_except_ties(index, QUERIES, theirs, our_search(index, QUERIES, list_size))


def test_usearch_computes_as_many_distances_as_we_do(index: Path, client: Search, tmp_path: Path) -> None:
    indexmill.export(index, "usearch", tmp_path / "out", ids="slot")
    found = client("usearch", "usearch_client.py", tmp_path / "out", QUERIES, k=K, L=32, view=False)
    assert int(found["computed"]) == pytest.approx(our_search_counted(index, QUERIES, 32)[1], rel=0.03)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_graph_with_permuted_lists_does_not_pass(
    index: Path, client: Search, tmp_path: Path, engine: str
) -> None:
    indexmill.export(permuted_lists(index, tmp_path / "wrong"), engine, tmp_path / "out", ids="slot")
    theirs = search(client, engine, tmp_path / "out", QUERIES, 16)
    with pytest.raises(AssertionError):
        assert_same_except_ties(index, QUERIES, theirs, our_search(index, QUERIES, 16))


def test_usearch_answers_with_user_ids_also_mapped(index: Path, client: Search, tmp_path: Path) -> None:
    for ids in ("user", "slot"):
        indexmill.export(index, "usearch", tmp_path / ids, ids=ids)
    slots, names = (search(client, "usearch", tmp_path / ids, QUERIES, 32) for ids in ("slot", "user"))
    assert (id_map(tmp_path / "user")["id"].to_numpy()[slots] == names).all()
    mapped = client("usearch", "usearch_client.py", tmp_path / "user", QUERIES, k=K, L=32, view=True)["ids"]
    assert (mapped == names).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("dtype", "metric"),
    [
        ("float32", "ip"),
        ("float32", "cosine"),
        ("uint8", "l2"),
        ("int8", "l2"),
        ("float16", "l2"),
        ("sq8", "l2"),
    ],
)
def test_every_type_and_metric_finds_what_we_find(
    client: Search, tmp_path: Path, engine: str, dtype: str, metric: str
) -> None:
    small = write_small_index(tmp_path / "ix", n=400, dtype=dtype, metric=metric, id_type="none", R=12)
    indexmill.export(small.path, engine, tmp_path / "out", ids="slot")
    queries = random_vectors(np.random.default_rng(3), 30, 16, dtype)
    mine = indexmill.open(small.path).search(queries, K, L=400).slots
    asked = queries.astype(np.float32) if engine == "usearch" else queries
    theirs = search(client, engine, tmp_path / "out", asked, 400, metric)
    assert (theirs == mine).mean() > 0.98


@pytest.mark.parametrize("engine", ENGINES)
def test_the_snippet_runs(index: Path, tmp_path: Path, engine: str) -> None:
    found = indexmill.export(index, engine, tmp_path / "it's here")
    assert paste(found["open"], str(python_of(engine))).strip()
