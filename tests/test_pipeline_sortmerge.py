"""The external sort-merge gives back every record once, in order, whatever the chunks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.pipeline.sortmerge import even_bounds, merge_partition, write_chunk


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 80), st.integers(1, 4), st.integers(1, 7), st.integers(1, 5), st.integers(0, 2**31))
def test_merge_equals_one_big_sort(
    tmp_path_factory: pytest.TempPathFactory, m: int, n_chunks: int, partitions: int, width: int, seed: int
) -> None:
    directory = tmp_path_factory.mktemp("chunks")
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 20, m).astype(np.uint32)
    values = rng.permutation(m).astype(np.uint32)
    payload = rng.integers(0, 2**32, (m, width), dtype=np.uint32)
    bounds = even_bounds(20, partitions)
    chunks = [directory / f"{i}.arrow" for i in range(n_chunks)]
    for i, chunk in enumerate(chunks):
        mine = slice(i, None, n_chunks)
        write_chunk(chunk, keys[mine], values[mine], payload[mine], bounds)
    merged = [merge_partition(chunks, p, np.dtype(np.uint32)) for p in range(partitions)]
    order = np.lexsort((values, keys))
    np.testing.assert_array_equal(np.concatenate([part[0] for part in merged]), keys[order])
    np.testing.assert_array_equal(np.concatenate([part[1] for part in merged]), values[order])
    np.testing.assert_array_equal(np.concatenate([part[2] for part in merged]), payload[order])


def test_chunk_files_are_the_same_for_any_order_of_records(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    keys, values = rng.integers(0, 9, 50).astype(np.uint32), np.arange(50, dtype=np.uint32)
    payload = rng.normal(size=(50, 3)).astype(np.float32)
    shuffled = rng.permutation(50)
    write_chunk(tmp_path / "a", keys, values, payload, [0, 5, 9])
    write_chunk(tmp_path / "b", keys[shuffled], values[shuffled], payload[shuffled], [0, 5, 9])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
