"""Exports to DiskANN, searched by DiskANN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.environments import Search, python_of
from tests.oracles.files.small_index import Aids, SmallIndex, random_vectors, write_small_index
from tests.oracles.graph.diskann_rust import rust_search
from tests.support.indexes.export import K, assert_same_except_ties, paste, permuted_lists

import indexmill

N, BEAM = 1500, 4


def make(folder: Path, **how: Any) -> tuple[SmallIndex, np.ndarray]:
    how = {"dtype": "float32", "dim": 24, "R": 14, "aids": Aids(8, 20), "id_type": "none", **how}
    small = write_small_index(folder, n=N, **how)
    return small, random_vectors(np.random.default_rng(77), 60, how["dim"], how["dtype"])


def ours(path: Path, queries: np.ndarray, list_size: int, entry: str) -> Any:
    """DiskANN's search, as we do it."""
    return indexmill.open(path).search(queries, K, L=list_size, beam_width=BEAM, policy="beam", entry=entry)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
@pytest.mark.parametrize("list_size", [20, 60])
def test_diskann_answers_as_our_own_search_does(
    tmp_path: Path, client: Search, dtype: str, list_size: int
) -> None:
    small, queries = make(tmp_path / "ix", dtype=dtype)
    indexmill.export(small.path, "diskann", tmp_path / "out")
    found = client(
        "diskannpy", "diskann_cpp.py", tmp_path / "out", queries, k=K, L=list_size, beam=BEAM, metric="l2"
    )
    mine = ours(small.path, queries, list_size, "centroids").slots
    assert_same_except_ties(small.path, queries, found["ids"].astype(np.int64), mine)


def test_a_graph_with_permuted_lists_does_not_pass(tmp_path: Path, client: Search) -> None:
    small, queries = make(tmp_path / "ix")
    indexmill.export(permuted_lists(small.path, tmp_path / "wrong"), "diskann", tmp_path / "out")
    found = client(
        "diskannpy", "diskann_cpp.py", tmp_path / "out", queries, k=K, L=20, beam=BEAM, metric="l2"
    )
    mine = ours(small.path, queries, 20, "centroids").slots
    with pytest.raises(AssertionError):
        assert_same_except_ties(small.path, queries, found["ids"].astype(np.int64), mine)


@pytest.mark.parametrize(("dim", "R"), [(1100, 8), (25, 14)])
def test_nodes_of_any_size_are_found(tmp_path: Path, client: Search, dim: int, R: int) -> None:
    small, queries = make(tmp_path / "ix", dim=dim, R=R, dtype="uint8" if dim == 25 else "float32")
    indexmill.export(small.path, "diskann", tmp_path / "out")
    found = client(
        "diskannpy", "diskann_cpp.py", tmp_path / "out", queries, k=K, L=40, beam=BEAM, metric="l2"
    )
    mine = ours(small.path, queries, 40, "centroids").slots
    assert_same_except_ties(small.path, queries, found["ids"].astype(np.int64), mine)


@pytest.mark.parametrize(("metric", "theirs"), [("ip", "mips"), ("cosine", "cosine")])
def test_other_metrics_find_what_we_find(tmp_path: Path, client: Search, metric: str, theirs: str) -> None:
    """With every vertex read: DiskANN scales queries before it compares codes, so shorter searches go other ways."""
    small, queries = make(tmp_path / "ix", metric=metric)
    indexmill.export(small.path, "diskann", tmp_path / "out")
    found = client(
        "diskannpy", "diskann_cpp.py", tmp_path / "out", queries, k=K, L=N, beam=BEAM, metric=theirs
    )
    mine = ours(small.path, queries, N, "centroids").slots
    assert (found["ids"] == mine).mean() > 0.99


@pytest.mark.parametrize("list_size", [20, 60])
def test_the_rust_client_answers_and_reads_as_its_search_over_our_graph_must(
    tmp_path: Path, client: Search, list_size: int
) -> None:
    small, queries = make(tmp_path / "ix")
    indexmill.export(small.path, "diskann", tmp_path / "out")
    found = client("diskannpy-rust", "diskann_rust.py", tmp_path / "out", queries, k=K, L=list_size, beam=1)
    counted = dict(zip(found["names"].tolist(), found["values"].tolist(), strict=True))
    slots, read, compared = rust_search(small, queries, list_size, K)
    assert_same_except_ties(small.path, queries, found["ids"].astype(np.int64), slots)
    assert counted["mean_ios"] == pytest.approx(read, rel=0.01)
    assert counted["mean_comps"] == pytest.approx(compared, rel=0.01)
    mine = indexmill.open(small.path).search(
        queries, K, L=list_size + 1, beam_width=1, policy="beam", entry="medoid"
    )  # it keeps one candidate more than asked for
    assert counted["mean_ios"] == pytest.approx(mine.counters["pages_read"].mean(), rel=0.03)


@pytest.mark.parametrize(("dtype", "dim", "R"), [("uint8", 24, 14), ("int8", 25, 14), ("float32", 1100, 8)])
def test_the_rust_client_answers_for_every_type_and_size_of_node(
    tmp_path: Path, client: Search, dtype: str, dim: int, R: int
) -> None:
    small, queries = make(tmp_path / "ix", dtype=dtype, dim=dim, R=R)
    indexmill.export(small.path, "diskann", tmp_path / "out")
    found = client("diskannpy-rust", "diskann_rust.py", tmp_path / "out", queries, k=K, L=30, beam=1)
    slots, _, _ = rust_search(small, queries, 30, K)
    assert_same_except_ties(small.path, queries, found["ids"].astype(np.int64), slots)


def test_the_rust_client_does_not_pass_with_permuted_lists(tmp_path: Path, client: Search) -> None:
    small, queries = make(tmp_path / "ix")
    indexmill.export(permuted_lists(small.path, tmp_path / "wrong"), "diskann", tmp_path / "out")
    found = client("diskannpy-rust", "diskann_rust.py", tmp_path / "out", queries, k=K, L=20, beam=1)
    with pytest.raises(AssertionError):
        assert_same_except_ties(
            small.path, queries, found["ids"].astype(np.int64), rust_search(small, queries, 20, K)[0]
        )


@pytest.mark.parametrize("ids", ["user", "slot"])
def test_the_snippet_runs(tmp_path: Path, ids: str) -> None:
    small, _ = make(tmp_path / "ix")
    found = indexmill.export(small.path, "diskann", tmp_path / "it's here", ids=ids)
    assert paste(found["open"], str(python_of("diskannpy"))).strip()
