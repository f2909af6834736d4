"""Plans of appends to inverted lists after a merge: the batches that it makes are told before they are there."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.lists import LISTS, build
from tests.support.indexes.lsh import clusters

import indexmill
from indexmill.builders.cluster.closure import cell_sizes
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.append.lists.batches import Batches, planned
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.update.batches import merged as merged_batches
from indexmill.pipeline.update.given import Given
from indexmill.pipeline.update.plan import plan_update
from indexmill.pipeline.update.source import OutlinedSource
from indexmill.pipeline.update.spec import UpdateSpec

VECTORS = clusters(1200, 64)


def kept_of(batches: Batches, lists: OpenedLists, labels: np.ndarray[Any, Any]) -> int:
    shared = lists.files.centroids
    return batches.kept(len(labels), cell_sizes(labels, shared.n_lists), shared.row_bytes)


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
        batches = merged_batches([first, second], [] if seed is None else [1], first, rows.astype(np.float64))
        indexmill.merge(*parts, out=tmp_path / "merged", workers=1)
        with OpenedLists(tmp_path / "merged") as merged:
            assert list(batches.vectors) == merged.files.batch_sizes()
            assert batches.most == merged.most_vectors
            labels = np.arange(5, dtype=np.uint32)[:, None]
            assert kept_of(batches, merged, labels) == planned(merged, labels).kept


def test_a_plan_that_is_refused_has_held_nothing_by_vector(tmp_path: Path) -> None:
    index, n = build(tmp_path / "ix", VECTORS[:1000], batch_vectors=None), 20_000_000
    spec = UpdateSpec.model_validate({"base": str(index), "add": "any.npy", "workers": 1, "memory": "1GiB"})
    many = Given(lambda names: OutlinedSource(VECTORS[1000:], n), None)
    tracemalloc.start()
    try:
        with pytest.raises(BudgetError, match="memory: step append takes"):
            plan_update(spec, many)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n
