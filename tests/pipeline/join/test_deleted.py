"""Batches are loaded without deleted vectors, for a bit a vector; deletions do not disturb a join under way."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.indexes.ivf import build_lists, join, make_vectors, result

import indexmill
from indexmill.builders.lists.rows import Lists, without_deleted
from indexmill.formats.errors import ConfigError
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.join.batches import load_batches
from indexmill.pipeline.join.options import JoinOptions
from indexmill.pipeline.join.platform import Worker
from indexmill.pipeline.join.run import run_join
from indexmill.pipeline.mill.progress import Silent


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


class Calling(Silent):
    """Calls something once a join begins to search batches."""

    def __init__(self, change: Callable[[], Any]) -> None:
        self._change = change

    def start(self, stage: str, total: int, unit: str) -> None:
        """See `Progress`."""
        if stage == "join":
            self._change()


@pytest.mark.parametrize("workers", [(), (Worker("one"), Worker("other"))], ids=["tasks", "platform"])
def test_a_join_goes_on_over_the_generation_that_it_began_with(
    tmp_path: Path, workers: tuple[Worker, ...]
) -> None:
    queries, index = make_vectors("uint8", 20, seed=9), build_lists(tmp_path / "ix", make_vectors("uint8"))
    indexmill.delete(index, range(100), by="vector")
    out, options = tmp_path / "r.parquet", JoinOptions(10, 4, platform=workers)
    join(index, queries, out)
    before = result(out, 20, 10)
    deletes = Calling(lambda: indexmill.delete(index, range(100, 2000), by="vector"))
    run_join(queries, index, out, options, progress=deletes)
    np.testing.assert_array_equal(result(out, 20, 10), before)
    generations = []
    for _ in range(2):
        about = json.loads(pq.read_metadata(out).metadata[b"indexmill.join"])
        assert about["index"] == IvfFiles(index).manifest.build_id
        generations.append(about["generation"])
        join(index, queries, out)
    assert generations == [2, 3]
    assert not np.array_equal(result(out, 20, 10)[0], before[0])


def test_a_join_of_a_generation_that_gc_removes_says_so(tmp_path: Path) -> None:
    queries, index = make_vectors("uint8", 20, seed=9), build_lists(tmp_path / "ix", make_vectors("uint8"))
    indexmill.delete(index, range(100), by="vector")

    def change() -> None:
        indexmill.delete(index, range(100, 200), by="vector")
        indexmill.gc(index)

    with pytest.raises(ConfigError, match=r"changed since the join began; .*deleted-000002\.imx"):
        run_join(queries, index, tmp_path / "r.parquet", JoinOptions(10, 4), progress=Calling(change))
