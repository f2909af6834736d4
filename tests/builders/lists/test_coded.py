"""Nearest floats by byte codes: the exact ones, ties included, whatever the vectors are like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.builders.lists import coded, exact
from indexmill.builders.lists.exact import ExactSearch, exact_neighbours
from indexmill.builders.lists.rows import Lists, plain_rows
from indexmill.builders.lists.scan import CODED_QUERIES, scan
from indexmill.builders.nearest.pairs import pairs_of
from indexmill.builders.nearest.panels import NOTHING

Pair = tuple[np.ndarray, np.ndarray]
DIM = coded.CODED_DIM + 6
N, N_QUERIES = 1100, exact.CODED_QUERIES + 69


def sorted_keys(rows: np.ndarray, queries: np.ndarray, by_product: bool = False) -> Pair:
    """Return ids and keys of all rows, nearest first: the slow and obvious way, summed from the first component on."""
    x, y = rows.astype(np.float64)[None], queries.astype(np.float64)[:, None]
    keys = np.stack([(-(x[0] * q) if by_product else (x[0] - q) ** 2).cumsum(axis=1)[:, -1] for q in y[:, 0]])
    order = np.argsort(keys, axis=1, kind="stable")
    return order, np.take_along_axis(keys, order, 1)


def check(rows: np.ndarray, queries: np.ndarray, k: int, threads: int = 2) -> None:
    search = ExactSearch(queries, k, threads)
    for first in range(0, len(rows), 700):
        search.add(first, rows[first : first + 700])
    ids, keys = sorted_keys(rows, queries)
    m = min(k, len(rows))
    np.testing.assert_array_equal(search.found.keys[:, :m], keys[:, :m])
    np.testing.assert_array_equal(search.found.ids[:, :m], ids[:, :m])
    assert (search.found.ids[:, m:] == NOTHING).all()
    assert np.isinf(search.found.keys[:, m:]).all()


def plain(rng: np.random.Generator) -> Pair:
    return rng.normal(size=(N, DIM)), rng.normal(size=(N_QUERIES, DIM))


def far_from_zero(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    return rows + 1e4, queries + 1e4


def two_places(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    rows[::2] += 1e6
    return rows, queries + 1e6


def huge(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    return rows * 5e37, queries * 5e37


def largest(rng: np.random.Generator) -> Pair:
    most = np.finfo(np.float32).max
    return most * rng.choice([-1, 1], (N, DIM)), most * rng.choice([-1, 1], (N_QUERIES, DIM))


def denormal(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    return rows * 1e-41, queries * 1e-41


def tiny(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    return rows * 1e-20, queries * 1e-20


def of_all_sizes(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    return (
        rows * 10 ** rng.uniform(-40, 35, (N, 1)),
        queries * 10 ** rng.uniform(-40, 35, (N_QUERIES, 1)),
    )


def one_large_component(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    rows[:, 3] *= 1e4
    queries[:, 3] *= 1e4
    return rows, queries


def constant(rng: np.random.Generator) -> Pair:
    return np.full((N, DIM), 0.1), np.full((N_QUERIES, DIM), 0.1)


def zero(rng: np.random.Generator) -> Pair:
    return np.zeros((N, DIM)), rng.normal(size=(N_QUERIES, DIM))


def copies(rng: np.random.Generator) -> Pair:
    few = rng.normal(size=(4, DIM))
    return few[rng.integers(0, 4, N)], few[rng.integers(0, 4, N_QUERIES)] + rng.integers(0, 2, (N_QUERIES, 1))


def nearly_copies(rng: np.random.Generator) -> Pair:
    rows, queries = copies(rng)
    return rows + rng.normal(size=rows.shape) * 1e-7, queries


def small_integers(rng: np.random.Generator) -> Pair:
    return rng.integers(0, 2, (N, DIM)), rng.integers(0, 2, (N_QUERIES, DIM))  # many ties


def one_far_row(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    rows[5] *= 1e30
    return rows, queries


def one_far_query(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    queries[5] *= 1e30
    return rows, queries


def far_rows(rng: np.random.Generator) -> Pair:
    rows, queries = plain(rng)
    rows[::9] *= 1e6
    return rows, queries


CASES: list[Callable[[np.random.Generator], Pair]] = [
    plain, far_from_zero, two_places, huge, largest, denormal, tiny, of_all_sizes, one_large_component, constant,
    zero, copies, nearly_copies, small_integers, one_far_row, one_far_query, far_rows,
]  # fmt: skip


@pytest.mark.parametrize("k", [1, 10, N + 3])
@pytest.mark.parametrize("case", CASES)
def test_hard_vectors_are_found_exactly(case: Callable[[np.random.Generator], Pair], k: int) -> None:
    rows, queries = (vectors.astype(np.float32) for vectors in case(np.random.default_rng(7)))
    check(rows, queries, k)


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 1300),
    dim=st.integers(coded.CODED_DIM, coded.CODED_DIM + 40),
    k=st.integers(1, 40),
    levels=st.sampled_from([1, 3, 40, 10**6]),
    spread=st.floats(0, 3),
    seed=st.integers(0, 2**31),
)
def test_any_vectors_are_found_exactly(
    n: int, dim: int, k: int, levels: int, spread: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.exp(spread * rng.normal(size=(n, 1)))
    rows = (rng.integers(-levels, levels + 1, (n, dim)) * sizes).astype(np.float32)
    queries = rng.integers(-levels, levels + 1, (N_QUERIES, dim)).astype(np.float32)
    check(rows, queries, k, threads=1 + seed % 3)


@pytest.mark.parametrize("by_product", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_lists_are_compared_with_the_queries_that_probe_them(dtype: str, by_product: bool) -> None:
    rng = np.random.default_rng(3)
    sizes = np.array([900, 0, 1, 130, 700])
    rows = rng.normal(size=(sizes.sum(), DIM)).astype(dtype)
    queries = rng.normal(size=(3 * CODED_QUERIES, DIM)).astype(np.float32)
    starts = np.cumsum(sizes) - sizes
    ids = rng.permutation(len(rows)).astype(np.uint32)
    for first, size in zip(starts, sizes, strict=True):
        ids[first : first + size].sort()
    form = plain_rows(rows.dtype, DIM)
    names = np.array([4, 0, 2, 3, 1], np.uint32)
    lists = Lists(rows.view(np.uint8).reshape(-1), names, sizes, starts * form.row_bytes, ids)
    chosen = np.stack([rng.permutation(6)[:3] for _ in queries]).astype(np.uint32)  # list 5 is elsewhere
    centroids = np.zeros((6, DIM), np.float32)
    found = [
        scan(lists, form, centroids, queries, pairs_of(chosen, 6), 7, threads, by_product=by_product)
        for threads in (1, 3)
    ]
    np.testing.assert_array_equal(found[0].ids, found[1].ids)
    entry = np.repeat(np.arange(len(sizes)), sizes)
    for q in range(len(queries)):
        there = np.flatnonzero(np.isin(names[entry], chosen[q]))
        there = there[np.argsort(ids[there])]
        order, keys = sorted_keys(rows[there], queries[q : q + 1], by_product)
        m = min(7, len(there))
        np.testing.assert_array_equal(found[0].ids[q, :m], ids[there][order[0, :m]])
        np.testing.assert_array_equal(found[0].keys[q, :m], keys[0, :m])
        assert (found[0].ids[q, m:] == NOTHING).all()


@pytest.mark.parametrize("dtypes", [("float16", "float16"), ("float32", "float16"), ("uint8", "float32")])
def test_types_may_differ(dtypes: tuple[str, str]) -> None:
    rng = np.random.default_rng(5)
    rows = (50 + 9 * rng.normal(size=(N, DIM))).astype(dtypes[0])
    check(rows, (50 + 9 * rng.normal(size=(N_QUERIES, DIM))).astype(dtypes[1]), 10)


def test_products_of_floats_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, queries = (vectors.astype(np.float32) for vectors in plain(np.random.default_rng(9)))
    by_codes = exact_neighbours(rows, queries, 10, 2)
    monkeypatch.setattr(exact, "CODED_QUERIES", len(queries) + 1)
    by_products = exact_neighbours(rows, queries, 10, 2)
    for one, other in zip(by_codes, by_products, strict=True):
        np.testing.assert_array_equal(one, other)


def test_queries_are_compared_block_by_block() -> None:
    rows, queries = (vectors.astype(np.float32) for vectors in plain(np.random.default_rng(11)))
    whole, parts = ExactSearch(queries, 4), ExactSearch(queries, 4, query_block=exact.CODED_QUERIES)
    for first in range(0, N, 400):
        whole.add(first, rows[first : first + 400])
        parts.add(first, rows[first : first + 400])
    np.testing.assert_array_equal(whole.found.ids, parts.found.ids)
    np.testing.assert_array_equal(whole.found.keys, parts.found.keys)


def test_a_row_that_is_no_number_hides_no_other() -> None:
    rows, queries = (vectors.astype(np.float32) for vectors in plain(np.random.default_rng(13)))
    rows[4], rows[6, 2] = np.nan, np.inf
    search = ExactSearch(queries, 5)
    search.add(0, rows)
    left = np.delete(np.arange(N), [4, 6])
    np.testing.assert_array_equal(search.found.ids, left[sorted_keys(rows[left], queries)[0][:, :5]])


def test_rows_of_a_mapped_file_compile_no_kernels_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(600, DIM)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    queries, found = rng.normal(size=(N_QUERIES, DIM)).astype(np.float32), []
    for vectors in (rows, mapped):
        search = exact.ExactSearch(queries, 4)
        search.add(0, vectors)
        found.append((len(coded.compare_coded.signatures), search.found.ids))
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])
