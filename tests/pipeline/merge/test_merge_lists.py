"""`merge` of inverted lists: rows keep their lists and bytes, or vectors are assigned to those of the largest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.lists import LISTS, build, rows_of
from tests.support.indexes.lsh import clusters

import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.ivf.centroids import read_centroids
from indexmill.pipeline.kinds.common.metric import with_added_component
from indexmill.pipeline.merge.assigned import raised

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
    ("larger", "smaller"),
    [
        ({}, {}),
        ({}, {"lists": 5}),
        ({"copies": 2}, {}),
        ({}, {"copies": 2, "lists": 9}),
        ({"metric": "cosine"}, {"metric": "cosine", "seed": 2}),
        ({}, {"codec": "sq8", "keep_vectors": True}),
        ({}, {"codec": "rabitq", "keep_vectors": True}),
        ({}, {"codec": "pq", "pq_rotation": "opq", "keep_vectors": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 1])
def test_vectors_of_other_lists_are_assigned_to_those_of_the_largest(
    tmp_path: Path, larger: dict[str, Any], smaller: dict[str, Any], at: int
) -> None:
    """Their rows are those of a build with the centroids of the largest, and all are found, whichever comes first."""
    cuts = [(0, 500), (500, 900)] if at == 0 else [(0, 400), (400, 900)]
    two = [
        build(tmp_path / str(i), VECTORS[first:last], **(larger if i == at else smaller))
        for i, (first, last) in enumerate(cuts)
    ]
    indexmill.delete(two[1 - at], np.arange(0, 100, 3), by="vector")
    left = np.delete(np.arange(900), np.arange(0, 100, 3) + cuts[1 - at][0])
    opened: Any = indexmill.merge(*two, out=tmp_path / "all")
    np.save(tmp_path / "own.npy", read_centroids(two[at] / "centroids.imx").centroids)
    whole = build(tmp_path / "built", VECTORS[left], centroids=str(tmp_path / "own.npy"), **larger)
    if larger.get("metric") != "cosine":  # for which given centroids are brought to length 1
        assert rows_of(tmp_path / "all") == rows_of(whole)
    again: Any = indexmill.open(whole)
    found = [one.search(VECTORS[::50], 5, nprobe=LISTS).vector_ids for one in (opened, again)]
    np.testing.assert_array_equal(*found)
    assert_sound(tmp_path / "all")
    merged, base = (read_manifest(path, ("ivf",)) for path in (tmp_path / "all", two[at]))
    assert (merged.parameters, merged.certificate) == (base.parameters, base.certificate)
    drift = merged.ivf["drift"]
    assert (drift["built_vectors"], drift["added_vectors"]) == (500, 366)


@pytest.mark.parametrize("codec", ["flat", "sq8", "pq", "rabitq", "opq"])
def test_under_inner_product_separate_builds_are_merged(tmp_path: Path, codec: str) -> None:
    """Each has another longest vector; all vectors of the result get the longest of all."""
    scaled = np.concatenate([VECTORS[:500], VECTORS[500:700] * 1.05, VECTORS[700:] / 2])
    how: dict[str, Any] = {"metric": "ip", "codec": codec}
    how |= {} if codec == "flat" else {"keep_vectors": True}
    how |= {"pq_bytes": 4} if codec == "pq" else {}
    how |= {"codec": "pq", "pq_rotation": "opq"} if codec == "opq" else {}
    three = [build(tmp_path / str(a), scaled[a:b], **how) for a, b in ((0, 500), (500, 700), (700, 900))]
    opened: Any = indexmill.merge(*three, out=tmp_path / "all")
    assert_sound(tmp_path / "all")
    longest = float(np.sqrt((scaled.astype(np.float64) ** 2).sum(axis=1).max()))
    merged, of_base = (read_centroids(path / "centroids.imx") for path in (tmp_path / "all", three[0]))
    assert merged.max_norm == pytest.approx(longest)
    if codec in ("rabitq", "opq"):  # of which centroids are rotated
        pairs = [one.restored(one.centroids)[:, :-1] for one in (merged, of_base)]
        np.testing.assert_allclose(*pairs, atol=1e-4)
    else:
        np.testing.assert_array_equal(merged.centroids[:, :-1], of_base.centroids[:, :-1])
    queries = VECTORS[::90]
    found = opened.search(queries, 3, nprobe=LISTS, **({} if codec == "flat" else {"rerank": 900}))
    products = queries.astype(np.float64) @ scaled.T.astype(np.float64)
    best = np.argsort(-products, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(np.sort(found.vector_ids), np.sort(best))


def test_centroids_that_are_raised_stay_where_their_vectors_are(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", VECTORS[:500], metric="ip")
    shared = read_centroids(index / "centroids.imx")
    assert raised(shared, shared.max_norm) is shared
    longest = shared.max_norm * 1.1
    before = with_added_component(VECTORS[:500], shared.max_norm)
    after = with_added_component(VECTORS[:500], longest)
    cells = [
        np.argmin(((rows[:, None] - centroids[None]) ** 2).sum(axis=2), axis=1)
        for rows, centroids in ((before, shared.centroids), (after, raised(shared, longest).centroids))
    ]
    assert (cells[0] == cells[1]).mean() > 0.95


def test_a_component_beyond_the_range_of_sq8_is_named(tmp_path: Path) -> None:
    far = VECTORS[500:800].copy()
    far[7, 3] = 1000
    how: dict[str, Any] = {"codec": "sq8", "keep_vectors": True}
    a, b = build(tmp_path / "a", VECTORS[:500], **how), build(tmp_path / "b", far, **how)
    before = data_files(a)
    with pytest.raises(InputError, match=r"b: component 3 of a vector is 1000; sq8 lists of .*a hold"):
        indexmill.merge(a, b)
    assert data_files(a) == before


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"codec": "pq", "pq_bytes": 4}, "other centroids than .*a, and no exact vectors"),
        ({"codec": "pq", "pq_bytes": 3}, "bytes of a row 3; expected 4 as .*a, and no exact vectors"),
        ({"codec": "sq8"}, "codec sq8; expected pq as .*a, and no exact vectors"),
        ({"codec": "pq", "pq_rotation": "opq"}, "codec opq; expected pq as .*a, and no exact vectors"),
        ({"codec": "pq", "keep_vectors": True}, "exact vectors float32; expected none as in"),
        ({}, "exact vectors float32; expected none as in"),
        ({"codec": "pq", "metric": "cosine"}, "metric cosine; expected l2"),
    ],
    ids=str,
)
def test_lists_without_vectors_that_would_have_to_be_assigned_are_refused_by_name(
    tmp_path: Path, how: dict[str, Any], message: str
) -> None:
    a = build(tmp_path / "a", VECTORS[:400], codec="pq", pq_bytes=4)
    b = build(tmp_path / "b", VECTORS[500:800], **how)
    before = data_files(a)
    with pytest.raises(InputError, match=message):
        indexmill.merge(a, b)
    assert data_files(a) == before


def test_ids_metadata_and_batches_of_assigned_vectors_follow(tmp_path: Path) -> None:
    prices = pa.table({"price": np.arange(900.0)})
    parts = [
        build(tmp_path / str(a), VECTORS[a:b], np.arange(a, b) * 3, prices[a:b], seed=a)
        for a, b in ((0, 200), (200, 600), (600, 900))
    ]
    indexmill.delete(parts[2], np.arange(600, 610) * 3)
    opened: Any = indexmill.merge(*parts)
    left = np.r_[0:600, 610:900]
    assert opened.search(VECTORS[left[::70]], 1, nprobe=LISTS).ids[:, 0].tolist() == (left[::70] * 3).tolist()
    assert pq.read_table(parts[0] / "metadata.parquet")["price"].to_pylist() == left.tolist()
    assert read_manifest(parts[0], ("ivf",)).ivf["batches"] == [150, 50, 150, 150, 100, 150, 140]


def test_bytes_do_not_depend_on_workers(tmp_path: Path) -> None:
    two = [build(tmp_path / str(a), VECTORS[a : a + 400], copies=2, seed=a) for a in (0, 400)]
    for workers in (1, 3):
        indexmill.merge(*two, out=tmp_path / f"all-{workers}", workers=workers)
    assert data_files(tmp_path / "all-1") == data_files(tmp_path / "all-3")


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
