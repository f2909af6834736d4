"""`layout` of faiss's inverted lists: faiss answers as before, and lists that are probed together lie side by side."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cli import run, run_json
from tests.support.indexes.made_by_faiss import lists_of, make_ivf, write_on_disk
from tests.support.processes.forks import run_forked

from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.reordered.opening import open_engine_file
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.reorder.lists import ORDERS_OF_LISTS, ListArrangement
from indexmill.pipeline.reorder.outcome import ReorderedLists
from indexmill.pipeline.reorder.run import run_reorder

N, DIM, LISTS, K = 4000, 32, 96, 10
#: Pieces that the lists of a query lie in, as a share of those in the order of faiss, here.
WON = 0.7


def gaussian(n: int, seed: int) -> np.ndarray:
    """Clusters of vectors without equal distances, which lie in a few groups themselves."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(1)
    groups = fixed.normal(size=(12, DIM)) * 6
    centres = groups[np.repeat(np.arange(12), 10)] + fixed.normal(size=(120, DIM)) * 2
    return (centres[rng.integers(120, size=n)] + rng.normal(size=(n, DIM))).astype(np.float32)


ROWS, QUERIES = gaussian(N, 2), gaussian(60, 3)
IDS = np.random.default_rng(4).permutation(N) + 7_000_000_000
MADE = {
    "flat": {"factory": f"IVF{LISTS},Flat"},
    "ip": {"factory": f"IVF{LISTS},Flat", "metric": faiss.METRIC_INNER_PRODUCT},
    "sq8": {"factory": f"IVF{LISTS},SQ8"},
    "pq": {"factory": f"IVF{LISTS},PQ8x4"},
    "pq-ip": {"factory": f"IVF{LISTS},PQ8x4", "metric": faiss.METRIC_INNER_PRODUCT},
    "rabitq": {"factory": f"RR,IVF{LISTS},RaBitQ"},
    "mapped": {"factory": f"IDMap,OPQ8,IVF{LISTS},PQ8x4", "ids": IDS},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    for name, how in MADE.items():
        faiss.write_index(make_ivf(ROWS, **how), str(folder / name))
    write_on_disk(make_ivf(ROWS, **MADE["flat"]), folder / "on-disk")
    return folder


def lay_out(path: Path, out: Path, order: str | None = None, **options: Any) -> ReorderedLists:
    order_file = options.pop("order_file", None)
    found = run_reorder(path, order, order_file, RunOptions(out, **options))
    assert isinstance(found, ReorderedLists)
    return found


def assert_same_answers(before: Path, after: Path, flags: int = 0, queries: np.ndarray = QUERIES) -> None:
    one = faiss.read_index(str(before), faiss.IO_FLAG_ONDISK_SAME_DIR)
    other = faiss.read_index(str(after), flags)
    for nprobe in (1, 3, 16, LISTS):
        for index in (one, other):
            faiss.extract_index_ivf(index).nprobe = nprobe
        alone = queries[:5, None]  # faiss compares few queries with centroids in another way
        for batch in (queries, *alone):
            for found, again in zip(one.search(batch, K), other.search(batch, K), strict=True):
                assert np.array_equal(found, again)


@pytest.mark.parametrize("name", [*MADE, "on-disk"])
def test_faiss_finds_the_same_ids_at_the_same_distances(files: Path, tmp_path: Path, name: str) -> None:
    before = (files / name).read_bytes()
    found = lay_out(files / name, tmp_path / "new")
    for flags in (0, faiss.IO_FLAG_MMAP, faiss.IO_FLAG_MMAP_IFC):
        assert_same_answers(files / name, tmp_path / "new", flags)
    assert (files / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    size = (tmp_path / "new").stat().st_size
    assert (found.n_vectors, found.order, found.bytes, found.ids) == (N, "kmeans-pages", size, "as before")
    centroids = lists_of(files / name)["centroids"]
    assert np.array_equal(lists_of(tmp_path / "new")["centroids"], centroids[found.lists])


def test_faiss_finds_the_same_within_a_radius(files: Path, tmp_path: Path) -> None:
    lay_out(files / "flat", tmp_path / "new")
    one, other = (faiss.read_index(str(path)) for path in (files / "flat", tmp_path / "new"))
    for index in (one, other):
        index.nprobe = 8
    for found, again in zip(one.range_search(QUERIES, 60.0), other.range_search(QUERIES, 60.0), strict=True):
        assert np.array_equal(found, again)
    assert found.size > len(QUERIES)


@pytest.mark.parametrize("codec", ["Flat", "PQ8x4"])
def test_large_batches_differ_by_rounding_alone(tmp_path: Path, codec: str) -> None:
    """faiss multiplies matrices, and rounds distances to centroids by their places; codes of PQ add to these."""
    queries = gaussian(600, 5)
    faiss.write_index(make_ivf(ROWS, f"IVF203,{codec}"), str(tmp_path / "old"))
    lay_out(tmp_path / "old", tmp_path / "new")
    one, other = (faiss.read_index(str(tmp_path / name)) for name in ("old", "new"))
    one.nprobe = other.nprobe = 16
    (near, ids), (again, others) = one.search(queries, K), other.search(queries, K)
    if codec == "Flat":
        assert np.array_equal(near, again)
        assert np.array_equal(ids, others)
    else:
        np.testing.assert_allclose(near, again, rtol=1e-5)


@pytest.mark.parametrize("order", ORDERS_OF_LISTS)
def test_every_order_keeps_the_answers_whatever_the_threads(files: Path, tmp_path: Path, order: str) -> None:
    found = lay_out(files / "pq", tmp_path / "new", order)
    assert_same_answers(files / "pq", tmp_path / "new")
    assert sorted(found.lists) == list(range(LISTS))
    lay_out(files / "pq", tmp_path / "again", order, workers=1)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "new").read_bytes()


def test_near_lists_lie_side_by_side(files: Path, tmp_path: Path) -> None:
    """Probed lists that follow each other are read in one piece."""
    lay_out(files / "flat", tmp_path / "new")

    def pieces(path: Path) -> float:
        index = faiss.read_index(str(path))
        probed = np.sort(index.quantizer.search(QUERIES, 8)[1], axis=1)
        return float((1 + (np.diff(probed, axis=1) > 1).sum(axis=1)).mean())

    assert pieces(tmp_path / "new") < WON * pieces(files / "flat")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(n=st.integers(1, 40), distinct=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_equal_centroids_keep_the_order_of_their_numbers(
    files: Path, n: int, distinct: int, seed: int
) -> None:
    """faiss takes the lower number of two centroids at one distance."""
    random = np.random.default_rng(seed)
    owner = random.integers(distinct, size=n)
    centroids = random.normal(size=(distinct, 5)).astype(np.float32)[owner]
    rows = np.concatenate([centroids, centroids + np.float32(0.1)])
    coarse = faiss.IndexFlatL2(5)
    coarse.add(centroids)
    index = faiss.IndexIVFFlat(coarse, 5, n)
    index.is_trained = True
    index.add_core(len(rows), faiss.swig_ptr(rows), None, faiss.swig_ptr(np.tile(np.arange(n), 2)))
    faiss.write_index(index, str(files / "equal"))
    found = lay_out(files / "equal", files / "equal-new", force=True)
    for one in range(distinct):
        numbers = [number for number in found.lists if owner[number] == one]
        assert numbers == sorted(numbers)
    again = faiss.read_index(str(files / "equal-new"))
    queries = random.normal(size=(30, 5)).astype(np.float32)
    for nprobe in (1, 2, n):
        index.nprobe = again.nprobe = nprobe
        for mine, theirs in zip(index.search(queries, 3), again.search(queries, 3), strict=True):
            assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("order", sorted(set(ORDERS) - set(ORDERS_OF_LISTS)))
def test_orders_of_edges_are_refused(files: Path, tmp_path: Path, order: str) -> None:
    with pytest.raises(ConfigError, match=rf"order: {order} is made of edges.* choose one of kmeans-pages, "):
        lay_out(files / "flat", tmp_path / "new", order)
    assert list(tmp_path.iterdir()) == []


def test_the_numbers_of_a_run_are_an_order_file_of_another(files: Path, tmp_path: Path) -> None:
    """Indexes with the same centroids stay alike, so that faiss can merge them."""
    found = lay_out(files / "flat", tmp_path / "a")
    np.save(tmp_path / "order.npy", found.lists)
    again = lay_out(files / "on-disk", tmp_path / "b", order_file=tmp_path / "order.npy")
    assert (again.order, again.lists) == ("file", found.lists)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    np.save(tmp_path / "order.npy", found.lists[1:])
    with pytest.raises(InputError, match="expected a permutation"):
        lay_out(files / "flat", tmp_path / "c", order_file=tmp_path / "order.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "order.npy"]


def test_the_file_of_the_lists_is_not_replaced(files: Path) -> None:
    before = (files / "on-disk.ivfdata").read_bytes()
    for force in (False, True):
        with pytest.raises(ConfigError, match="is the file to read"):
            lay_out(files / "on-disk", files / "on-disk.ivfdata", force=force)
    assert (files / "on-disk.ivfdata").read_bytes() == before


def test_the_order_file_is_not_replaced(files: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "order.npy", np.arange(LISTS)[::-1])
    before = (tmp_path / "order.npy").read_bytes()
    (tmp_path / "link.npy").symlink_to("order.npy")
    for out in ("order.npy", "link.npy"):
        with pytest.raises(ConfigError, match=r"order\.npy is the order file; name another one"):
            lay_out(files / "flat", tmp_path / out, order_file=tmp_path / "order.npy", force=True)
    assert (tmp_path / "order.npy").read_bytes() == before


def test_too_little_memory_is_refused_with_what_is_needed(files: Path, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=rf"the order kmeans-pages of {LISTS} lists takes .* --memory$"):
        lay_out(files / "flat", tmp_path / "new", memory=1 << 20)
    assert list(tmp_path.iterdir()) == []


def test_the_scratch_space_asked_for_is_enough(files: Path, tmp_path: Path) -> None:
    how = ListArrangement(open_engine_file(files / "flat"), None)
    assert how.scratch_bytes == LISTS * (4 + 4 * DIM)


@pytest.mark.kill
@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_disk_that_fills_up_leaves_what_was_there(files: Path, tmp_path: Path, share: float) -> None:
    """No file may pass a share of the new one: the system then refuses in the middle of it."""
    (tmp_path / "out").write_text("old")
    limit = int(share * open_engine_file(files / "flat").size)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
    code += "from indexmill.jobs.cli.main import main; main()"
    work = tmp_path / "work"
    done = run_forked(code, "layout", files / "flat", "--out", tmp_path / "out", "--force", "--work", work)
    assert (done.returncode, "File too large" in done.stderr) == (4, True), done.stderr
    assert (tmp_path / "out").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "work"]
    assert list(work.iterdir()) == []


def test_the_command_says_what_it_wrote(files: Path, tmp_path: Path) -> None:
    told = run_json("layout", files / "pq", "--out", tmp_path / "a")
    assert sorted(told.pop("lists")) == list(range(LISTS))
    assert told == {
        "kind": "faiss IndexIVFPQ",
        "order": "kmeans-pages",
        "n_vectors": N,
        "group": 1,
        "bytes": (tmp_path / "a").stat().st_size,
        "ids": "as before",
    }
    done = run("layout", files / "on-disk", "--out", tmp_path / "b", "--order", "random")
    assert done.exit_code == 0, done.stderr
    assert "faiss IndexIVFFlat, 96 lists of 4,000 vectors in the order random" in done.stdout
    assert "ids are as before" in done.stdout


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9999])
def test_a_damaged_file_leaves_nothing(files: Path, tmp_path: Path, share: float) -> None:
    data = (files / "sq8").read_bytes()
    (tmp_path / "cut").write_bytes(data[: int(share * len(data))])
    done = run("layout", tmp_path / "cut", "--out", tmp_path / "new")
    assert done.exit_code == 6
    assert re.search(rf"{tmp_path / 'cut'}: .*copy the file again", done.stderr), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["cut"]
