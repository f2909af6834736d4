"""Indexes whose user ids were never unique: only what a new vector or another index has in common with them counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.damage import reseal
from tests.support.indexes.deleted import DIM, KINDS, LISTS
from tests.support.indexes.lsh import FIXED

import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.index.ids import read_ids, write_ids

N = 90
VECTORS = np.random.default_rng(8).integers(0, 60, (N, DIM)).astype(np.uint8)
NEW = np.random.default_rng(9).integers(0, 60, (4, DIM)).astype(np.uint8)
#: Each three times: the vector with vector id i has the id i // 3.
IDS = np.arange(N) // 3


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def build(kind: str, out: Path, vectors: np.ndarray, ids: np.ndarray) -> Path:
    """Build an index with these user ids, which a build would refuse."""
    np.save(out.with_suffix(".npy"), VECTORS[:LISTS].astype(np.float32))
    how = {"ivf": {"centroids": str(out.with_suffix(".npy"))}, "lsh": FIXED}.get(kind, {})
    indexmill.build(vectors, out, ids=np.arange(len(vectors)), **{**KINDS[kind], **how, "workers": 1})
    vector_ids, _ = read_ids(out / "ids.imx")
    write_ids(out / "ids.imx", vector_ids, pa.array(ids[vector_ids], pa.int64()))
    reseal(out)
    return out


def test_an_append_names_the_id_that_is_there_already(kind: str, tmp_path: Path) -> None:
    index = build(kind, tmp_path / "ix", VECTORS, IDS)
    with pytest.raises(InputError, match=r"id 7 is not unique: .*ix row 21 and <array> row 1;"):
        indexmill.append(index, NEW, ids=[100, 7, 101, 2])
    indexmill.delete(index, [21], by="vector")
    with pytest.raises(InputError, match=r"id 7 is not unique: .*ix row 22 and <array> row 1;"):
        indexmill.append(index, NEW, ids=[100, 7, 101, 2])
    opened = indexmill.append(index, NEW, ids=[100, 101, 102, 103])
    assert len(opened) == N + 4


def test_a_replacement_deletes_all_vectors_of_its_ids(kind: str, tmp_path: Path) -> None:
    index = build(kind, tmp_path / "ix", VECTORS, IDS)
    opened: Any = indexmill.append(index, NEW, ids=[100, 7, 101, 2], replace=True)
    assert (len(opened), opened.n_deleted) == (N + 4, 6)
    assert opened.vector_ids_of([7, 2, 100]).tolist() == [N + 1, N + 3, N]
    with pytest.raises(InputError, match=r"id 9 is not unique: <array> row 0 and <array> row 1"):
        indexmill.append(index, NEW[:2], ids=[9, 9], replace=True)


def test_a_merge_compares_ids_of_one_index_with_those_of_others_alone(kind: str, tmp_path: Path) -> None:
    index = build(kind, tmp_path / "ix", VECTORS, IDS)
    meeting = build(kind, tmp_path / "meeting", VECTORS[:40], np.r_[np.arange(38) // 2 + 200, 11, 5])
    with pytest.raises(InputError, match=r"id 11 is not unique: .*ix row 33 and .*meeting row 38;"):
        indexmill.merge(index, meeting)
    indexmill.delete(meeting, [38, 39], by="vector")
    assert len(indexmill.merge(index, meeting)) == N + 38
    assert indexmill.delete(index, [3, 200])["deleted"] == 5
