"""`layout` of faiss's and hnswlib's files: the engine answers as before, from fewer pages, and nothing else changes."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import faiss
import numpy as np
import pytest
from tests.oracles.files.hnswlib import from_bytes, random_vertices, to_bytes
from tests.support.cli import run, run_json
from tests.support.indexes.made_by_faiss import make_hnsw
from tests.support.processes.forks import run_forked

from indexmill.formats.errors import BudgetError, ConfigError, InputError, OutputExistsError
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.formats.reordered.engine_file import Advance
from indexmill.formats.reordered.graph_file import GraphFile
from indexmill.formats.reordered.opening import open_engine_file
from indexmill.layout.portfolio import NEEDS_POINTS, ORDERS, USES_POINTS
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.mill.disk_space import used_bytes
from indexmill.pipeline.reorder import arrangement
from indexmill.pipeline.reorder import run as reorder
from indexmill.pipeline.reorder.graphs import rows_before_page
from indexmill.pipeline.reorder.outcome import Reordered
from indexmill.pipeline.reorder.run import run_reorder

N, DIM, M, K = 3000, 64, 8, 10
#: Page reads of a layout by stars or clusters, as a share of those of a random order, here.
WON = 0.7


def gaussian(n: int, seed: int) -> np.ndarray:
    """Clusters of vectors without equal distances."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(60, DIM)) * 2
    return (centres[rng.integers(60, size=n)] + rng.normal(size=(n, DIM))).astype(np.float32)


ROWS, QUERIES = gaussian(N, 2), gaussian(40, 3)


def scalar() -> Any:
    index = faiss.IndexHNSWSQ(DIM, faiss.ScalarQuantizer.QT_8bit, M)
    index.train(ROWS)
    index.add(ROWS)
    return index


def named(kind: Any) -> Any:
    index = kind(make_hnsw(ROWS[:0].copy(), M))
    index.add_with_ids(ROWS, np.random.default_rng(4).permutation(N) + 7_000_000_000)
    return index


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    made = {
        "flat": make_hnsw(ROWS, M),
        "ip": make_hnsw(ROWS, M, faiss.METRIC_INNER_PRODUCT),
        "sq8": scalar(),
        "mapped": named(faiss.IndexIDMap),
        "mapped2": named(faiss.IndexIDMap2),
    }
    for name, index in made.items():
        faiss.write_index(index, str(folder / name))
    (folder / "hnswlib").write_bytes(to_bytes(random_vertices(900, 8, 4, 5), 4))
    return folder


def lay_out(path: Path, out: Path, order: str | None = None, **options: Any) -> Reordered:
    order_file = options.pop("order_file", None)
    return run_reorder(path, order, order_file, RunOptions(out, **options))


def answers(path: Path, list_size: int, flags: int = 0) -> tuple[np.ndarray, np.ndarray]:
    index = faiss.read_index(str(path), flags)
    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else index
    inner.hnsw.efSearch = list_size
    distances, ids = index.search(QUERIES, K)
    return distances, ids


def assert_same_answers(before: Path, after: Path, flags: int = 0) -> None:
    for list_size in (K, 16, 64, 300):
        for one, other in zip(answers(before, list_size), answers(after, list_size, flags), strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("name", ["flat", "ip", "sq8", "mapped", "mapped2"])
def test_faiss_finds_the_same_ids_at_the_same_distances(files: Path, tmp_path: Path, name: str) -> None:
    before = (files / name).read_bytes()
    found = lay_out(files / name, tmp_path / "new")
    assert_same_answers(files / name, tmp_path / "new")
    assert_same_answers(files / name, tmp_path / "new", faiss.IO_FLAG_MMAP_IFC)
    assert (files / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert (found.n_vectors, found.order, found.bytes) == (
        N,
        "kmeans-pages",
        (tmp_path / "new").stat().st_size,
    )


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_of_the_portfolio_keeps_the_answers(files: Path, tmp_path: Path, order: str) -> None:
    lay_out(files / "flat", tmp_path / "new", order)
    assert_same_answers(files / "flat", tmp_path / "new")
    again = tmp_path / "again"
    lay_out(files / "flat", again, order, workers=1)
    assert again.read_bytes() == (tmp_path / "new").read_bytes()


def test_equal_distances_are_found_in_any_order_but_all_of_them(tmp_path: Path) -> None:
    """Half of the vectors stand twice: of two at one distance either may be named, the distances are the same."""
    rows = np.concatenate([ROWS[: N // 2]] * 2)
    faiss.write_index(make_hnsw(rows, M), str(tmp_path / "twice"))
    lay_out(tmp_path / "twice", tmp_path / "new")
    (near, ids), (again, others) = (answers(tmp_path / name, N) for name in ("twice", "new"))
    assert np.array_equal(near, again)
    assert np.array_equal(np.sort(ids % (N // 2)), np.sort(others % (N // 2)))


def pages(path: Path, wanted: list[np.ndarray]) -> float:
    """Pages of vectors that hold sets of ids, on average, as the file lies on the disk."""
    file, index = open_engine_file(path), faiss.read_index(str(path))
    ids = np.arange(N)
    if isinstance(index, faiss.IndexIDMap):
        ids = faiss.vector_to_array(index.id_map)
    places = np.argsort(ids)
    begin = file.rows_begin - (0 if isinstance(index, faiss.IndexIDMap) else 37)
    counts = []
    for one in wanted:
        first = begin + places[one] * file.row_bytes
        last = first + file.row_bytes - 1
        counts.append(len(set((first // PAGE_BYTES).tolist()) | set((last // PAGE_BYTES).tolist())))
    return float(np.mean(counts))


@pytest.mark.parametrize("order", ["star", "kmeans-pages", "graph-bisection"])
def test_what_a_query_looks_at_lies_on_fewer_pages(files: Path, tmp_path: Path, order: str) -> None:
    nearest = [np.argsort(((ROWS - query) ** 2).sum(axis=1))[:100] for query in QUERIES]
    lay_out(files / "flat", tmp_path / "random", "random")
    lay_out(files / "flat", tmp_path / "new", order)
    assert pages(tmp_path / "new", nearest) < WON * pages(tmp_path / "random", nearest)


@pytest.mark.parametrize("name", ["flat", "mapped", "sq8", "hnswlib"])
def test_groups_of_an_order_begin_where_pages_do(files: Path, name: str) -> None:
    file = open_engine_file(files / name)
    begin = file.rows_begin + rows_before_page(file) * file.row_bytes
    assert 0 <= -begin % PAGE_BYTES < file.row_bytes


def test_labels_of_hnswlib_stay_with_their_vertices(files: Path, tmp_path: Path) -> None:
    found = lay_out(files / "hnswlib", tmp_path / "new")
    before, after = ((folder / name).read_bytes() for folder, name in ((files, "hnswlib"), (tmp_path, "new")))
    assert from_bytes(after) == from_bytes(before)
    assert list(from_bytes(after).vertices) != list(from_bytes(before).vertices)
    assert found.kind == "hnswlib"


@pytest.mark.parametrize("order", sorted(NEEDS_POINTS))
def test_orders_of_vectors_are_refused_where_a_file_does_not_tell_their_type(
    files: Path, tmp_path: Path, order: str
) -> None:
    with pytest.raises(ConfigError, match=rf"order: {order} compares vectors.* such as star"):
        lay_out(files / "hnswlib", tmp_path / "new", order)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", sorted(USES_POINTS - NEEDS_POINTS))
def test_orders_that_can_do_without_vectors_are_taken_there(files: Path, tmp_path: Path, order: str) -> None:
    assert lay_out(files / "hnswlib", tmp_path / "new", order).order == order
    before, after = ((folder / name).read_bytes() for folder, name in ((files, "hnswlib"), (tmp_path, "new")))
    assert from_bytes(after) == from_bytes(before)


def test_an_order_of_ones_own_is_taken_as_it_is(files: Path, tmp_path: Path) -> None:
    order = np.random.default_rng(6).permutation(N)
    np.save(tmp_path / "order.npy", order)
    found = lay_out(files / "flat", tmp_path / "new", order_file=tmp_path / "order.npy")
    index = faiss.read_index(str(tmp_path / "new"))  # its map goes when it goes
    assert np.array_equal(faiss.vector_to_array(index.id_map), order)
    assert found.order == "file"
    np.save(tmp_path / "order.npy", order[1:])
    with pytest.raises(InputError, match="expected a permutation"):
        lay_out(files / "flat", tmp_path / "other", order_file=tmp_path / "order.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "order.npy"]


def test_nothing_that_is_there_is_replaced_unasked(files: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    for out, error, message in (
        (None, ConfigError, "out: a file is not replaced"),
        (files / "flat", ConfigError, "is the file to read"),
        (tmp_path / "folder", OutputExistsError, "is a directory"),
        (tmp_path / "file", OutputExistsError, "add --force"),
    ):
        with pytest.raises(error, match=message):
            run_reorder(files / "flat", None, None, RunOptions(out))
    assert (tmp_path / "file").read_text() == "mine"
    lay_out(files / "flat", tmp_path / "file", force=True)
    assert_same_answers(files / "flat", tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_too_little_memory_is_refused_with_what_is_needed(files: Path, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=r"the order gorder of 3,000 vectors takes .* or take --order star"):
        lay_out(files / "flat", tmp_path / "new", "gorder", memory=1 << 20)
    with pytest.raises(BudgetError, match=r"the order star of 3,000 vectors takes .* --memory$"):
        lay_out(files / "flat", tmp_path / "new", "star", memory=1 << 20)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_seen_beforehand(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = open_engine_file(files / "flat").size

    def usage(path: object) -> Any:
        return type("Usage", (), {"free": size - 1})

    monkeypatch.setattr("shutil.disk_usage", usage)
    with pytest.raises(BudgetError, match=rf"the (new file takes {size:,}|layout needs) .*bytes"):
        lay_out(files / "flat", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", ["agglomerative", "star", "kmeans-pages"])
def test_the_scratch_space_asked_for_is_enough(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    asked, used = [], []

    @contextmanager
    def counted(folder: Path, *shape: Any) -> Iterator[np.ndarray]:
        with scratch_array(folder, *shape) as array:
            used.append(used_bytes(folder))
            yield array

    monkeypatch.setattr(reorder, "check_free", lambda folder, need, job: asked.append(need))
    monkeypatch.setattr(arrangement, "scratch_array", counted)
    lay_out(files / "sq8", tmp_path / "new", order)
    headers = 1000
    assert max(used, default=0) <= asked[0] + headers


@pytest.mark.kill
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_disk_that_fills_up_leaves_what_was_there(files: Path, tmp_path: Path, share: float) -> None:
    """No file may pass a share of the new one: the system then refuses in the middle of it."""
    (tmp_path / "out").write_text("old")
    limit = int(share * open_engine_file(files / "flat").size)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
    code += "from indexmill.jobs.cli.main import main; main()"
    work = tmp_path / "work"
    options = ("--out", tmp_path / "out", "--force", "--order", "identity", "--work", work)
    done = run_forked(code, "layout", files / "flat", *options)
    assert (done.returncode, f"{tmp_path / 'out'}: File too large; " in done.stderr) == (4, True), done.stderr
    assert (tmp_path / "out").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "work"]
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_with_what_to_do_and_leaves_what_was_there(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Writing to an open file fails without the name of the file."""

    def write(self: GraphFile, order: np.ndarray, file: BinaryIO, advance: Advance) -> None:
        file.write(b"a part of it")
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(type(open_engine_file(files / "flat")), "write", write)
    out = tmp_path / "out"
    out.write_text("old")
    done = run("layout", files / "flat", "--out", out, "--force", "--order", "identity")
    assert done.exit_code == 4
    expected = rf"{out}: {os.strerror(code)}; no file was written; .* --work or --out, and run again"
    assert re.search(expected, done.stderr), done.stderr
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


KILLED = """
import os, signal
from indexmill.formats.reordered.faiss_hnsw import FaissHnsw
from indexmill.jobs.cli.main import main

def die(self, order, file, advance):
    file.write(b"a part of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

FaissHnsw.write = die
main()
"""


@pytest.mark.kill
def test_what_a_killed_run_leaves_is_removed_by_the_next(files: Path, tmp_path: Path) -> None:
    others = [".out.0123456789abcdef.txt", ".other.0123456789abcdef.tmp", ".out.tmp"]
    for name in others:
        (tmp_path / name).write_text("not of a run on this file")
    command = ("layout", files / "flat", "--out", tmp_path / "out", "--order", "identity")
    assert run_forked(KILLED, *command).returncode == -signal.SIGKILL
    left = {path.name for path in tmp_path.iterdir()} - set(others)
    assert [name for name in left if re.fullmatch(r"\.out\.[0-9a-f]{16}\.tmp", name)], left
    assert "out" not in left
    assert run(*command).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["out", *others])
    assert_same_answers(files / "flat", tmp_path / "out")


def test_the_command_says_what_it_wrote(files: Path, tmp_path: Path) -> None:
    told = run_json("layout", files / "flat", "--out", tmp_path / "a", "--order", "breadth-first")
    assert told == {
        "kind": "faiss IndexHNSWFlat",
        "order": "breadth-first",
        "n_vectors": N,
        "group": PAGE_BYTES // (4 * DIM),
        "bytes": (tmp_path / "a").stat().st_size,
        "ids": "as before, by an IndexIDMap in the file",
    }
    done = run("layout", files / "hnswlib", "--out", tmp_path / "b")
    assert done.exit_code == 0, done.stderr
    assert "hnswlib, 900 vectors in the order star" in done.stdout
    assert "ids are as before, by the labels" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--effort", "low"], "effort: for an index of indexmill"),
        (["--queries", "q.npy"], "queries: for an index of indexmill"),
        (["--prune-edges"], "prune-edges: for an index of indexmill"),
        (["--certify"], "certify: for an index of indexmill"),
        (["--order", "auto"], "order: expected one of identity, .*got 'auto'"),
        (["--order", "star", "--order-file", "o.npy"], "order-file: order already names an order"),
    ],
)
def test_options_of_an_index_are_refused(
    files: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    done = run("layout", files / "flat", "--out", tmp_path / "new", *options)
    assert done.exit_code == 2
    assert re.search(message, done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_leaves_nothing(files: Path, tmp_path: Path) -> None:
    data = (files / "flat").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    done = run("layout", tmp_path / "cut", "--out", tmp_path / "new")
    assert done.exit_code == 6
    assert str(tmp_path / "cut") in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cut"]
