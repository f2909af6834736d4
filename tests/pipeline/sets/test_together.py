"""Searches of a set of graphs with one list of candidates, beside one index and parts that are asked one by one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexmill
from indexmill.formats.errors import CorruptFile, FormatError, InputError
from indexmill.reader import together

RNG = np.random.default_rng(11)
N, DIM, N_QUERIES, K = 4000, 48, 100, 10
ALL = float("inf")
GRAPH: dict[str, Any] = {"R": 16, "L": 40, "pq_bytes": 8}


def clustered(n: int) -> Any:
    """Return rows around a hundred centres, which are the same for all calls."""
    centres = np.random.default_rng(1).standard_normal((100, DIM)) * 2
    rows = centres[RNG.integers(0, len(centres), n)] + RNG.standard_normal((n, DIM))
    return rows.astype(np.float32)


def uniform(n: int) -> Any:
    return RNG.random((n, DIM)).astype(np.float32)


class Case:
    """Vectors in a set of four parts, and in one index."""

    def __init__(self, folder: Path, draw: Any, **more: Any) -> None:
        self.vectors, self.queries = draw(N), draw(N_QUERIES)
        self.path, self.name = folder / "set", draw.__name__
        self.set: Any = indexmill.build(self.vectors, self.path, parts=4, **GRAPH, **more)
        self.one: Any = indexmill.build(self.vectors, folder / "one", **GRAPH, **more)
        distances = np.square(self.queries[:, None].astype(np.float64) - self.vectors[None]).sum(axis=2)
        self.truth = np.argsort(distances, axis=1, kind="stable")

    def recall(self, found: Any) -> float:
        hits = [len(set(a) & set(b)) for a, b in zip(found.ids, self.truth[:, :K], strict=True)]
        return float(np.mean(hits)) / K

    def reads(self, opened: Any, recall: float = 0.95) -> float:
        """Return the page reads of a query at the recall, between searches with lists of several lengths."""
        rows = []
        for size in (10, 14, 20, 28, 40, 56, 80, 120, 200):
            found = opened.search(self.queries, K, L=size)
            rows.append((self.recall(found), float(found.counters["pages_read"].mean())))
        recalls, reads = np.array(rows).T
        assert recalls[-1] > recall
        return float(np.interp(recall, np.maximum.accumulate(recalls), reads))


@pytest.fixture(scope="module", params=[clustered, uniform], ids=["clustered", "uniform"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("together"), request.param)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sets that are opened meanwhile search each part by itself."""
    monkeypatch.setattr(together, "joined", lambda parts: None)


def test_long_lists_find_what_one_index_finds(case: Case) -> None:
    one = case.one.search(case.queries, K, L=N)
    found = case.set.search(case.queries, K, L=N, margin=ALL)
    assert (found.ids == case.truth[:, :K]).all()
    assert (found.ids == one.ids).all()
    assert (found.scores == one.scores).all()
    assert (found.counters["parts"] == 4).all()


def test_a_set_of_clusters_reads_less_than_parts_that_are_searched_each_by_itself(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    joint, one = case.reads(case.set), case.reads(case.one)
    monkeypatch.setattr(together, "joined", lambda parts: None)
    alone = case.reads(indexmill.open(case.path))
    # Neighbours of a uniform query lie in all parts, and each part needs its long list.
    assert joint < {"clustered": 0.85, "uniform": 1.05}[case.name] * alone
    assert one < joint < 1.6 * one


def test_searches_repeat_with_any_number_of_threads(case: Case) -> None:
    want = case.set.search(case.queries, K)
    for threads in (1, 3):
        found = case.set.search(case.queries, K, threads=threads)
        assert (found.ids == want.ids).all()
        assert (found.counters["pages_read"] == want.counters["pages_read"]).all()
    assert (want.counters["parts"] == case.set.route(case.queries).sum(axis=1)).all()


def test_codes_in_nodes_with_exact_vectors_apart_answer_as_one_index(tmp_path: Path) -> None:
    case = Case(tmp_path, clustered, node_dtype="sq8", keep_vectors=True, metric="cosine")
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (case.queries, case.vectors)]
    truth = np.argsort(-(unit[0].astype(np.float64) @ unit[1].T), axis=1)[:, :K]
    one = case.one.search(case.queries, K, L=N)
    found = case.set.search(case.queries, K, L=N, margin=ALL)
    for answers in (one, found):
        hits = [len(set(a) & set(b)) for a, b in zip(answers.ids, truth, strict=True)]
        assert np.mean(hits) > 0.99 * K
    assert np.allclose(found.scores, one.scores, atol=1e-3)
    assert found.counters["distances"].sum() > found.counters["expansions"].sum(), (
        "no exact vector was measured"
    )


def test_inner_products_compare_across_parts(tmp_path: Path) -> None:
    vectors = clustered(3000) * RNG.uniform(0.5, 2, (3000, 1)).astype(np.float32)
    queries = clustered(40)
    made: Any = indexmill.build(vectors, tmp_path / "set", parts=3, metric="ip", **GRAPH)
    found = made.search(queries, K, L=3000)
    products = queries.astype(np.float64) @ vectors.T
    assert np.mean(found.ids == np.argsort(-products, axis=1)[:, :K]) > 0.999
    assert (np.diff(found.scores, axis=1) <= 0).all()


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return vectors and a set of them with user ids that are text, and metadata."""
    vectors = clustered(2000)
    out = tmp_path_factory.mktemp("labelled") / "set"
    metadata = pa.table({"price": np.arange(2000), "lang": ["de" if i % 3 else "en" for i in range(2000)]})
    names = [f"v{i}" for i in range(2000)]
    return vectors, indexmill.build(vectors, out, parts=3, ids=names, metadata=metadata, **GRAPH)


def test_filters_keep_to_what_they_allow(labelled: Any) -> None:
    vectors, made = labelled
    queries = vectors[:30] + 0.1
    distances = np.square(queries[:, None].astype(np.float64) - vectors[None]).sum(axis=2)
    cheap = np.arange(2000) < 700
    want = np.array([f"v{i}" for i in range(2000)], object)[
        np.argsort(np.where(cheap, distances, np.inf), axis=1, kind="stable")[:, :K]
    ]
    condition = "price < 700"
    for allow in (condition, made.where(condition), np.flatnonzero(made.where(condition))):
        found = made.search(queries, K, L=2000, margin=ALL, allow=allow)
        assert (found.ids == want).all()
    few = made.vector_ids_of(["v1", "v5", "v9"])
    found = made.search(queries, K, margin=ALL, allow=few)
    assert {name for name in found.ids.ravel() if name is not None} == {"v1", "v5", "v9"}
    assert ((found.vector_ids >= 0).sum(axis=1) == 3).all()
    owners = np.searchsorted(made.starts, few, side="right") - 1
    assert (found.counters["parts"] == len(set(owners))).all()


def test_deleted_vectors_are_not_found(tmp_path: Path, labelled: Any) -> None:
    vectors, made = labelled
    shutil.copytree(made.path, tmp_path / "set")
    gone = made.search(vectors[:1], K, L=2000, margin=ALL).ids[0]
    for number in range(3):
        part = tmp_path / "set" / f"part-{number:03d}"
        known = indexmill.open(part).vector_ids_of(list(gone)) >= 0
        if known.any():
            indexmill.delete(part, list(gone[known]))
    left: Any = indexmill.open(tmp_path / "set")
    assert left.n_deleted == K
    found = left.search(vectors[:30], K, L=2000, margin=ALL)
    distances = np.square(vectors[:30, None].astype(np.float64) - vectors[None]).sum(axis=2)
    distances[:, [int(name[1:]) for name in gone]] = np.inf
    assert (
        found.ids
        == np.array([f"v{i}" for i in range(2000)], object)[
            np.argsort(distances, axis=1, kind="stable")[:, :K]
        ]
    ).all()
    allowed = left.where("lang = 'en'")
    assert not set(left.search(vectors[:30], K, allow=allowed).ids.ravel()) & set(gone)


def test_more_neighbours_are_found_than_a_part_has(labelled: Any) -> None:
    vectors, made = labelled
    k = max(len(part) for part in made.parts) + 300
    found = made.search(vectors[:5], k, L=2000, margin=ALL)
    distances = np.square(vectors[:5, None].astype(np.float64) - vectors[None]).sum(axis=2)
    names = np.array([f"v{i}" for i in range(2000)], object)
    assert (found.ids == names[np.argsort(distances, axis=1, kind="stable")[:, :k]]).all()
    nearest_alone = made.search(vectors[:5], k, L=2000, margin=0)
    assert (nearest_alone.counters["parts"] == 1).all()
    assert (nearest_alone.ids[:, -1] == None).all()  # noqa: E711
    with pytest.raises(InputError, match="k: expected at most 2000"):
        made.search(vectors[:5], 2001)


def test_equal_scores_are_in_the_order_of_ids(tmp_path: Path) -> None:
    points = np.array([[-1, 0], [1, 0], [0, 1], [0, -1]], np.float32)
    made: Any = indexmill.build(
        np.repeat(points, 50, axis=0), tmp_path / "set", parts=2, R=16, L=40, pq_bytes=2
    )
    found = made.search(np.zeros((1, 2), np.float32), 200, margin=ALL)
    assert (found.ids == np.arange(200)).all()


def test_a_damaged_page_names_its_part(tmp_path: Path, labelled: Any) -> None:
    vectors, made = labelled
    shutil.copytree(made.path, tmp_path / "set")
    opened: Any = indexmill.open(tmp_path / "set", engine="pread")
    file = tmp_path / "set" / "part-001" / "graph.imx"
    pages = bytearray(file.read_bytes())
    for page in range(4096, len(pages) - 4096, 4096):
        pages[page + 8] ^= 1
    file.write_bytes(pages)
    with pytest.raises(CorruptFile, match=r"part-001/graph\.imx"):
        opened.search(vectors[:50], K, margin=ALL)


@pytest.mark.parametrize("other", [False, True])
def test_a_part_that_is_missing_or_of_another_build_is_refused_by_name(
    tmp_path: Path, labelled: Any, other: bool
) -> None:
    shutil.copytree(labelled[1].path, tmp_path / "set")
    shutil.rmtree(tmp_path / "set" / "part-001")
    if other:
        shutil.copytree(tmp_path / "set" / "part-002", tmp_path / "set" / "part-001")
    with pytest.raises(FormatError, match="part-001"):
        indexmill.open(tmp_path / "set")


def test_choices_that_belong_to_one_graph_search_each_by_itself(labelled: Any, apart: None) -> None:
    vectors, made = labelled
    alone: Any = indexmill.open(made.path)
    for how in ({"entry": "previous", "inflight": 1}, {"trace": True}):
        found, want = made.search(vectors[:5], K, **how), alone.search(vectors[:5], K, **how)
        assert (found.ids == want.ids).all()
        assert (found.counters["pages_read"] == want.counters["pages_read"]).all()


def test_codes_on_pages_are_searched_part_by_part(tmp_path: Path) -> None:
    vectors = clustered(1500)
    metadata = pa.table({"lang": ["de" if i % 3 else "en" for i in range(1500)]})
    how = {"metadata": metadata, "label_column": "lang", "codes_on_page": True, **GRAPH}
    made: Any = indexmill.build(vectors, tmp_path / "set", parts=2, **how)
    assert together.joined(made.parts) is None
    found = made.search(vectors[:20], K, L=200, margin=ALL, allow="lang = 'en'")
    assert (found.ids % 3 == 0).all()
    assert (found.ids[::3, 0] == np.arange(0, 20, 3)).all()


def test_unknown_choices_are_refused_as_by_an_index(labelled: Any) -> None:
    with pytest.raises(TypeError, match="nprobe"):
        labelled[1].search(labelled[0][:1], K, nprobe=3)
