"""The simulation of searches of formats that no index has, beside the reader's searches of one that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.bench import read_rate
from tests.support.indexes.builds import build, clustered

from indexmill.formats.graph.index import IndexFiles
from indexmill.jobs.bench.common import disk
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, write_bin, write_truth
from indexmill.jobs.bench.counts.left_out import decoded, formats
from indexmill.jobs.bench.counts.left_out.decoded import squared
from indexmill.jobs.bench.counts.left_out.formats import (
    NODES,
    RABITQ,
    SQ8,
    USUAL,
    Reads,
    fewest_exact,
    measured_again,
)
from indexmill.jobs.bench.counts.left_out.simulation import MOST_WIDTH, Known, Layout, simulate
from indexmill.jobs.bench.counts.sets import Case
from indexmill.layout.order import Adjacency
from indexmill.reader.index import Index

N, DIM, K = 2500, 32, 10


@pytest.mark.parametrize("size", [12, 60, 300])
def test_it_finds_and_reads_what_the_reader_does(tmp_path: Path, size: int) -> None:
    path = build(tmp_path / "ix", clustered(N, DIM), pq_rotation="opq", node_dtype="same", navigation=0.0)
    queries = clustered(80, DIM, seed=7)
    with IndexFiles(path) as files:
        ids, book, nodes = files.vector_ids, files.codebook, files.graph.read_all()
        medoid, per_read = files.entries.medoid, files.graph.node_format.nodes_per_page
        near = squared(book.rotated(queries), book.decoded(files.codes))
    identity = np.arange(N, dtype=np.uint32)
    starts = np.full((len(queries), 1), medoid, np.uint32)
    known = Known(near, squared(queries, nodes.vectors))
    graph = Adjacency(nodes.neighbours, nodes.degrees.astype(np.int32))
    found = simulate(graph, Layout(identity, per_read), known, starts, size, K)
    wanted = Index(path).search(
        queries, K, L=size, policy="pipeline", entry="medoid", beam_width=MOST_WIDTH, deterministic=True
    )
    same = found.counters["pages_read"] == wanted.counters["pages_read"]
    assert same.mean() > 0.95  # rounding may order equal codes otherwise
    assert np.mean(ids[found.vector_ids] == wanted.vector_ids) > 0.99


def test_vertices_of_a_read_are_those_of_the_layout() -> None:
    """A path of six vertices whose ends share a read: one read brings both."""
    lists = np.array([[1, 0], [0, 2], [1, 3], [2, 4], [3, 5], [4, 5]], np.uint32)
    graph = Adjacency(lists, np.full(6, 2, np.int32))
    away = np.arange(6, 0, -1, dtype=np.float32)[None]
    order = np.array([0, 5, 1, 4, 2, 3], np.uint32)
    starts = np.zeros((1, 1), np.uint32)
    found = simulate(graph, Layout(order, 2), Known(away, away), starts, 6, 6)
    assert found.counters["pages_read"].tolist() == [3]
    assert found.vector_ids.tolist() == [[5, 4, 3, 2, 1, 0]]
    alone = simulate(graph, Layout(order, 1), Known(away, away), starts, 6, 3)
    assert alone.counters["pages_read"].tolist() == [6]
    assert alone.vector_ids.tolist() == [[5, 4, 3]]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    data = Dataset(tmp_path_factory.mktemp("set"))
    for name, n, seed in (("base", 800, 1), ("query", 60, 2)):
        write_bin(data.folder / f"{name}.fbin", clustered(n, DIM, seed=seed))
    write_truth(data)
    return Case("tiny", data, data.folder)


@pytest.mark.parametrize("node", list(NODES))
def test_distances_by_nodes_are_near_the_true_ones(
    case: Case, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded, "CENTROIDS", 16)
    base = np.asarray(formats.read_bin(case.data.base))
    found, true = NODES[node].distances(case.queries, base, base), squared(case.queries, base)
    assert found.shape == true.shape
    assert np.corrcoef(found.ravel(), true.ravel())[0, 1] > {SQ8: 0.9999}.get(node, 0.7)


@pytest.mark.parametrize("make", [decoded.rotated_codes, decoded.rabitq_codes])
def test_distances_by_more_code_are_nearer(case: Case, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "CENTROIDS", 16)
    base = np.asarray(formats.read_bin(case.data.base))
    true = squared(case.queries, base)
    errors = [np.abs(make(case.queries, base, base, size) - true).mean() for size in (1, 8)]
    assert errors[1] < 0.7 * errors[0]


def test_how_many_exact_vectors_are_read_is_chosen_on_other_queries_than_those_that_are_told(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[NDArray[Any]] = []

    def fewest(other: Case, base: NDArray[Any], found: NDArray[Any]) -> int:
        asked.append(other.queries)
        return fewest_exact(other, base, found)

    monkeypatch.setattr(decoded, "CENTROIDS", 16)
    few = {SQ8: (USUAL,), RABITQ: (Reads(4, 6, 63),)}
    nodes = {name: NODES[name]._replace(reads=reads) for name, reads in few.items()}
    monkeypatch.setattr(formats, "NODES", nodes)
    monkeypatch.setattr(formats, "fewest_exact", fewest)
    rows = formats.measure(Run("counts", {formats.NAME: case.data}, tmp_path))["rows"]
    queries = read_bin(case.data.query)
    assert [np.array_equal(one, queries[: len(queries) // 2]) for one in asked] == [True]
    exact = {row["node"]: row["exact_reads"] for row in rows}
    assert exact[SQ8] == 0
    assert exact[RABITQ] >= K


def test_larger_reads_are_timed_in_turns(tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def rate(path: Path, depth: int, seconds: float, block_bytes: int) -> dict[str, Any]:
        timed.append(block_bytes)
        return read_rate(path, depth, seconds, block_bytes)

    monkeypatch.setattr(disk, "read_rate", rate)
    found = formats.blocks(Run("counts", {formats.NAME: case.data}, tmp_path))
    assert timed == formats.ROUNDS * [4096, 8192, 16384]
    assert {kib: one["value"] for kib, one in found["reads_per_s"].items()} == {
        "4": 90000,
        "8": 45000,
        "16": 22500,
    }


def test_as_few_exact_vectors_are_read_as_lose_little(case: Case) -> None:
    base, right = np.asarray(formats.read_bin(case.data.base)), case.truth[0].astype(np.int64)
    assert fewest_exact(case, base, right[:, :40]) == K
    swapped = right[:, :40].copy()
    swapped[:, [0, 15]] = swapped[:, [15, 0]]
    assert fewest_exact(case, base, swapped) == 16
    assert np.array_equal(measured_again(case, base, swapped, 16)[:, 0], right[:, 0])
    missing = np.where(np.arange(40) < 12, right[:, :40], -1)
    assert fewest_exact(case, base, missing) == K
