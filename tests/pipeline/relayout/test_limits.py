"""Layouts and their explanations at the edge: one vector, little memory, a full disk, a short tail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run
from tests.support.indexes.append import assert_sound, build, manifest, points
from tests.support.indexes.builds import data_files

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.layout.order import OrderMemory
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.append import memory as extend_memory
from indexmill.pipeline.append import parts
from indexmill.pipeline.generations import opened as opened_module
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.graph import order as graph_order
from indexmill.pipeline.mill.disk_space import used_bytes
from indexmill.pipeline.relayout import auto, fitting, memory
from indexmill.pipeline.relayout import run as relayout
from indexmill.pipeline.relayout.explained.explanation import explain, layout_words
from indexmill.pipeline.relayout.memory import check_memory, needed_memory, threads_within
from indexmill.pipeline.relayout.rewrite import Rewrite

N = 400


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("limits") / "ix", points(N, 1), order="random", navigation=0)


def wide(path: Path, n: int) -> Path:
    """Vectors of 960 floats: one node a page."""
    rows = np.random.default_rng(n).normal(size=(n, 960)).astype(np.float32)
    return build(path, rows, order="identity", navigation=0)


def test_of_one_vector_there_is_nothing_to_measure(tmp_path: Path) -> None:
    one = wide(tmp_path / "ix", 1)
    before = data_files(one)
    done = run("explain", str(one), "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["vectors"], found["nodes_per_page"], found["proposals"]) == (1, 1, [])
    assert not found["layout_can_help"]
    done = run("layout", str(one), "--order", "auto")
    assert done.exit_code == 8
    assert "There is one vector: nothing to measure." in done.stderr
    assert data_files(one) == before
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_of_two_vectors_there_is(tmp_path: Path) -> None:
    done = run("explain", str(wide(tmp_path / "ix", 2)), "--json")
    assert done.exit_code == 0
    proposals = json.loads(done.stdout)["proposals"]
    assert [p["name"] for p in proposals if p["how"] == "measured"]
    assert all(
        np.isfinite(p["pages_read"])
        for p in proposals
        if p["how"] == "measured" and p["pages_read"] is not None
    )


def test_a_sample_that_memory_cuts_too_small_is_refused_with_what_is_enough(tmp_path: Path) -> None:
    path = wide(tmp_path / "ix", 150)
    with OpenedIndex(path) as opened:
        with pytest.raises(BudgetError, match=r"at least 150 vectors, .* holds 0; give at least") as refusal:
            auto.sample_size(opened, auto.EFFORTS["low"], FIXED_BYTES)
        least = int(str(refusal.value).split("give at least ")[1].split()[0].replace(",", ""))
        assert auto.sample_size(opened, auto.EFFORTS["low"], least) == 150
    done = run("explain", str(path), "--memory", "256MiB")
    assert f"give at least {least:,} bytes with --memory" in done.stderr
    assert run("layout", str(path), "--memory", "256MiB").exit_code == done.exit_code != 0
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]
    (tmp_path / ".ix.indexmill-explain").mkdir()
    (tmp_path / ".ix.indexmill-explain" / "left.npy").touch()
    assert run("explain", str(path), "--memory", str(least)).exit_code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_explain_makes_scratch_only_where_it_measures(index: Path) -> None:
    options = RunOptions(work="/proc/nowhere")
    with OpenedIndex(index) as opened:
        found = explain(opened, GenerationRun(index, options), lambda: pytest.fail("made scratch"))
    assert found.can_help


@pytest.mark.parametrize(
    ("order", "overlap", "words"),
    [
        ("kmeans-pages", 0.02, "laid out by kmeans-pages. Another order may do better"),
        ("file", 0.02, "laid out by file"),
        ("random", 0.02, "a read brings strangers"),
        ("identity", 0.02, "a read brings strangers"),
        ("identity", 0.4, "its identity order is a layout already. Another order may do better"),
    ],
)
def test_explain_goes_by_the_order_that_was_taken(order: str, overlap: float, words: str) -> None:
    opened: Any = SimpleNamespace(graph=SimpleNamespace(node_format=SimpleNamespace(nodes_per_page=15)))
    assert words in layout_words(opened, {"order": order, "overlap_ratio": overlap})[0]


def test_orders_that_do_not_fit_the_memory_are_recorded_and_printed(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(auto.EFFORTS, "low", auto.Effort(sample=200, queries=10, work=1000))
    monkeypatch.setitem(graph_order.ORDER_BYTES, "gorder", OrderMemory(3 << 20))
    need = needed_memory_of(index, "gorder")
    assert need > 1 << 30
    done = run("layout", str(index), "--effort", "low", "--out", str(tmp_path / "ix"))
    assert f"gorder; give at least {need:,} bytes with --memory" in " ".join(done.stdout.split())
    choice = manifest(tmp_path / "ix")["layout"]["choice"]
    assert choice["skipped"] == [{"order": "gorder", "memory": need}]
    assert choice["sample_limited_by"] == "effort"
    assert {row["order"] for row in choice["candidates"]} == set(ORDERS) - {"random", "gorder"}
    indexmill.lay_out(index, effort="low", out=tmp_path / "all", memory=need)
    assert manifest(tmp_path / "all")["layout"]["choice"]["skipped"] == []


def needed_memory_of(index: Path, order: str) -> int:
    with OpenedIndex(index) as opened:
        return needed_memory(opened, order)


def test_the_record_says_what_bounds_the_sample(index: Path) -> None:
    effort, plenty = auto.Effort(sample=300, queries=1, work=1), 1 << 40
    with OpenedIndex(index) as opened:
        limits = [auto.memory_record(opened, size, effort, plenty) for size in (N, 300, 200)]
    assert [found["sample_limited_by"] for found in limits] == ["index", "effort", "memory"]


def test_star_packing_is_offered_only_in_place_of_what_takes_more(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(graph_order.ORDER_BYTES, "margo", OrderMemory(1 << 20, 0, 1 << 10))
    with OpenedIndex(index) as opened:
        for order, offered in (("margo", True), ("star", False), ("identity", False)):
            with pytest.raises(BudgetError, match="give at least") as refusal:
                check_memory(opened, order, 1)
            assert ("take --order star" in str(refusal.value)) == offered
        need = needed_memory(opened, "margo")
        assert threads_within(opened, "margo", need, 4) == 4  # so few vectors are one part, on one thread
    three = graph_order.order_bytes("margo", 10**6, 15, 32, 3, divided=True)
    assert graph_order.order_threads("margo", 10**6, 15, 32, 8, three, divided=True) == 3
    assert graph_order.order_threads("margo", 10**6, 15, 32, 8, 0, divided=True) == 1


def test_districts_take_memory_only_where_an_order_is_divided() -> None:
    n, alone = 10**6, 24 * 10**6

    def taken(threads: int, divided: bool) -> int:
        return graph_order.order_bytes("star", n, 15, 32, threads, divided=divided)

    assert taken(1, False) == taken(8, False) == alone
    assert (
        alone < taken(1, True) < taken(2, True) == taken(8, True)
    )  # half of four districts are packed at a time
    assert graph_order.order_threads("star", n, 15, 32, 8, alone, divided=True) == 1
    assert graph_order.order_threads("star", n, 15, 32, 8, alone, divided=False) == 8


def test_a_certificate_that_does_not_fit_the_memory_is_refused(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "certify_bytes", lambda n, dim, pq_bytes, threads: (2 << 30) * threads)
    need = FIXED_BYTES + (2 << 30)
    with pytest.raises(
        BudgetError, match=f"give at least {need:,} bytes with --memory, or leave --certify out"
    ):
        indexmill.lay_out(index, "star", out=tmp_path / "ix", certify=True)
    indexmill.lay_out(index, "star", out=tmp_path / "none")
    assert manifest(tmp_path / "none")["certificate"] is None
    indexmill.lay_out(
        tmp_path / "none", "star", certify=True, memory=need
    )  # on one thread; laid out so already
    assert manifest(tmp_path / "none")["certificate"]["recall"] > 0.9
    before = manifest(tmp_path / "none")["generation"]
    indexmill.lay_out(tmp_path / "none", "star", certify=True, memory=need)
    assert manifest(tmp_path / "none")["generation"] == before


def test_the_graph_is_no_longer_mapped_when_files_are_written(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps, write = [], Rewrite.write

    def look(*arguments: Any) -> Any:
        maps.append(Path("/proc/self/maps").read_text())
        return write(*arguments)

    monkeypatch.setattr(Rewrite, "write", look)
    monkeypatch.setitem(auto.EFFORTS, "low", auto.Effort(sample=N, queries=10, work=1000))
    for order in ("star", "agglomerative", "auto"):
        indexmill.lay_out(index, order, effort="low", out=tmp_path / order)
        assert "order.npy" in maps[-1]  # files still in use are mapped
        for name in ("neighbours.npy", "degrees.npy", "points.npy"):
            assert f"/{name}" not in maps[-1], (order, name)


def test_facts_of_ids_do_not_bring_them_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path / "ix", points(50, 2), ids=[f"user {i}" for i in range(50)])
    with OpenedIndex(path) as opened:
        opened.release_ids()
        monkeypatch.setattr(opened_module, "ids_of", lambda *_: pytest.fail("read the ids again"))
        assert (opened.id_type, opened.ids_bytes) == ("string", (path / "ids.imx").stat().st_size)


def test_a_disk_without_room_is_refused_before_anything_is_written(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = data_files(index)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100_000))
    with pytest.raises(
        BudgetError, match=r"the layout needs [\d,]+ bytes there, 100,000 are free; .* --work"
    ):
        indexmill.lay_out(index, "star")
    assert data_files(index) == before


@pytest.mark.parametrize("order", ["agglomerative", "star", "auto"])
def test_the_scratch_space_asked_for_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Lists of near vertices are longer than vectors of 8 bytes, their neighbours and the written index together."""
    vectors = np.random.default_rng(6).integers(0, 256, (3000, 8), np.uint8)
    path = build(tmp_path / "ix", vectors, order="identity", R=8, navigation=0)
    asked, used, write = [], [], Rewrite.write

    @contextmanager
    def counted(folder: Path, *shape: Any) -> Iterator[np.ndarray]:
        with scratch_array(folder, *shape) as array:
            used.append(used_bytes(folder))
            yield array

    def written(self: Rewrite, directory: Path, *others: Any) -> Any:
        found = write(self, directory, *others)
        used.append(used_bytes(directory.parent))
        return found

    monkeypatch.setitem(auto.EFFORTS, "low", auto.Effort(sample=1500, queries=10, work=1000))
    monkeypatch.setattr(relayout, "check_free", lambda folder, need, job: asked.append(need))
    monkeypatch.setattr(fitting, "scratch_array", counted)
    monkeypatch.setattr(Rewrite, "write", written)
    indexmill.lay_out(path, order, effort="low", out=tmp_path / "new")
    headers = 10_000
    assert 0 < max(used) <= asked[0] + headers


def test_queries_that_measure_nothing_are_refused(index: Path) -> None:
    queries = points(20, 2).astype(np.float32)
    with pytest.raises(
        InputError, match=r"queries: expected numbers, of one query at least, got .*\(0, 12\)"
    ):
        indexmill.lay_out(index, queries=queries[:0])
    queries[7, 3] = np.nan
    with pytest.raises(InputError, match="queries: row 7: expected finite numbers, got nan"):
        indexmill.lay_out(index, queries=queries)
    with pytest.raises(ConfigError, match="leave --effort out"):
        indexmill.lay_out(index, order_file="order.npy", effort="low")


class Asked(dict[str, Any]):
    """Knows which orders were taken."""

    taken: list[str]

    def __getitem__(self, name: str) -> Any:
        self.taken.append(name)
        return super().__getitem__(name)


@pytest.mark.parametrize(("room", "expected"), [(64 << 20, "margo"), (0, "star")])
def test_a_tail_is_laid_out_by_star_packing_where_its_order_takes_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, expected: str
) -> None:
    monkeypatch.setattr(extend_memory, "TAIL_BYTES", room)
    asked = Asked(ORDERS)
    monkeypatch.setattr(parts, "ORDERS", asked)
    for workers in (1, 3):
        path = build(tmp_path / str(workers), points(N, 1), order="margo", navigation=0)
        asked.taken = []
        indexmill.append(path, points(150, 3), workers=workers)
        assert asked.taken[-1] == expected
    assert_sound(tmp_path / "1")
    assert data_files(tmp_path / "1") == data_files(tmp_path / "3")
