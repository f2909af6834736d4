"""`explain`: changes that would help where no layout can, measured or replayed on a sample that is only read."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run
from tests.support.indexes.append import build, points
from tests.support.indexes.builds import data_files
from tests.support.indexes.layout import in_nodes

import indexmill
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.layout.order import Adjacency
from indexmill.layout.star import star_order
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.relayout.auto import take_sample
from indexmill.pipeline.relayout.explained import proposals, streamed
from indexmill.pipeline.relayout.explained.code_distances import CodeDistances
from indexmill.pipeline.relayout.explained.placement import (
    apart,
    copies_per_node,
    lists_per_page,
    replicated,
)
from indexmill.pipeline.relayout.explained.replay import Searches, cost_at, replay, reranked
from indexmill.pipeline.relayout.explained.streamed import read_sample
from indexmill.pipeline.relayout.unpacked import unpack


@pytest.fixture(scope="module")
def one_a_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 floats and 16 neighbours: one node fills a page."""
    centres = np.random.default_rng(0).normal(size=(20, 600))
    rng = np.random.default_rng(1)
    rows = (centres[rng.integers(20, size=1000)] + 0.7 * rng.normal(size=(1000, 600))).astype(np.float32)
    return build(tmp_path_factory.mktemp("one") / "ix", rows, R=16, order="identity")


def test_where_no_layout_can_help_nothing_is_published_and_what_helps_is_proposed(one_a_page: Path) -> None:
    before = data_files(one_a_page)
    done = run("layout", str(one_a_page))
    assert done.exit_code == 8
    assert "a layout cannot help" in done.stderr
    assert "sq8 nodes" in done.stderr
    assert data_files(one_a_page) == before
    assert [p.name for p in one_a_page.parent.iterdir()] == ["ix"]


@pytest.fixture(scope="module")
def explained(one_a_page: Path) -> Any:
    return json.loads(run("explain", str(one_a_page), "--json").stdout)


def test_explain_measures_smaller_nodes_and_replays_other_formats(one_a_page: Path, explained: Any) -> None:
    found = explained
    assert (found["nodes_per_page"], found["layout_can_help"]) == (1, False)
    proposals = {p["name"]: p for p in found["proposals"]}
    sq8 = proposals["sq8 nodes"]
    assert (sq8["nodes_per_page"], sq8["how"]) == (6, "measured")
    assert sq8["change"] < -0.2
    assert sq8["more_than_now"][0] <= sq8["more_than_now"][1] < 0
    assert proposals["float16 nodes"]["nodes_per_page"] == 3
    others = [p for p in found["proposals"] if p["how"] == "replayed"]
    assert [p["name"] for p in others] == ["lists apart from vectors", "neighbours' lists in the slack"]
    now = sq8["pages_read"] / (1 + sq8["change"])
    for p in others:
        assert "Replayed" in p["words"]
        low, high = p["more_than_now"]
        assert low <= p["pages_read"] - now <= high
    assert [p.name for p in one_a_page.parent.iterdir()] == ["ix"]


def reads_at_recall(path: Path, rows: np.ndarray, chosen: np.ndarray, recall: float) -> float:
    """Page reads a query at `recall`, linear between list sizes; each query left out of its own results."""
    distances = (rows**2).sum(axis=1) - 2 * rows[chosen] @ rows.T  # less what is the same for all of a query
    distances[np.arange(len(chosen)), chosen] = np.inf
    truth = np.argsort(distances, axis=1)[:, :10]
    opened, points = indexmill.open(path), []
    for size in (11, 13, 16, 20, 28, 40, 60, 90):
        found = opened.search(rows[chosen], 11, L=size)
        hits = [
            len(set(ids.tolist()) & set(true.tolist())) / 10
            for ids, true in zip(found.vector_ids, truth, strict=True)
        ]
        points.append((np.mean(hits), found.counters["pages_read"].mean()))
    return float(np.interp(recall, *zip(*sorted(points), strict=True)))


def test_a_proposal_holds_for_an_index_built_so(one_a_page: Path, explained: Any, tmp_path: Path) -> None:
    claimed = next(p for p in explained["proposals"] if p["name"] == "sq8 nodes")["change"]
    with IndexFiles(one_a_page) as files:
        rows = files.graph.read_all().vectors
    build(tmp_path / "sq8", rows, R=16, node_dtype="sq8")
    chosen = np.arange(0, len(rows), 11)
    now, then = (reads_at_recall(path, rows, chosen, 0.95) for path in (one_a_page, tmp_path / "sq8"))
    assert then / now - 1 == pytest.approx(claimed, abs=0.1)


@pytest.fixture(scope="module")
def several_a_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("several") / "ix", points(3000, 1), R=24)


@pytest.fixture(scope="module")
def two_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,100 floats: a node takes two pages."""
    rows = np.random.default_rng(3).normal(size=(300, 1100)).astype(np.float32)
    return build(tmp_path_factory.mktemp("two") / "ix", rows, order="identity")


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        *(
            (kind, policy)
            for kind in ("one_a_page", "two_pages")
            for policy in ("pipeline", "page", "completion", "beam")
        ),
        ("several_a_page", "pipeline"),  # the others read a page again when they want another node of it
        ("several_a_page", "page"),
    ],
)
def test_a_replay_of_the_format_there_is_counts_the_pages_that_the_reader_does(
    kind: str, policy: Any, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(kind)
    with IndexFiles(path) as files:
        node, rows, n = files.graph.node_format, files.graph.read_all().vectors, files.graph.n_vertices
    order = star_order(*read_graph(path), node.nodes_per_group)
    view = indexmill.open(path).remapped(order)
    queries = rows[:60] + np.random.default_rng(1).normal(size=rows[:60].shape).astype(np.float32) / 4
    for list_size in (12, 60):
        found = view.search(queries, 10, L=list_size, policy=policy, trace=True)
        searches = Searches.recorded(found, order, node.nodes_per_group)
        placement = in_nodes(node, order)
        counted = replay(searches, placement).sum(axis=1) * placement.list_pages
        real = found.counters["pages_read"]
        assert counted.mean() == pytest.approx(real.mean(), rel=0.02)
        assert (np.abs(counted - real) <= np.maximum(0.02 * real, 1)).all()
    assert n == placement.list_unit.size


def read_graph(path: Path) -> Adjacency:
    """Lists by slot."""
    with IndexFiles(path) as files:
        nodes = files.graph.read_all()
    return Adjacency(nodes.neighbours, nodes.degrees.astype(np.int32))


def searches_of(*queries: list[tuple[str, int]]) -> Searches:
    """From what each query did: ``("choose", v)`` or ``("expand", v)``."""
    most = max(map(len, queries))
    rows = [[*query, *[("", -1)] * (most - len(query))] for query in queries]
    return Searches(
        np.array([[v for _, v in row] for row in rows]),
        np.array([[what == "expand" for what, _ in row] for row in rows]),
    )


def one_by_one(*vertices: int) -> list[tuple[str, int]]:
    return [(what, v) for v in vertices for what in ("choose", "expand")]


def test_a_copied_list_saves_a_read_once_its_page_has_arrived() -> None:
    node = NodeFormat(960, "float32", 31)  # 3,968 bytes: the slack holds one list of 128
    assert copies_per_node(node) == 1
    neighbours = np.zeros((6, 31), np.uint32)
    neighbours[:, 0] = [1, 2, 3, 4, 5, 0]
    placement = replicated(node, Adjacency(neighbours, np.full(6, 1, np.int32)))
    # 0 is read and brings 1; 1 is free and brings nothing, so 2 is read; a second query knows nothing of the first
    asked = replay(searches_of(one_by_one(0, 1, 2, 3), one_by_one(1)), placement)
    assert [np.flatnonzero(row).tolist() for row in asked] == [[0, 2], [1]]
    # 1 is chosen while the page of 0 is being read: its list is not known yet
    both = [("choose", 0), ("choose", 1), ("expand", 0), ("expand", 1)]
    assert np.flatnonzero(replay(searches_of(both), placement)[0]).tolist() == [0, 1]


def test_a_page_of_lists_is_read_once_a_query_and_vectors_in_the_end() -> None:
    node = NodeFormat(2000, "float32", 255)  # lists of 1,024 bytes, vectors of two pages
    assert lists_per_page(node) == 4
    placement = apart(node, np.arange(8, dtype=np.uint32))
    asked = replay(searches_of(one_by_one(0, 3, 5), one_by_one(6)), placement)
    assert asked.sum(axis=1).tolist() == [2, 1]
    candidates = np.array([[3, 0, 5], [6, -1, -1]])
    hits = np.array([[True, False, True], [True, False, False]])
    recalls, pages = reranked(asked, candidates, hits, 2, placement)
    assert recalls.tolist() == [[0, 0.5, 0.5, 1], [0, 0.5, 0.5, 0.5]]
    assert pages.tolist() == [[2, 4, 6, 8], [1, 3, 3, 3]]
    cost, n_reranked = cost_at(recalls, pages, 0.625, 7)
    assert (cost.pages.tolist(), cost.recall, n_reranked) == ([7, 3], 0.625, 2.5)
    assert not cost_at(recalls, pages, 0.9, 7)[0].reached


def test_vectors_that_share_a_page_are_read_together() -> None:
    node = NodeFormat(500, "float32", 512)  # two vectors of 2,000 bytes a page
    placement = apart(node, np.array([2, 0, 1, 3], np.uint32))
    asked = replay(searches_of(one_by_one(0, 1, 2)), placement)
    _, pages = reranked(asked, np.array([[0, 1, 2]]), np.ones((1, 3), np.bool_), 3, placement)
    assert (pages[0] - pages[0, 0]).tolist() == [0, 1, 2, 2]  # 2 and 0 share one


def test_reranking_all_finds_what_the_reader_finds(one_a_page: Path) -> None:
    with OpenedIndex(one_a_page) as index:
        sample = read_sample(index, 0, index.n, 1)
        codebook = index.codes.codebook
    view = indexmill.open(one_a_page)
    queries = sample.points[::10] + np.float32(0.01)
    found = view.search(queries, 10, L=30, trace=True)
    order = np.arange(len(sample.points), dtype=np.uint32)
    searches = Searches.recorded(found, order, 1)
    candidates = searches.candidates(CodeDistances(codebook, sample.codes, queries))
    squares = ((sample.points[np.maximum(candidates, 0)] - queries[:, None]) ** 2).sum(axis=2)
    best = np.argsort(np.where(candidates < 0, np.inf, squares), axis=1)[:, :10]
    assert (np.take_along_axis(candidates, best, 1) == found.slots).all()


def test_codes_tell_the_distances_of_what_they_stand_for() -> None:
    rng = np.random.default_rng(2)
    codebook = Codebook(rng.normal(size=(16, 7)).astype(np.float32), np.array([0, 3, 7], np.uint32))
    codes = rng.integers(0, 16, (50, 2)).astype(np.uint8)
    stood_for = np.hstack([codebook.pivots[codes[:, 0], :3], codebook.pivots[codes[:, 1], 3:]])
    queries = rng.normal(size=(4, 7)).astype(np.float32)
    vertices = rng.integers(0, 50, (4, 20))
    expected = ((stood_for[vertices] - queries[:, None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(CodeDistances(codebook, codes, queries).of(vertices), expected, rtol=1e-5)


def test_a_sample_of_all_is_what_unpacking_gives(one_a_page: Path, tmp_path: Path) -> None:
    with OpenedIndex(one_a_page) as index:  # in identity order: a slot is a vector id
        streamed_ = read_sample(index, 3, index.n, 1)
        unpacked = take_sample(index, unpack(index, tmp_path, True, lambda _: None), index.n, 1)
    for name in ("points", "codes", "current"):
        np.testing.assert_array_equal(getattr(streamed_, name), getattr(unpacked, name))
    np.testing.assert_array_equal(streamed_.graph.degrees, unpacked.graph.degrees)
    np.testing.assert_array_equal(streamed_.graph.neighbours, unpacked.graph.neighbours)
    one, other = streamed_.write(tmp_path / "one"), unpacked.write(tmp_path / "other")
    assert data_files(one) == data_files(other)


def test_a_sample_lies_around_its_centre(one_a_page: Path) -> None:
    with OpenedIndex(one_a_page) as index:
        sample = read_sample(index, 17, 200, 1)
    with IndexFiles(one_a_page) as files:
        rows, codes, pivots = files.graph.read_all().vectors, files.codes, files.codebook.pivots
        offsets = files.codebook.offsets
    stood_for = np.hstack([pivots[codes[:, j], a:b] for j, (a, b) in enumerate(pairwise(offsets))])
    squares = ((stood_for - rows[17]) ** 2).sum(axis=1)
    assert len(set(sample.region.vertices.tolist()) & set(np.argsort(squares)[:200].tolist())) >= 198
    np.testing.assert_array_equal(sample.points, rows[sample.region.vertices])


def test_explain_reads_no_node_outside_its_sample(one_a_page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, read = [], GraphFile.read_nodes

    def look(self: GraphFile, first: int, count: int) -> Any:
        asked.append(count)
        return read(self, first, count)

    monkeypatch.setattr(GraphFile, "read_nodes", look)
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 10 * 4096)
    monkeypatch.setattr(proposals, "EFFORT", replace(proposals.EFFORT, sample=300, queries=20))
    assert run("explain", str(one_a_page)).exit_code == 0
    assert sum(asked) == 300 + 1
    assert max(asked) <= 10
