"""`compact` of inverted lists: rows of what is left keep their bytes and lists, and all of them are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.compacted import assert_same_bytes
from tests.support.indexes.lists import LISTS, build, rows_of
from tests.support.indexes.lsh import clusters

import indexmill
from indexmill.formats.errors import BudgetError, InputError
from indexmill.formats.index.manifest import read_manifest

N, DIM = 700, 12
VECTORS = clusters(N, DIM)
GONE = np.random.default_rng(4).choice(N, 250, replace=False)
LEFT = np.delete(np.arange(N), GONE)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"copies": 3},
        {"codec": "sq8"},
        {"codec": "pq", "pq_bytes": 4, "keep_vectors": True, "copies": 2},
        {"codec": "rabitq", "code_bits": 2, "metric": "ip"},
        {"codec": "pq", "pq_bytes": 5, "pq_rotation": "opq", "copies": 2},
    ],
    ids=str,
)
def test_rows_of_what_is_left_stay_in_their_lists_byte_for_byte(tmp_path: Path, how: dict[str, Any]) -> None:
    index = build(tmp_path / "ix", VECTORS, **how)
    indexmill.append(index, VECTORS[:30] * np.float32(0.9))
    before = rows_of(index)
    indexmill.delete(index, [*GONE, N + 4], by="vector")
    old = indexmill.open(index)
    found = old.search(VECTORS[:5], 5, nprobe=LISTS).vector_ids
    opened: Any = indexmill.compact(index)
    left = np.r_[LEFT, N : N + 4, N + 5 : N + 30]
    assert (len(opened), opened.n_deleted) == (len(left), 0)
    new = {int(old): i for i, old in enumerate(left)}
    expected = {(cell, new[vector]): row for (cell, vector), row in before.items() if vector in new}
    assert rows_of(index) == expected
    np.testing.assert_array_equal(old.search(VECTORS[:5], 5, nprobe=LISTS).vector_ids, found)
    assert_sound(index)
    manifest = read_manifest(index, ("ivf",))
    drift = manifest.ivf["drift"]
    assert (drift["built_vectors"], drift["added_vectors"], drift["removed_vectors"]) == (len(LEFT), 29, 251)
    assert b'"major": 1' in data_files(index)["manifest.json"]  # nothing is shared with the generation before
    if not how:
        near = ((VECTORS[LEFT][:, None] - VECTORS[:6]) ** 2).sum(axis=2).argsort(axis=0, kind="stable")[:1].T
        assert (opened.search(VECTORS[:6], 1, nprobe=LISTS).vector_ids == near).mean() > 0.5


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"copies": 3},
        {"codec": "pq", "pq_bytes": 4, "keep_vectors": True, "copies": 2},
        {"codec": "rabitq", "code_bits": 2, "keep_vectors": True},
        {"codec": "pq", "pq_bytes": 5, "pq_rotation": "opq", "keep_vectors": True},
    ],
    ids=str,
)
def test_the_certificate_is_that_of_a_build_of_what_is_left(tmp_path: Path, how: dict[str, Any]) -> None:
    np.save(tmp_path / "centroids.npy", VECTORS[::100])
    how = {"kind": "ivf", "batch_vectors": 150, "centroids": str(tmp_path / "centroids.npy"), **how}
    indexmill.build(VECTORS, tmp_path / "ix", **how)
    indexmill.build(VECTORS[LEFT], tmp_path / "whole", **how)
    before = read_manifest(tmp_path / "ix", ("ivf",)).certificate
    indexmill.delete(tmp_path / "ix", GONE, by="vector")
    indexmill.compact(tmp_path / "ix")
    after = read_manifest(tmp_path / "ix", ("ivf",)).certificate
    assert after == read_manifest(tmp_path / "whole", ("ivf",)).certificate
    assert after != before


@pytest.mark.parametrize(
    "how", [{}, {"codec": "pq", "pq_bytes": 4, "keep_vectors": True, "copies": 2}], ids=str
)
def test_the_same_bytes_for_any_workers_and_memory(tmp_path: Path, how: dict[str, Any]) -> None:
    index = build(tmp_path / "ix", VECTORS, **how)
    indexmill.delete(index, GONE, by="vector")
    assert_same_bytes(index)


def test_codes_without_vectors_keep_the_certificate_of_the_build(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", VECTORS, codec="sq8")
    before = read_manifest(index, ("ivf",)).certificate
    indexmill.delete(index, GONE, by="vector")
    indexmill.compact(index)
    assert read_manifest(index, ("ivf",)).certificate == before is not None


def test_batches_that_got_small_become_one(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", VECTORS)
    assert read_manifest(index, ("ivf",)).ivf["batches"] == [150, 150, 150, 150, 100]
    indexmill.delete(index, np.r_[0:100, 150:300, 310:600], by="vector")
    indexmill.compact(index)
    assert read_manifest(index, ("ivf",)).ivf["batches"] == [60, 100]
    indexmill.append(index, VECTORS[:20])
    assert_sound(index)


def test_batches_hold_as_many_vectors_as_the_job_allows_after_a_compaction(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", clusters(1000, DIM), batch_vectors=200)
    indexmill.delete(index, np.arange(850), by="vector")
    indexmill.compact(index)
    for seed in range(3):
        indexmill.append(index, clusters(150, DIM, seed))
    indexmill.delete(index, np.arange(10), by="vector")
    indexmill.compact(index)
    indexmill.append(index, clusters(150, DIM, 4))
    assert read_manifest(index, ("ivf",)).ivf["batches"] == [140, 150, 150, 150, 150]
    one = build(tmp_path / "one", clusters(300, DIM), batch_vectors=300)
    indexmill.delete(one, np.arange(50), by="vector")
    indexmill.compact(one)
    indexmill.append(one, clusters(100, DIM, 5))
    assert read_manifest(one, ("ivf",)).ivf["batches"] == [350]


def test_drift_of_an_index_without_appends_says_what_went(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", VECTORS)
    indexmill.delete(index, GONE, by="vector")
    indexmill.compact(index)
    drift = read_manifest(index, ("ivf",)).ivf["drift"]
    assert (drift["distance_added"], drift["distance_ratio"], drift["added_share"]) == (None, None, 0)
    indexmill.append(index, VECTORS[:40])
    drift = read_manifest(index, ("ivf",)).ivf["drift"]
    assert (drift["added_vectors"], drift["removed_vectors"]) == (40, len(GONE))
    assert drift["distance_ratio"] == pytest.approx(1, abs=0.2)


def test_ids_and_metadata_of_what_is_left_stay(tmp_path: Path) -> None:
    prices, names = pa.table({"price": np.arange(N, dtype=np.float64)}), [f"s{i}" for i in range(N)]
    index = build(tmp_path / "ix", VECTORS, ids=names, metadata=prices)
    indexmill.delete(index, [names[i] for i in GONE])
    with pytest.raises(BudgetError, match="lists take"):
        indexmill.compact(index, memory="1MiB")
    opened = indexmill.compact(index, out=tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "metadata.parquet")["price"].to_pylist() == LEFT.tolist()
    found = opened.search(VECTORS[LEFT[:9]], 1, nprobe=LISTS).ids[:, 0].tolist()
    assert found == [names[i] for i in LEFT[:9]]
    assert read_manifest(index, ("ivf",)).n_deleted == len(GONE)
    assert_sound(tmp_path / "out")


def test_an_empty_index_is_refused(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", VECTORS)
    indexmill.delete(index, np.arange(N), by="vector")
    before = data_files(index)
    with pytest.raises(InputError, match="all 700 vectors were deleted"):
        indexmill.compact(index)
    assert data_files(index) == before


def test_without_deletions_another_output_gets_a_copy(tmp_path: Path) -> None:
    index, out = build(tmp_path / "ix", VECTORS), tmp_path / "out"
    indexmill.append(index, VECTORS[:30])  # whose batches have several build ids
    assert len(indexmill.compact(index, out=out)) == N + 30
    assert data_files(out) == data_files(index)
    assert_sound(out)
