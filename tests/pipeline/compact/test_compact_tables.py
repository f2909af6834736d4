"""`compact` of hash tables: the files of a build of the vectors that are left, with the same functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.lsh.verify import lsh_problems
from tests.support.cli import run
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.compacted import assert_same_bytes
from tests.support.indexes.lsh import clusters, contents, fixed, of_metric

import indexmill
from indexmill.formats.errors import InputError, OutputExistsError
from indexmill.formats.index.manifest import read_manifest

N, DIM = 700, 8
VECTORS = clusters(N, DIM)
GONE = np.random.default_rng(4).choice(N, 150, replace=False)
LEFT = np.delete(np.arange(N), GONE)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_a_compaction_writes_the_files_of_a_build_of_what_is_left(tmp_path: Path, metric: str) -> None:
    vectors = VECTORS.copy()
    vectors[LEFT[0]] *= 4  # under inner product the longest vector stays
    index, whole = (
        fixed(tmp_path / "ix", vectors, **of_metric(metric)),
        fixed(tmp_path / "all", vectors[LEFT], **of_metric(metric)),
    )
    indexmill.delete(index, GONE, by="vector")
    before = indexmill.open(index)
    found = before.search(vectors[:5], 5).vector_ids
    opened = indexmill.compact(index)
    assert (len(opened), opened.n_deleted) == (len(LEFT), 0)
    assert contents(index) == contents(whole)
    assert lsh_problems(index) == []
    np.testing.assert_array_equal(before.search(vectors[:5], 5).vector_ids, found)  # its generation goes on
    manifest = read_manifest(index, ("lsh",))
    assert (manifest.generation, manifest.deleted) == (3, None)
    assert manifest.certificate == read_manifest(whole, ("lsh",)).certificate
    drift = manifest.lsh["drift"]
    assert (drift["built_vectors"], drift["added_vectors"], drift["removed_vectors"]) == (
        len(LEFT),
        0,
        len(GONE),
    )
    assert drift["rebuild"] is False


def test_fingerprints_that_get_longer_are_hashed_again(tmp_path: Path) -> None:
    index = fixed(tmp_path / "ix", VECTORS[:300], hash_bits=0)
    indexmill.delete(index, np.arange(0, 300, 3), by="vector")
    indexmill.compact(index)
    left = np.delete(VECTORS[:300], np.arange(0, 300, 3), axis=0)
    assert contents(index) == contents(fixed(tmp_path / "all", left, hash_bits=0))
    assert_sound(index)


@pytest.mark.parametrize("how", [{}, {"hash_bits": 0}], ids=str)
def test_the_same_bytes_for_any_workers_and_memory(tmp_path: Path, how: dict[str, Any]) -> None:
    """Of added tables, too, and where all vectors are hashed again, as here the bits of 255 slots are fewer."""
    index = fixed(tmp_path / "ix", VECTORS[:300], **how)
    indexmill.append(index, VECTORS[300:320])
    indexmill.delete(index, np.arange(65), by="vector")
    assert_same_bytes(index)


def test_ids_and_metadata_of_what_is_left_stay(tmp_path: Path) -> None:
    prices = pa.table({"price": np.arange(N, dtype=np.float64)})
    names = [f"s{i}" for i in range(N)]
    index = fixed(tmp_path / "ix", VECTORS, ids=names, metadata=prices)
    indexmill.delete(index, [names[i] for i in GONE])
    indexmill.append(index, VECTORS[:3] + 1, ids=["a", "b", "c"], metadata=prices[:3])
    opened = indexmill.compact(index, out=tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "metadata.parquet")["price"].to_pylist() == [
        *LEFT.tolist(),
        0,
        1,
        2,
    ]
    found = opened.search(VECTORS[LEFT[:9]], 1).ids[:, 0].tolist()
    assert found == [names[i] for i in LEFT[:9]]
    drift = read_manifest(tmp_path / "out", ("lsh",)).lsh["drift"]
    assert (drift["built_vectors"], drift["added_vectors"], drift["removed_vectors"]) == (
        len(LEFT),
        3,
        len(GONE),
    )
    assert read_manifest(index, ("lsh",)).n_deleted == len(GONE)
    assert_sound(tmp_path / "out")


def test_nothing_is_written_without_deletions_and_an_empty_index_is_refused(tmp_path: Path) -> None:
    index = fixed(tmp_path / "ix", VECTORS)
    before = data_files(index)
    assert len(indexmill.compact(index)) == N
    assert data_files(index) == before
    indexmill.delete(index, np.arange(N), by="vector")
    with pytest.raises(InputError, match="all 700 vectors were deleted"):
        indexmill.compact(index)


def test_the_command_prints_what_went(tmp_path: Path) -> None:
    index = fixed(tmp_path / "ix", VECTORS)
    indexmill.delete(index, GONE, by="vector")
    printed: dict[str, Any] = json.loads(run("compact", index, "--json").stdout)
    assert printed["removed"] == len(GONE)
    assert printed["manifest"]["lsh"]["drift"]["removed_vectors"] == len(GONE)


def test_without_deletions_another_output_gets_a_copy(tmp_path: Path) -> None:
    index, out = fixed(tmp_path / "ix", VECTORS, ids=[f"s{i}" for i in range(N)]), tmp_path / "out"
    opened = indexmill.compact(index, out=out)
    assert data_files(out) == data_files(index)
    assert opened.search(VECTORS[:1], 1).ids[0, 0] == "s0"
    assert_sound(out)
    with pytest.raises(OutputExistsError):
        indexmill.compact(index, out=out)
