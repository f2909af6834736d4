"""`--prune-edges`: other edges, kept where the reader reads fewer pages for them, and every vertex still reachable."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.brute_force import exact_neighbours
from tests.support.cli import run
from tests.support.indexes.append import assert_sound, build, manifest, points, recall, run_record
from tests.support.indexes.builds import data_files

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, NothingToGain
from indexmill.formats.graph.index import IndexFiles
from indexmill.layout.order import Adjacency
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.relayout import edges
from indexmill.pipeline.relayout.memory import check_judging


def rows(n: int, seed: int) -> np.ndarray:
    """Vectors of 15 clusters, 48 floats each: 18 nodes a page."""
    centres = np.random.default_rng(99).normal(size=(15, 48))
    rng = np.random.default_rng(seed)
    return (centres[rng.integers(15, size=n)] + 0.8 * rng.normal(size=(n, 48))).astype(np.float32)


VECTORS = rows(2500, 1)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph that was built in haste, so that other edges help for certain."""
    return build(
        tmp_path_factory.mktemp("prune") / "old",
        VECTORS,
        builder="vamana",
        order="identity",
        R=8,
        L=8,
        alpha=1.0,
        pq_bytes=16,
    )


@pytest.fixture(scope="module")
def pruned(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pruned") / "ix"
    indexmill.lay_out(old, "star", prune_edges=True, out=out)
    return out


def reads_at(index: Path, wanted: float, queries: np.ndarray, truth: np.ndarray) -> float:
    """Page reads a query at a recall, linear between list sizes."""
    opened, curve = indexmill.open(index), []
    for size in (10, 14, 20, 28, 40, 60, 90, 130):
        found = opened.search(queries, 10, L=size)
        hits = np.mean(
            [
                len(set(a) & set(b)) / 10
                for a, b in zip(found.vector_ids.tolist(), truth.tolist(), strict=True)
            ]
        )
        curve.append((hits, found.counters["pages_read"].mean()))
    return float(np.interp(wanted, *zip(*sorted(curve), strict=True)))


def test_pruned_edges_save_page_reads_and_leave_every_vertex_reachable(
    old: Path, pruned: Path, tmp_path: Path
) -> None:
    assert_sound(pruned)
    indexmill.lay_out(old, "star", out=tmp_path / "plain")
    with IndexFiles(pruned) as new, IndexFiles(tmp_path / "plain") as plain:
        assert (new.vector_ids == plain.vector_ids).all()
        assert (new.graph.read_all().vectors == plain.graph.read_all().vectors).all()
        assert (new.graph.read_all().neighbours != plain.graph.read_all().neighbours).any()
    queries = rows(300, 7)
    truth = exact_neighbours(VECTORS, queries, 10)[0]
    reads = [reads_at(index, 0.95, queries, truth) for index in (pruned, tmp_path / "plain")]
    assert reads[0] < reads[1]
    assert recall(pruned, VECTORS, rows(100, 9)) > 0.95


def test_the_manifest_tells_what_was_pruned_and_saved(old: Path, pruned: Path) -> None:
    found = manifest(pruned)
    said = found["layout"]["pruned_edges"]
    assert (said["vertices"], said["queries"], said["queries_from"]) == (len(VECTORS), 500, "the index")
    assert said["pages_read"] < said["pages_read_before"]
    assert said["more_than_before"][1] < 0
    assert 0 < said["edges_kept"] < 1
    assert (found["layout"]["order"], found["generation"]) == ("star", 2)
    assert run_record(pruned)["work"] == found["layout"]["work"] + said["work"]
    with IndexFiles(pruned) as files:
        degrees = files.graph.read_all().degrees
    assert found["graph"]["mean_degree"] == pytest.approx(degrees.mean())
    assert found["graph"]["greatest_degree"] == degrees.max()


def test_any_number_of_workers_prunes_the_same_bytes(old: Path, pruned: Path, tmp_path: Path) -> None:
    indexmill.lay_out(old, "star", prune_edges=True, out=tmp_path / "ix", workers=1)
    assert data_files(tmp_path / "ix") == data_files(pruned)


def test_edges_that_save_nothing_leave_the_index_as_it_was(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(graph: Adjacency, *_: Any, threads: int, work: Any) -> int:
        into = _[-1]
        into.neighbours[:], into.degrees[:] = graph.neighbours, graph.degrees
        return len(graph.degrees)

    monkeypatch.setattr(edges, "block_prune", keep)
    index = shutil.copytree(old, tmp_path / "ix")
    done = run("layout", str(index), "--order", "identity", "--prune-edges")
    assert done.exit_code == 8
    assert "nothing was published: with pruned edges a query reads" in done.stderr
    assert "leave --prune-edges out" in done.stderr
    assert data_files(index) == data_files(old)
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_the_callers_queries_judge_the_layout_there_is(old: Path, tmp_path: Path) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    np.save(tmp_path / "tune.npy", rows(400, 5))
    asked = ("--order", "star", "--prune-edges", "--queries", str(tmp_path / "tune.npy"))
    done = run("layout", str(index), *asked)
    assert done.exit_code == 0, done.stderr
    assert "edges pruned for pages:" in done.stdout
    said = manifest(index)["layout"]["pruned_edges"]
    assert (said["queries"], said["queries_from"]) == (400, "the caller")
    assert_sound(index)


def test_a_later_layout_keeps_the_edges_and_says_so(pruned: Path, tmp_path: Path) -> None:
    indexmill.lay_out(pruned, "breadth-first", out=tmp_path / "ix")
    said = manifest(tmp_path / "ix")["layout"]["pruned_edges"]
    assert said == {**manifest(pruned)["layout"]["pruned_edges"], "inherited": True}
    with IndexFiles(pruned) as before, IndexFiles(tmp_path / "ix") as after:
        lists = [
            {
                int(v): set(ids[row[:d]].tolist())
                for v, row, d in zip(ids, nodes.neighbours, nodes.degrees, strict=True)
            }
            for ids, nodes in ((f.vector_ids, f.graph.read_all()) for f in (before, after))
        ]
    assert lists[0] == lists[1]


def test_what_cannot_be_pruned_is_refused(old: Path, tmp_path: Path) -> None:
    one_page = build(tmp_path / "few", points(9, 3))
    with pytest.raises(NothingToGain, match="One page holds all of them"):
        indexmill.lay_out(one_page, "star", prune_edges=True)
    with (
        OpenedIndex(old) as opened,
        pytest.raises(BudgetError, match=r"of 2,500 vectors takes .*, or leave --prune-edges out"),
    ):
        check_judging(opened, FIXED_BYTES, "--prune-edges")
    with pytest.raises(ConfigError, match="only the order 'auto' and --prune-edges look at queries"):
        indexmill.lay_out(old, "star", queries=rows(5, 1), out=tmp_path / "no")
