"""`layout`: an index in another order is, file by file, the index that a build of that order would have written."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.verify import verify_index
from tests.support.indexes.append import assert_sound, build, manifest, points, recall
from tests.support.indexes.builds import data_files

import indexmill
from indexmill.formats.graph.index import IndexFiles
from indexmill.layout.portfolio import ORDERS
from indexmill.reader import _native

VECTORS = points(1013, 1)  # a prime: the last page is not full


def page_files(index: Path) -> dict[str, bytes]:
    return {name: raw for name, raw in data_files(index).items() if name != "manifest.json"}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same graph built in three orders, with user ids and metadata."""
    folder = tmp_path_factory.mktemp("builds")
    work = folder / "work"
    extra = {
        "ids": [f"user {i}" for i in range(len(VECTORS))],
        "metadata": pa.table({"price": np.arange(len(VECTORS)) * 1.5}),
    }
    return {
        order: build(folder / order, VECTORS, order=order, work=str(work), **extra)
        for order in ("identity", "star", "random")
    }


@pytest.mark.parametrize("order", ["identity", "star", "random"])
@pytest.mark.parametrize("start", ["identity", "star", "random"])
def test_a_layout_writes_the_files_of_a_build_whatever_the_layout_was(
    builds: dict[str, Path], tmp_path: Path, start: str, order: str
) -> None:
    indexmill.lay_out(builds[start], order, out=tmp_path / "ix", certify=True)
    assert page_files(tmp_path / "ix") == page_files(builds[order])
    made, built = manifest(tmp_path / "ix"), manifest(builds[order])
    assert made["build_id"] == built["build_id"]
    assert made["layout"].items() >= built["layout"].items()
    assert (made["generation"], made["parents"]) == (2, [manifest(builds[start])["build_id"]])
    assert made["certificate"] == built["certificate"] is not None


@pytest.mark.parametrize(
    "parameters", [{}, {"node_dtype": "sq8"}, {"node_dtype": "float16"}, {"metric": "ip"}]
)
def test_every_node_type_is_laid_out_in_place(tmp_path: Path, parameters: dict[str, str]) -> None:
    index = build(tmp_path / "ix", VECTORS, order="identity", navigation=0, **parameters)
    star = build(tmp_path / "star", VECTORS, order="star", navigation=0, **parameters)
    indexmill.lay_out(index, "star", workers=1)
    assert_sound(index)
    assert page_files(index) == page_files(star)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ix", "star"]


def test_a_layout_answers_as_before_with_user_ids_and_metadata(
    builds: dict[str, Path], tmp_path: Path
) -> None:
    indexmill.lay_out(builds["random"], "star", out=tmp_path / "ix")
    before, after = indexmill.open(builds["random"]), indexmill.open(tmp_path / "ix")
    queries = points(30, 2)
    found, again = before.search(queries, 5, L=200), after.search(queries, 5, L=200)
    assert (found.ids == again.ids).all()
    rows = again.vector_ids[:, 0]
    assert (after.metadata(rows)["price"].to_numpy() == rows * 1.5).all()


def test_scratch_files_lie_where_work_says_and_go_when_it_is_done(
    builds: dict[str, Path], tmp_path: Path
) -> None:
    index = shutil.copytree(builds["identity"], tmp_path / "ix")
    indexmill.lay_out(index, "star", work=tmp_path / "work")
    assert page_files(index) == page_files(builds["star"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ix", "work"]
    assert list((tmp_path / "work").iterdir()) == []


def test_an_index_that_is_laid_out_so_already_is_left_as_it_is(
    builds: dict[str, Path], tmp_path: Path
) -> None:
    index = shutil.copytree(builds["star"], tmp_path / "ix")
    indexmill.lay_out(index, "star")
    assert data_files(index) == data_files(builds["star"])


def test_readers_keep_the_generation_they_opened(builds: dict[str, Path], tmp_path: Path) -> None:
    index = shutil.copytree(builds["identity"], tmp_path / "ix")
    opened = indexmill.open(index)
    queries = points(5, 3)
    before = opened.search(queries, 5)
    indexmill.lay_out(index, "star")
    after = opened.search(queries, 5)
    assert (before.slots == after.slots).all()


def test_an_order_of_ones_own_is_taken_from_a_file(builds: dict[str, Path], tmp_path: Path) -> None:
    order = np.random.default_rng(5).permutation(len(VECTORS))
    np.save(tmp_path / "order.npy", order)
    indexmill.lay_out(builds["star"], order_file=tmp_path / "order.npy", out=tmp_path / "ix")
    with IndexFiles(tmp_path / "ix") as files:
        assert (files.vector_ids == order).all()
    assert verify_index(tmp_path / "ix") == []
    assert manifest(tmp_path / "ix")["layout"]["order"] == "file"


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "random"])
def test_every_order_of_the_portfolio_lays_out_a_finished_index(
    builds: dict[str, Path], tmp_path: Path, order: str
) -> None:
    indexmill.lay_out(builds["random"], order, out=tmp_path / "ix", workers=1)
    assert verify_index(tmp_path / "ix") == []
    record = manifest(tmp_path / "ix")["layout"]
    assert record["order"] == order
    indexmill.lay_out(builds["identity"], order, out=tmp_path / "again", workers=2)
    assert page_files(tmp_path / "ix") == page_files(tmp_path / "again")


def test_an_order_that_runs_out_of_work_still_lays_out_the_index(
    builds: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from indexmill.pipeline.relayout import auto

    monkeypatch.setitem(auto.EFFORTS, "low", auto.Effort(sample=500, queries=20, work=1))
    for order in ("star", "gorder", "margo", "graph-bisection"):
        indexmill.lay_out(builds["random"], order, effort="low", out=tmp_path / order, workers=1)
        assert verify_index(tmp_path / order) == []
        record = manifest(tmp_path / order)["layout"]
        assert record["work_limit"] == len(VECTORS)


def with_lists(folder: Path, index: Path, cut: list[int]) -> Path:
    """A copy of `index` where the vertices `cut` have no neighbours and are neighbours of none."""
    from indexmill.formats.graph.file import GraphFile, write_graph
    from indexmill.formats.graph.nodes import NodeBlock
    from indexmill.formats.index.manifest import read_manifest, seal_files, write_manifest

    copy = shutil.copytree(index, folder)
    with GraphFile(index / "graph.imx") as file:
        nodes = file.read_all()
        neighbours, degrees = nodes.neighbours.copy(), nodes.degrees.copy()
        for slot in range(len(degrees)):
            kept = [u for u in neighbours[slot, : degrees[slot]] if u not in cut and slot not in cut]
            neighbours[slot, : len(kept)] = kept
            degrees[slot] = len(kept)
        block = NodeBlock(nodes.vectors, neighbours, degrees)
        write_graph(copy / "graph.imx", file.node_format, file.n_vertices, "l2", [block])
    old = read_manifest(index)
    build_id, files = seal_files(copy, [entry.name for entry in old.files])
    write_manifest(copy, type(old)(**{**vars(old), "build_id": build_id, "files": files}))
    return copy


@pytest.mark.parametrize("order", ["auto", "star", "gorder-windowed"])
def test_unreachable_vertices_and_empty_lists_are_laid_out_with_the_rest(tmp_path: Path, order: str) -> None:
    cut = [3, 500, 899]
    whole = build(tmp_path / "whole", points(900, 4), order="identity", navigation=0)
    index = with_lists(tmp_path / "ix", whole, cut)
    indexmill.lay_out(index, order, out=tmp_path / "out", effort="low")
    assert verify_index(tmp_path / "out") == []
    with IndexFiles(tmp_path / "out") as files:
        nodes = files.graph.read_all()
        assert sorted(files.vector_ids[nodes.degrees == 0]) == cut


@pytest.mark.parametrize("n", [1, 2, 40, 41])
def test_small_indexes_are_laid_out(tmp_path: Path, n: int) -> None:
    index = build(tmp_path / "ix", points(n, 6), order="identity")
    for order in ("star", "kmeans-pages"):
        indexmill.lay_out(index, order, out=tmp_path / order)
        assert verify_index(tmp_path / order) == []
        assert _native.verify(str(tmp_path / order)) == []


def test_an_appended_index_is_laid_out_and_appended_to_again(tmp_path: Path) -> None:
    vectors = points(1200, 8)
    index = build(tmp_path / "ix", vectors[:800])
    indexmill.append(index, vectors[800:1000])
    drifted = manifest(index)["drift"]
    indexmill.lay_out(index, "star")
    assert_sound(index)
    drift = manifest(index)["drift"]
    assert drift["laid_out_vectors"] == 1000
    assert {key: drift[key] for key in ("built_vectors", "added_vectors", "code_error_ratio")} == {
        key: drifted[key] for key in ("built_vectors", "added_vectors", "code_error_ratio")
    }
    assert drift["overlap_ratio_built"] == manifest(index)["layout"]["overlap_ratio"]
    with IndexFiles(index) as files:
        settled = files.vector_ids.copy()
    indexmill.append(index, vectors[1000:])
    assert_sound(index)
    with IndexFiles(index) as files:
        assert (files.vector_ids[:1000] == settled).all()
    grown = manifest(index)["drift"]
    assert (grown["built_vectors"], grown["added_vectors"], grown["laid_out_vectors"]) == (800, 400, 1000)
    assert (grown["added_share"], grown["code_error_built"]) == (
        pytest.approx(1 / 3, abs=1e-5),
        drift["code_error_built"],
    )
    assert grown["code_error_added"] > 0
    assert recall(index, vectors, vectors[::30]) > 0.95
    assert manifest(index)["layout"]["order"] == "star"
