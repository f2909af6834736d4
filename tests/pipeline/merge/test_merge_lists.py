"""`merge` of inverted lists with equal centroids: rows keep their lists and bytes; others are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.lists import LISTS, build, rows_of
from tests.support.indexes.lsh import clusters

import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import read_manifest

DIM = 12
VECTORS = clusters(900, DIM)
CENTROIDS = VECTORS[::130][:LISTS]


@pytest.fixture
def given(tmp_path: Path) -> str:
    np.save(tmp_path / "centroids.npy", CENTROIDS)
    return str(tmp_path / "centroids.npy")


@pytest.mark.parametrize("how", [{}, {"copies": 2}, {"metric": "cosine"}], ids=str)
def test_every_row_keeps_its_list_and_all_are_found(tmp_path: Path, given: str, how: dict[str, Any]) -> None:
    three = [
        build(tmp_path / str(first), VECTORS[first : first + 300], centroids=given, **how)
        for first in (0, 300, 600)
    ]
    indexmill.delete(three[1], np.arange(0, 300, 2), by="vector")
    left = np.r_[0:300, 301:600:2, 600:900]
    opened: Any = indexmill.merge(*three, out=tmp_path / "all")
    assert (len(opened), opened.n_deleted) == (750, 0)
    whole = build(tmp_path / "built", VECTORS[left], centroids=given, **how)
    assert rows_of(tmp_path / "all") == rows_of(whole)
    again: Any = indexmill.open(whole)
    queries = VECTORS[::50]
    np.testing.assert_array_equal(
        opened.search(queries, 9, nprobe=3).vector_ids, again.search(queries, 9, nprobe=3).vector_ids
    )
    assert_sound(tmp_path / "all")
    manifest = read_manifest(tmp_path / "all", ("ivf",))
    assert manifest.ivf["batches"] == [150, 150, 150, 150, 150]
    assert manifest.parents == tuple(read_manifest(part, ("ivf",)).build_id for part in three)
    drift = manifest.ivf["drift"]
    assert (drift["built_vectors"], drift["added_vectors"]) == (300, 450)
    assert drift["pages_ratio"] >= 1
    indexmill.append(tmp_path / "all", VECTORS[:10])
    assert_sound(tmp_path / "all")


def test_codes_go_with_the_codebook_that_made_them(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", VECTORS[:300], codec="pq", pq_bytes=4)
    for name, rows in (("a", VECTORS[300:340]), ("b", VECTORS[340:400])):
        indexmill.append(index, rows, out=tmp_path / name)
        indexmill.delete(tmp_path / name, np.arange(300), by="vector")
        indexmill.compact(tmp_path / name)
    before = [rows_of(tmp_path / name) for name in ("a", "b")]
    with pytest.raises(InputError, match="has vectors in common"):
        indexmill.merge(tmp_path / "a", tmp_path / "b")
    indexmill.merge(tmp_path / "a", tmp_path / "b", force=True)
    moved = {(cell, vector + 40): row for (cell, vector), row in before[1].items()}
    assert rows_of(tmp_path / "a") == before[0] | moved
    assert_sound(tmp_path / "a")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "other centroids than"),
        ({"lists": 5}, "lists 5; expected 7"),
        ({"codec": "sq8"}, "codec sq8; expected flat"),
        ({"metric": "cosine"}, "metric cosine; expected l2"),
        ({"copies": 2}, "most lists of a vector 2; expected 1"),
    ],
)
def test_other_lists_are_refused_by_name(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    a, b = build(tmp_path / "a", VECTORS[:300]), build(tmp_path / "b", VECTORS[300:600], **how)
    before = data_files(a)
    with pytest.raises(InputError, match=message):
        indexmill.merge(a, b)
    assert data_files(a) == before


def test_user_ids_of_vectors_that_are_left_may_not_meet(tmp_path: Path, given: str) -> None:
    a, b = (
        build(tmp_path / str(first), VECTORS[first : first + 300], np.arange(300) + shift, centroids=given)
        for first, shift in ((0, 0), (300, 290))
    )
    with pytest.raises(InputError, match="id 290 is not unique"):
        indexmill.merge(a, b)
    indexmill.delete(a, np.arange(290, 300))
    opened: Any = indexmill.merge(a, b)
    found = opened.search(VECTORS[[5, 300, 599]], 1, nprobe=LISTS).ids[:, 0]
    assert found.tolist() == [5, 290, 589]
