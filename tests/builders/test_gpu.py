"""Code for GPUs, run on arrays in main memory that are as strict as CuPy's, and on a GPU where there is one."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.support.gpu import FUNCTIONS, METHODS, gpu_problem, strict_gpu

from indexmill.builders import gpu as gpu_module
from indexmill.builders.cluster.cells import Cells, nearest_cells
from indexmill.builders.cluster.closure import closure_cells
from indexmill.builders.cluster.kmeans import fit_centroids
from indexmill.builders.gpu import Gpu, cuda_gpu, open_gpu
from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.nearest.gpu import EXACT_DIM, nearest_on
from indexmill.builders.partition.build import build_partitioned
from indexmill.builders.partition.carve import Leaves, carve
from indexmill.builders.partition.gpu import leaf_lists_on
from indexmill.builders.partition.leaf_lists import NOBODY, leaf_lists
from indexmill.builders.quantize.gpu import encode_pq_on, train_pq_on
from indexmill.builders.quantize.pq import encode_pq, train_pq
from indexmill.builders.vamana.graph import Graph, VamanaParameters
from indexmill.builders.vamana.greedy import search_rows
from indexmill.formats.errors import BudgetError, ConfigError


def in_order(leaves: Leaves) -> np.ndarray:
    return np.arange(len(leaves.members), dtype=np.uint32)


NO_GPU = gpu_problem()
DEVICES = [
    pytest.param(lambda: strict_gpu()[0], id="strict"),
    pytest.param(
        cuda_gpu,
        id="cuda",
        marks=pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU)),
    ),
]


@pytest.fixture(params=DEVICES)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    found: Gpu = request.param()
    return found


def points(n: int, dim: int, dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        return rng.integers(0, 256, (n, dim), dtype=np.uint8)
    if dtype == "int8":
        return rng.integers(-128, 128, (n, dim), dtype=np.int8)
    return rng.normal(size=(n, dim)).astype(dtype)


def squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = a[:, None].astype(np.float64) - b[None].astype(np.float64)
    return (wide**2).sum(axis=2)


@pytest.mark.parametrize("dim", [1, EXACT_DIM, EXACT_DIM + 1])
def test_the_nearest_of_bytes_are_exact_with_ties_by_number(gpu: Gpu, dim: int) -> None:
    rng = np.random.default_rng(dim)
    vectors = rng.integers(0, 2, (300, dim), dtype=np.uint8) * np.uint8(255)  # the largest sums possible
    vectors[1::2, : (dim + 1) // 2] ^= 1  # and differences in their last bit
    chosen = np.concatenate([vectors[:20], vectors[:5]])
    wanted = np.argsort(squared(vectors, chosen), axis=1, kind="stable")[:, :7]
    assert np.array_equal(nearest_on(gpu, vectors, chosen, 7), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_the_nearest_of_other_types_are_those_of_float64_up_to_rounding(gpu: Gpu, dtype: str) -> None:
    vectors = points(700, 24, dtype, 1)
    chosen = points(90, 24, "float32", 2) * (40 if dtype == "int8" else 1)
    true = squared(vectors, chosen)
    found = nearest_on(gpu, vectors, chosen, 5).astype(np.int64)
    assert (np.sort(found, axis=1)[:, 1:] != np.sort(found, axis=1)[:, :-1]).all()
    kept = np.take_along_axis(true, found, 1)
    np.testing.assert_allclose(kept, np.sort(true, axis=1)[:, :5], rtol=1e-5)


def test_products_far_from_zero_keep_their_digits(gpu: Gpu) -> None:
    vectors = points(1200, 8, "float32", 3) + np.float32(10_000)
    true = squared(vectors, vectors[:40])
    kept = np.take_along_axis(true, nearest_on(gpu, vectors, vectors[:40], 2).astype(np.int64), 1)
    np.testing.assert_allclose(kept, np.sort(true, axis=1)[:, :2], rtol=1e-3, atol=1e-4)
    leaves = carve(vectors, (4, 2), seed=1)
    lists, own = (
        leaf_lists_on(gpu, vectors, leaves, 4, in_order(leaves)),
        leaf_lists(vectors, leaves, 4, in_order(leaves))[0],
    )
    shared = (lists[:, :, None] == own[:, None, :]).any(axis=2)
    assert shared.mean() > 0.95  # the processor compares codes


def test_what_overflows_is_as_near_to_any_but_to_one_once(gpu: Gpu) -> None:
    lengths = np.linspace(2.9e38, 3e38, 70) * np.where(np.arange(70) % 2, -1, 1)
    vectors = np.tile(lengths.astype(np.float32)[:, None], 3)
    assert np.array_equal(nearest_on(gpu, vectors, vectors[:3], 3), np.tile([0, 1, 2], (70, 1)))
    everything = Leaves(np.arange(70, dtype=np.uint32), np.array([0, 70]))
    lists = leaf_lists_on(gpu, vectors, everything, 69, in_order(everything))
    assert np.array_equal(np.sort(lists, axis=1), [[*range(i), *range(i + 1, 70)] for i in range(70)])


@pytest.mark.parametrize("dim", [9, EXACT_DIM + 3])
def test_lists_of_leaves_of_bytes_are_those_of_the_processor(gpu: Gpu, dim: int) -> None:
    vectors = points(2500, dim, "uint8", 4)
    vectors[:900] = vectors[0]  # ties
    leaves = carve(vectors, (3, 2), seed=1)
    assert len(np.unique(-(-np.diff(leaves.starts) // 64))) > 3  # products of several shapes
    assert np.array_equal(
        leaf_lists_on(gpu, vectors, leaves, 6, in_order(leaves)),
        leaf_lists(vectors, leaves, 6, in_order(leaves))[0],
    )


@pytest.mark.parametrize("kept", [True, False])
def test_lists_of_leaves_of_floats_are_the_nearest_others(kept: bool) -> None:
    gpu = strict_gpu(free=1 << 28 if kept else 2 * 1500 * 11 * 4 - 2)[0]
    vectors = points(1500, 11, "float32", 5)
    leaves = carve(vectors, (2, 2), seed=5)
    lists = leaf_lists_on(gpu, vectors, leaves, 5, in_order(leaves))
    for first, last in zip(leaves.starts[:-1], leaves.starts[1:], strict=True):
        own = vectors[leaves.members[first:last]]
        true = squared(own, own)
        np.fill_diagonal(true, np.inf)
        places = np.searchsorted(leaves.members[first:last], lists[first:last])
        found = np.take_along_axis(true, places, 1)
        np.testing.assert_allclose(found, np.sort(true, axis=1)[:, :5], rtol=1e-4)


def test_a_leaf_of_few_has_nobody_after_its_members(gpu: Gpu) -> None:
    vectors = points(70, 5, "uint8", 6)
    leaves = Leaves(np.arange(70, dtype=np.uint32), np.array([0, 1, 1, 4, 70]))
    lists = leaf_lists_on(gpu, vectors, leaves, 80, in_order(leaves))
    assert np.array_equal(lists, leaf_lists(vectors, leaves, 80, in_order(leaves))[0])
    assert (lists[0] == NOBODY).all()
    assert ((lists[1:4] != NOBODY).sum(axis=1) == 2).all()


R, LIST = VamanaParameters(max_degree=16, build_list_size=40, alpha=1.2), 40


def recall(graph: Graph, vectors: np.ndarray, queries: np.ndarray, k: int = 10) -> float:
    true = exact_neighbours(vectors, queries, k)[0]
    found = np.empty((len(queries), k), np.uint32)
    search_rows(queries, vectors, graph.neighbours, graph.degrees, graph.entry, LIST, found)
    return float(
        np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), true.tolist(), strict=True)])
    )


@pytest.mark.parametrize("dim", [12, EXACT_DIM + 1])
def test_the_partitioned_graph_of_bytes_is_that_of_the_processor(gpu: Gpu, dim: int) -> None:
    vectors = points(3000, dim, "uint8", 7)
    graphs = [build_partitioned(vectors, 3, R, seed=5, threads=2, gpu=each) for each in (None, gpu)]
    assert np.array_equal(graphs[0].neighbours, graphs[1].neighbours)
    assert np.array_equal(graphs[0].degrees, graphs[1].degrees)


def test_the_partitioned_graph_of_floats_has_the_recall_of_the_processors(gpu: Gpu) -> None:
    rng = np.random.default_rng(8)
    vectors, queries = (rng.normal(size=(n, 6)) @ rng.normal(size=(6, 20)) for n in (8000, 500))
    vectors, queries = vectors.astype(np.float32), queries.astype(np.float32)
    here, there = (
        recall(build_partitioned(vectors, 0, R, seed=1, threads=2, gpu=each), vectors, queries)
        for each in (None, gpu)
    )
    assert here > 0.9
    assert abs(here - there) <= 0.002


def clustered(n: int, dim: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, dim)) * 3
    return (centres[rng.integers(0, 40, n)] + rng.normal(size=(n, dim))).astype(np.float32)


def error(rows: np.ndarray, centroids: np.ndarray) -> float:
    return float(squared(rows, centroids).min(axis=1).mean())


def test_centroids_are_as_good_as_those_of_the_processor(gpu: Gpu) -> None:
    rows = clustered(12_000, 8, 9) + np.float32(500)
    here, there = (fit_centroids(rows, 100, 1, gpu=each) for each in (None, gpu))
    assert there.shape == here.shape == (100, 8)
    assert there.dtype == np.float32
    assert error(rows[::4], there) < 1.01 * error(rows[::4], here)


def test_centroids_repeat_and_follow_the_seed(gpu: Gpu) -> None:
    rows = clustered(3000, 5, 10)
    one, two, other = (fit_centroids(rows, 30, seed, gpu=gpu) for seed in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("wanted", [1, 5, 7, 50])
def test_centroids_of_few_distinct_rows_are_these_rows(gpu: Gpu, wanted: int) -> None:
    rows = np.repeat(np.eye(5, dtype=np.float32) * 9, 100, axis=0)
    found = fit_centroids(rows, wanted, 1, gpu=gpu)
    assert len(found) == min(wanted, 5)
    if wanted >= 5:
        assert error(rows, found) < 1e-9  # products of some machines round sums of equal rows


def decoded(book: Any, codes: np.ndarray) -> np.ndarray:
    bounds = book.offsets.astype(int)
    parts = [book.pivots[codes[:, j], a:b] for j, (a, b) in enumerate(pairwise(bounds))]
    return np.hstack(parts)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
def test_codes_are_as_good_as_those_of_the_processor(gpu: Gpu, dtype: str) -> None:
    vectors = points(2500, 13, dtype, 11)  # chunks of 2 and 3 components
    here, there = train_pq(vectors, 5, seed=1), train_pq_on(gpu, vectors, 5, seed=1)
    assert np.array_equal(here.offsets, there.offsets)
    assert here.pivots.shape == there.pivots.shape
    errors = [
        ((decoded(book, codes) - vectors.astype(np.float32)) ** 2).mean()
        for book, codes in ((here, encode_pq(vectors, here)), (there, encode_pq_on(gpu, vectors, there)))
    ]
    assert abs(errors[1] / errors[0] - 1) < 0.01


def test_a_codebook_is_that_of_the_processor_up_to_rounding(gpu: Gpu) -> None:
    vectors = points(8000, 4, "float32", 11)  # the same first centres, and as many iterations
    here, there = train_pq(vectors, 1, seed=1), train_pq_on(gpu, vectors, 1, seed=1)
    near = np.isclose(there.pivots, here.pivots, atol=1e-3)
    assert near.mean() > 0.9  # one row that rounding moves to another centre moves two


def test_codes_of_one_codebook_are_the_nearest_centres(gpu: Gpu) -> None:
    vectors = clustered(3000, 11, 12)
    book = train_pq(vectors, 4, seed=1)
    told: list[int] = []
    out = np.empty((3000, 4), np.uint8)
    assert encode_pq_on(gpu, vectors, book, told.append, out) is out
    assert sum(told) == 3000
    np.testing.assert_allclose(
        ((decoded(book, out) - vectors) ** 2).sum(1),
        ((decoded(book, encode_pq(vectors, book)) - vectors) ** 2).sum(1),
        rtol=1e-4,
    )


def test_codes_of_rows_that_hardly_differ_have_a_centre_each(gpu: Gpu) -> None:
    vectors = np.zeros((300, 6), np.float32)
    vectors[:, 0] = np.arange(300) % 3
    book = train_pq_on(gpu, vectors, 3, seed=1)
    codes = encode_pq_on(gpu, vectors, book)
    np.testing.assert_allclose(decoded(book, codes), vectors, atol=1e-6)
    few = train_pq_on(gpu, vectors[:2], 3, seed=1)
    assert few.pivots.shape == (2, 6)
    assert np.array_equal(decoded(few, encode_pq_on(gpu, vectors[:2], few)), vectors[:2])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_cells_are_those_of_the_processor(gpu: Gpu, dtype: str) -> None:
    vectors = points(900, 16, dtype, 13)
    centroids = vectors[::9].astype(np.float32) + np.float32(0.3)
    assert np.array_equal(
        Cells(centroids, vectors.dtype, gpu).nearest(vectors),
        Cells(centroids, vectors.dtype).nearest(vectors),
    )
    assert np.array_equal(
        nearest_cells(vectors, centroids, 20, 1, gpu), nearest_cells(vectors, centroids, 20)
    )
    assert np.array_equal(
        closure_cells(vectors, centroids, 3, 0.3, gpu), closure_cells(vectors, centroids, 3, 0.3)
    )


LEAVES = Leaves(np.arange(2000, dtype=np.uint32), np.arange(0, 2001, 250))
WORK: dict[str, Callable[[Gpu], Any]] = {
    "nearest": lambda gpu: nearest_on(gpu, points(2000, 10, "uint8", 14), points(900, 10, "uint8", 15), 4),
    "leaves": lambda gpu: leaf_lists_on(
        gpu, points(2000, 10, "uint8", 14), LEAVES, 4, in_order(LEAVES)
    ),
    "codes": lambda gpu: encode_pq_on(
        gpu, points(2000, 10, "float32", 16), train_pq(points(500, 10, "float32", 17), 3, seed=1)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "limit"), [("nearest", 5 << 20), ("leaves", 1 << 20), ("codes", 5 << 20)])
def test_a_block_that_runs_out_of_memory_is_cut(name: str, limit: int) -> None:
    wanted = WORK[name](strict_gpu()[0])
    gpu, module = strict_gpu(limit=limit, free=1 << 40)  # which believes to have more memory
    assert np.array_equal(WORK[name](gpu), wanted)
    assert module.refused > 0


@pytest.mark.parametrize("name", WORK)
def test_rows_travel_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = WORK[name](strict_gpu()[0])
    monkeypatch.setattr(gpu_module, "SENT_BYTES", 4 << 10)
    gpu, module = strict_gpu()
    assert np.array_equal(WORK[name](gpu), wanted)
    assert module.largest_sent <= 16 << 10  # masks and places of a leaf, which are few


def test_centroids_are_as_good_where_memory_runs_out() -> None:
    rows = clustered(9000, 4, 18)
    gpu, module = strict_gpu(limit=3 << 20, free=1 << 40)
    found = fit_centroids(rows, 200, 1, gpu=gpu)
    assert module.refused > 0
    assert error(rows, found) < 1.001 * error(rows, fit_centroids(rows, 200, 1, gpu=strict_gpu()[0]))


def test_a_library_that_has_no_work_space_is_out_of_memory_and_another_failure_is_not() -> None:
    gpu, sizes = strict_gpu(free=1 << 30)[0], list[int]()

    def block(first: int, last: int) -> None:
        sizes.append(last - first)
        if last - first > 1 << 16:
            raise RuntimeError("no work space")

    gpu.blocks(1 << 18, 64, block)
    assert sizes == [1 << 18, 1 << 17, 1 << 16, 1 << 16, 1 << 16, 1 << 16]
    with pytest.raises(BudgetError, match="too little free memory for a trial"), gpu.use("a trial"):
        raise RuntimeError("no work space")
    with pytest.raises(RuntimeError, match="misaligned"), gpu.use("a trial"):
        raise RuntimeError("misaligned address")


@pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))
def test_what_cublas_says_when_it_has_no_memory_is_known() -> None:
    failed = pytest.importorskip("cupy").cuda.cublas.CUBLASError
    assert [gpu_module.out_of_memory(failed(status)) for status in (1, 3, 13)] == [True, True, False]


def test_blocks_keep_to_the_free_memory() -> None:
    gpu, module = strict_gpu(limit=4 << 20, free=16 << 20)
    for work in WORK.values():
        work(gpu)
    assert module.refused == 0


@pytest.mark.parametrize("name", [*WORK, "centroids"])
def test_memory_for_nothing_is_one_error(name: str) -> None:
    gpu = strict_gpu(limit=1 << 10)[0]
    work = WORK.get(name, partial(fit_centroids, clustered(900, 4, 1), 20, 1, 1))
    with pytest.raises(
        BudgetError, match=r"^compute: strict arrays has too little free memory for .*compute cpu$"
    ):
        work(gpu)


def test_no_gpu_is_opened_for_the_processor() -> None:
    assert open_gpu("cpu") is None


def test_cuda_without_cupy_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "cupy":
            raise ImportError("No module named 'cupy'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"cuda needs CuPy .*pip install 'indexmill\[cuda12\]' or"):
        cuda_gpu.__wrapped__()


def test_cuda_without_a_gpu_says_what_cupy_says() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    if NO_GPU is None:
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match=r"cannot compute on a GPU here \(.*nvidia-smi"):
        open_gpu("cuda")


def test_all_that_is_used_is_in_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    for name in FUNCTIONS:
        assert callable(getattr(cupy, name)), name
    for name in METHODS:
        assert callable(getattr(cupy.ndarray, name)), name


def test_strict_arrays_refuse_what_cupy_refuses() -> None:
    _, module = strict_gpu()
    array = module.asarray(np.arange(4.0))
    for wrong in (
        lambda: array + np.arange(4.0),
        lambda: np.asarray(array),
        lambda: module.matmul(array, np.arange(4.0)),
        lambda: array.__setitem__(slice(2), np.arange(2.0)),
        lambda: array[np.arange(2)],
    ):
        with pytest.raises(TypeError):
            wrong()
    assert not hasattr(module, "argpartition")
    assert not hasattr(array, "cumsum")
