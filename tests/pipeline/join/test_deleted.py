"""Batches are loaded without deleted vectors, and that takes no memory but a bit a vector."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.indexes.ivf import build_lists, make_vectors

import indexmill
from indexmill.builders.lists.rows import Lists, without_deleted
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.join.batches import load_batches


@settings(deadline=None)
@given(data=st.data())
def test_rows_that_are_left_keep_their_order(data: Any) -> None:
    sizes = np.array(data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=5)), np.int64)
    n, row_bytes = int(sizes.sum()), data.draw(st.integers(1, 9))
    ids = np.random.default_rng(n).permutation(n).astype(np.uint32)
    gone = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
    # Between lists lie bytes of no list.
    at = np.concatenate([[0], np.cumsum(sizes * row_bytes + 3)[:-1]]).astype(np.int64)
    memory = np.random.default_rng(1).integers(0, 256, n * row_bytes + 3 * len(sizes)).astype(np.uint8)
    before, names = memory.copy(), np.arange(len(sizes), dtype=np.uint32)
    bits = np.packbits(gone, bitorder="little")
    left = without_deleted(Lists(memory, names, sizes, at, ids.copy()), bits, row_bytes)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    np.testing.assert_array_equal(left.ids, ids[~gone[ids]])
    for e, (first, size) in enumerate(zip(at, sizes, strict=True)):
        kept = ~gone[ids[starts[e] : starts[e + 1]]]
        rows = before[first : first + size * row_bytes].reshape(size, row_bytes)[kept]
        assert left.sizes[e] == len(rows)
        np.testing.assert_array_equal(memory[first : first + rows.size], rows.ravel())
        end = first + size * row_bytes
        np.testing.assert_array_equal(memory[end : end + 3], before[end : end + 3])


def peak_of(index: Path) -> int:
    """Load all batches; return the most memory that was held."""
    files = IvfFiles(index)
    tracemalloc.start()
    try:
        for _ in load_batches(files, [0]):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_deletions_take_a_bit_a_vector(tmp_path: Path) -> None:
    n = 100_000
    vectors = make_vectors("uint8", n)
    index = build_lists(tmp_path / "ix", vectors, lists=8, batch_vectors=n)
    before = peak_of(index)
    indexmill.delete(index, range(0, n, 2), by="vector")
    peak_of(index)  # compiles
    assert IvfFiles(index).deleted.nbytes == n // 8
    # Arrays of the rows would take a byte each or more.
    assert peak_of(index) < before + n // 2
