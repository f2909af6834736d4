"""Lists of candidates, and lists that are probed, in the parts of a set: how many, and what is found with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.index.setmanifest import Part, SetManifest
from indexmill.reader import set as searches
from indexmill.reader.choices import DEFAULT_SEARCH_LIST_SIZE, UNMEASURED_MARGIN
from indexmill.reader.index import SearchResult
from indexmill.reader.set import IndexSet

RNG = np.random.default_rng(5)
ALL = float("inf")


class FlatPart:
    """A part whose searches are exact, and which notes how it was asked."""

    kind, n_deleted = "graph", 0

    def __init__(self, vectors: Any, ids: Any, metric: str = "l2") -> None:
        self.vectors, self._ids, self.metric, self.dim = vectors, ids, metric, vectors.shape[1]
        self.native = SimpleNamespace(query_dtype="float32", id_type="int64")
        self.asked: list[tuple[Any, int, int, bool]] = []

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: Any, k: int, *, L: int, threads: int, allow: Any = None) -> SearchResult:
        if k > L:
            raise InputError(f"L: expected at least {k}")
        self.asked.append((queries, k, L, allow is not None))
        distances = np.square(queries[:, None].astype(np.float64) - self.vectors[None]).sum(axis=2)
        if allow is not None:
            distances[:, ~allow] = np.inf
        order = np.lexsort((np.broadcast_to(self._ids, distances.shape), distances), axis=-1)[:, :k]
        scores = np.take_along_axis(distances, order, 1)
        there = np.isfinite(scores)
        places = np.where(there, order, -1)
        counters = {"pages_read": np.full(len(queries), L, np.int64)}
        return SearchResult(
            np.where(there, self._ids[order], -1), scores.astype(np.float32), places, places, counters
        )


def set_of(vectors: Any, centroids: Any, metric: str = "l2") -> IndexSet:
    """Return a set whose parts are the cells of the centroids; ids are the rows of `vectors`."""
    centroids = np.asarray(centroids, np.float32)
    cells = np.square(vectors[:, None] - centroids[None]).sum(axis=2).argmin(axis=1)
    rows = [np.flatnonzero(cells == number) for number in range(len(centroids))]
    parts = [FlatPart(vectors[mine], mine, metric) for mine in rows]
    named = tuple(Part(f"part-{i:03d}", "0" * 64, len(part)) for i, part in enumerate(parts))
    weights = np.zeros(len(centroids), np.float32)
    return IndexSet("x", SetManifest(named, centroids, weights, {}, {}, {}), parts)


@pytest.fixture
def halves() -> IndexSet:
    """Return 400 points on a plane in two parts, whose centroids lie at 0 and 4."""
    vectors = (RNG.random((400, 2)) * [8, 1] - [2, 0.5]).astype(np.float32)
    return set_of(vectors, [[0, 0], [4, 0]])


def lists(opened: IndexSet) -> list[list[tuple[int, int]]]:
    """Return k and L of the searches of each part, and forget them."""
    found = [[(k, size) for _, k, size, _ in part.asked] for part in opened.parts]
    for part in opened.parts:
        part.asked.clear()
    return found


@pytest.mark.parametrize(
    ("x", "other"), [(1.99, (10, 20)), (1.1, (10, 20)), (0.9, (10, 10)), (0.1, (10, 10)), (-0.1, None)]
)
def test_the_list_of_the_other_part_is_half_as_long_and_a_quarter_beyond_half_the_margin(
    halves: IndexSet, x: float, other: tuple[int, int] | None
) -> None:
    halves.search(np.array([[x, 0]], np.float32), 10, L=40, margin=0.5)
    assert lists(halves) == [[(10, 40)], [] if other is None else [other]]


def test_a_list_shorter_than_k_finds_as_many_as_it_holds(halves: IndexSet) -> None:
    found = halves.search(np.array([[0.4, 0]], np.float32), 30, L=31, margin=0.5)
    assert lists(halves) == [[(30, 31)], [(7, 7)]]
    assert (found.vector_ids >= 0).all()
    assert found.counters["pages_read"].tolist() == [38]
    assert found.counters["parts"].tolist() == [2]


@pytest.mark.parametrize("margin", [0.0, 0.1, UNMEASURED_MARGIN, 0.5, 3.0, ALL])
def test_answers_are_those_of_each_query_and_part_alone(margin: float) -> None:
    vectors = RNG.standard_normal((900, 5)).astype(np.float32)
    queries = RNG.standard_normal((60, 5)).astype(np.float32)
    opened, k, size = set_of(vectors, vectors[:4]), 12, 15
    found = opened.search(queries, k, L=size, margin=margin, threads=3)
    needed = opened.route(queries, margin)
    sites = opened.manifest.centroids.astype(np.float64)
    for at, query in enumerate(queries.astype(np.float64)):
        distances = np.square(query - sites).sum(axis=1)
        first = int(distances.argmin())
        expected, parts = [], 0
        for number, part in enumerate(opened.parts):
            most = size
            if number != first and margin < ALL:
                apart = np.square(sites[number] - sites[first]).sum()
                plane = (distances[number] - distances[first]) / apart / 2
                most = size // 2 if plane < margin / 2 else size // 4 if plane < margin else 0
            if most == 0:
                continue
            parts += 1
            own = np.square(query - part.vectors).sum(axis=1)
            expected += sorted(zip(own.astype(np.float32).tolist(), part._ids.tolist(), strict=True))[
                : min(k, most)
            ]
        assert found.ids[at].tolist() == [one for _, one in sorted(expected)[:k]]
        assert found.counters["parts"][at] == parts == needed[at].sum()


def test_filters_inner_products_and_an_endless_margin_keep_lists_whole(halves: IndexSet) -> None:
    queries = np.array([[0.4, 0], [1.4, 0], [3.9, 0]], np.float32)
    halves.search(queries, 10, L=40, margin=0.5, allow=np.arange(0, 400, 2))
    assert {size for part in lists(halves) for _, size in part} == {40}
    halves.search(queries, 10, L=40, margin=ALL)
    assert lists(halves) == [[(10, 40)], [(10, 40)]]
    products = set_of(RNG.standard_normal((200, 2)).astype(np.float32), [[0, 0], [1, 0]], "ip")
    products.search(queries, 10, L=40)
    assert lists(products) == [[(10, 40)], [(10, 40)]]


def test_lists_are_by_default_those_of_an_index(halves: IndexSet) -> None:
    queries = np.array([[1.4, 0]], np.float32)
    halves.search(queries, 10, margin=0.5)
    assert lists(halves) == [[(10, DEFAULT_SEARCH_LIST_SIZE)], [(10, DEFAULT_SEARCH_LIST_SIZE // 2)]]
    halves.search(queries, 50, margin=0.5)
    assert lists(halves) == [[(50, 100)], [(50, 50)]]


@pytest.mark.parametrize("size", [0, 9])
def test_a_list_that_is_too_short_for_k_is_refused_as_by_an_index(halves: IndexSet, size: int) -> None:
    with pytest.raises(InputError, match="L: expected at least 10"):
        halves.search(np.array([[3.0, 0]], np.float32), 10, L=size, margin=0.9)


def test_equal_centroids_and_margins_of_any_size_are_routed(halves: IndexSet) -> None:
    same = set_of(RNG.standard_normal((50, 2)).astype(np.float32), [[1, 0], [1, 0], [-1, 0]])
    queries = np.array([[1, 0], [-1, 0], [0, 5]], np.float32)
    for margin in (0.0, 5e-324, 0.3, 1e308):
        needed = same.route(queries, margin)
        assert needed.any(axis=1).all()
        assert not needed[:2].all(), "a part without a plane between is not needed"
    assert same.route(queries, ALL).all()


def test_shorter_lists_read_fewer_pages_and_find_nearly_as_much(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = RNG.standard_normal((3000, 8)).astype(np.float32)
    queries = RNG.standard_normal((100, 8)).astype(np.float32)
    opened = indexmill.build(vectors, tmp_path / "set", parts=3, R=12, L=24, pq_bytes=8)
    distances = np.square(queries[:, None].astype(np.float64) - vectors[None]).sum(axis=2)
    truth = np.argsort(distances, axis=1)[:, :10]

    def hits(found: SearchResult) -> int:
        return sum(len(set(a) & set(b)) for a, b in zip(found.ids, truth, strict=True))

    found = opened.search(queries, 10, L=40)
    monkeypatch.setattr(searches, "QUARTERS", (4, 4, 4))
    whole = opened.search(queries, 10, L=40)
    assert found.counters["pages_read"].sum() < 0.9 * whole.counters["pages_read"].sum()
    assert (found.counters["parts"] == whole.counters["parts"]).all()
    assert hits(found) > 0.97 * hits(whole)


def test_lists_are_whole_where_the_nearest_part_has_too_few_vectors() -> None:
    vectors = np.concatenate([RNG.normal(size=(3, 4)) * 0.1, RNG.normal(size=(40, 4)) * 0.1 + [3, 0, 0, 0]])
    made = set_of(vectors.astype(np.float32), [[0, 0, 0, 0], [3, 0, 0, 0]])
    found = made.search(np.array([[1.2, 0, 0, 0]], np.float32), 8, L=8)
    assert (found.ids >= 0).all()
    assert {0, 1, 2} < set(found.ids[0].tolist())


class ListsPart(FlatPart):
    """A part of inverted lists that notes how it was asked."""

    kind = "ivf"

    def __init__(self, vectors: Any, ids: Any, metric: str = "l2") -> None:
        super().__init__(vectors, ids, metric)
        self.native.n_lists, self.probed = 9, []

    def search(self, queries: Any, k: int, *, threads: int, nprobe: int | None = None) -> Any:
        self.probed.append((k, nprobe))
        return super().search(queries, k, L=k, threads=threads)


@pytest.mark.parametrize(
    ("given", "near", "far"), [(16, 8, 4), (5, 2, 1), (2, 1, 1), (1, 1, 1), (None, 4, 2)]
)
def test_of_lists_half_as_many_are_probed_and_a_quarter_beyond_half_the_margin(
    halves: IndexSet, given: int | None, near: int, far: int
) -> None:
    parts = [ListsPart(part.vectors, part._ids) for part in halves.parts]
    opened = IndexSet("x", halves.manifest, parts)
    for x, other in ((1.5, near), (0.5, far)):
        opened.search(np.array([[x, 0]], np.float32), 10, nprobe=given, margin=0.5)
        assert [part.probed for part in parts] == [[(10, given)], [(10, other)]]
        for part in parts:
            part.probed.clear()
    opened.search(np.array([[0.5, 0]], np.float32), 10, nprobe=given, margin=ALL)
    assert [part.probed for part in parts] == [[(10, given)], [(10, given)]]


def test_fewer_lists_read_fewer_bytes_and_find_nearly_as_much(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = RNG.standard_normal((6000, 8)).astype(np.float32)
    queries = RNG.standard_normal((100, 8)).astype(np.float32)
    opened = indexmill.build(vectors, tmp_path / "set", parts=3, kind="ivf", lists=40)
    exact = opened.search(queries, 10, margin=ALL, nprobe=40)
    found = opened.search(queries, 10)
    monkeypatch.setattr(searches, "QUARTERS", (4, 4, 4))
    whole = opened.search(queries, 10)

    def hits(found: SearchResult) -> int:
        return sum(len(set(a) & set(b)) for a, b in zip(found.ids, exact.ids, strict=True))

    assert found.counters["bytes_read"].sum() < 0.8 * whole.counters["bytes_read"].sum()
    assert hits(found) > 0.95 * hits(whole)
