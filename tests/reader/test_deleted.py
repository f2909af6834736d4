"""Recall of graphs with deletions, which are searched through what was deleted."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.clusters import Clustered

import indexmill
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index


@pytest.mark.parametrize("share", [0.1, 0.4, 0.6, 0.9, 0.995])
def test_what_is_left_is_found_as_before(clustered: Clustered, tmp_path: Path, share: float) -> None:
    index = shutil.copytree(clustered.path, tmp_path / "ix")
    gone = np.random.default_rng(5).permutation(5000)[: int(5000 * share)]
    indexmill.delete(index, gone, by="vector")
    left = np.ones(5000, bool)
    left[gone] = False
    opened, whole = Index(index), Index(clustered.path)
    for policy in POLICIES:
        before = whole.search(clustered.queries[:300], 10, L=20, policy=policy)
        found = opened.search(clustered.queries[:300], 10, L=20, policy=policy)
        assert (found.vector_ids >= 0).all()
        assert left[found.vector_ids].all()
        assert clustered.recall(found, left) >= clustered.recall(before) - 0.01
    awaited = asyncio.run(opened.search_async(clustered.queries[:300], 10, L=20, policy=POLICIES[-1]))
    np.testing.assert_array_equal(awaited.vector_ids, found.vector_ids)
    half = np.arange(5000) % 2 == 0
    filtered = opened.search(clustered.queries[:50], 5, L=40, allow=half)
    there = filtered.vector_ids[filtered.vector_ids >= 0]
    assert (left & half)[there].all()
    assert len(there) == 50 * min(5, int((left & half).sum()))


def test_a_search_past_deletions_reads_no_more_than_a_list_longer_by_their_share(
    clustered: Clustered, tmp_path: Path
) -> None:
    index = shutil.copytree(clustered.path, tmp_path / "ix")
    indexmill.delete(index, range(0, 5000, 10), by="vector")
    left = np.arange(5000) % 10 > 0
    before = Index(clustered.path).search(clustered.queries[:300], 10, L=72)  # 64 / 0.9 are 71.1
    found = Index(index).search(clustered.queries[:300], 10, L=64)
    assert found.counters["pages_read"].mean() <= before.counters["pages_read"].mean()
    assert clustered.recall(found, left) >= clustered.recall(before) - 0.01
    assert Index(index).native.memory_bytes - Index(clustered.path).native.memory_bytes == -(-5000 // 64) * 8
