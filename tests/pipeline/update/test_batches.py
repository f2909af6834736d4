"""Plans of appends to inverted lists: which batches stay is told by sizes alone, as the append decides it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.indexes.lists import LISTS, build
from tests.support.indexes.lsh import clusters

import indexmill
from indexmill.builders.cluster.closure import cell_sizes
from indexmill.pipeline.append.lists.batches import planned
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.update.batches import Batches

VECTORS = clusters(1200, 64)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("batches") / "ix", VECTORS[:1000])


def kept_of(batches: Batches, lists: OpenedLists, labels: np.ndarray[Any, Any]) -> int:
    shared = lists.files.centroids
    return batches.kept(len(labels), cell_sizes(labels, shared.n_lists), shared.row_bytes)


@settings(max_examples=40, deadline=None)
@given(added=st.integers(1, 160), first=st.integers(0, LISTS - 1), seed=st.integers(0, 99))
def test_the_batches_stay_that_an_append_keeps(index: Path, added: int, first: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(first, LISTS, (added, 1)).astype(np.uint32)
    with OpenedLists(index) as lists:
        batches, plan = Batches.of(lists), planned(lists, labels)
        kept = kept_of(batches, lists, labels)
    assert kept == plan.kept
    assert sum(batches.vectors[:kept]) == plan.bounds[0]


#: Batches of both indexes of a merge, vectors of the first that are deleted, and whether the second has other lists.
MERGES: dict[str, dict[str, Any]] = {
    "large batches": {},
    "small batches": {"batch_vectors": 150},
    "deleted": {"batch_vectors": 150, "deleted": 90},
    "assigned anew": {"batch_vectors": 150, "deleted": 90, "seed": 5},
}


@pytest.mark.parametrize("case", MERGES)
def test_an_append_after_a_merge_finds_the_batches_of_the_merge(case: str, tmp_path: Path) -> None:
    """Where the batch of the first index stays, an append of a few vectors writes these alone."""
    what = dict(MERGES[case])
    deleted, seed = what.pop("deleted", 0), what.pop("seed", None)
    np.save(tmp_path / "centroids.npy", VECTORS[:: 1200 // LISTS][:LISTS])
    shared = {"centroids": str(tmp_path / "centroids.npy")}
    how = {"batch_vectors": None, **what}
    parts = [
        build(tmp_path / "first", VECTORS[:800], **how, **shared),
        build(tmp_path / "second", VECTORS[800:], **how, **(shared if seed is None else {"seed": seed})),
    ]
    if deleted:
        indexmill.delete(parts[0], np.arange(deleted), by="vector")
    with OpenedLists(parts[0]) as first, OpenedLists(parts[1]) as second:
        rows = np.sum([Batches.of(first).rows(at) for at in range(len(first.files.batches))], axis=0)
        batches = Batches.merged([first, second], [] if seed is None else [1], first, rows.astype(np.float64))
        indexmill.merge(*parts, out=tmp_path / "merged", workers=1)
        with OpenedLists(tmp_path / "merged") as merged:
            assert list(batches.vectors) == merged.files.batch_sizes()
            assert batches.most == merged.most_vectors
            labels = np.arange(5, dtype=np.uint32)[:, None]
            assert kept_of(batches, merged, labels) == planned(merged, labels).kept
