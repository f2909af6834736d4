"""`append` to inverted lists: answers, batches that are shared, drift, refusals."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.oracles.files.verify import verify_index
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.ivf import join, result

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, CorruptFile, InputError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.ivf.index import IvfFiles

N, DIM, LISTS = 400, 12, 7
SMALL: dict[str, Any] = {"kind": "ivf", "lists": LISTS, "batch_vectors": 150, "workers": 1}
CODECS: list[dict[str, Any]] = [
    {"codec": "flat"},
    {"codec": "flat", "copies": 3},
    {"codec": "sq8"},
    {"codec": "pq", "pq_bytes": 4},
    {"codec": "pq", "pq_bytes": 4, "keep_vectors": True, "copies": 2},
    {"codec": "rabitq", "code_bits": 4},
    {"codec": "pq", "pq_bytes": 5, "pq_rotation": "opq", "copies": 2},
]


def points(n: int, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(5, DIM))[rng.integers(0, 5, n)] + rng.normal(0, 0.3, (n, DIM))).astype(
        np.float32
    )


OLD, NEW = points(N, 1), points(90, 1)[50:]
BOTH = np.concatenate([OLD, NEW])


def build(out: Path, vectors: NDArray[Any] = OLD, **how: Any) -> Path:
    indexmill.build(vectors, out, **{**SMALL, **how})
    return out


def nearest(vectors: NDArray[Any], queries: NDArray[Any], k: int, metric: str = "l2") -> NDArray[np.int64]:
    a, b = vectors.astype(np.float64), queries.astype(np.float64)
    if metric == "l2":
        keys = ((a[None] - b[:, None]) ** 2).sum(axis=2)
    else:
        keys = -(b @ a.T) / (1 if metric == "ip" else np.linalg.norm(a, axis=1))
    return np.argsort(keys, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_new_vectors_are_found_beside_old_ones(tmp_path: Path, codec: dict[str, Any], metric: str) -> None:
    both = BOTH.copy()
    both[3] *= 4  # no appended vector is longer
    index = build(tmp_path / "ix", both[:N], metric=metric, **codec)
    opened = indexmill.append(index, both[N:])
    assert_sound(index)
    assert len(opened) == len(both)
    queries = both[::9]
    found = opened.search(queries, 10, nprobe=LISTS).vector_ids
    wanted = nearest(both, queries, 10, metric)
    if codec["codec"] == "flat":
        np.testing.assert_array_equal(found, wanted)
        join(index, queries, tmp_path / "join.parquet", k=10, nprobe=LISTS)
        np.testing.assert_array_equal(result(tmp_path / "join.parquet", len(queries), 10)[0], wanted)
    else:  # as well as an index of all vectors
        rebuilt: Any = indexmill.open(build(tmp_path / "all", both, metric=metric, **codec))
        again = rebuilt.search(queries, 10, nprobe=LISTS).vector_ids
        recalls = [
            np.mean([len({*a} & {*b}) for a, b in zip(got, wanted, strict=True)]) for got in (found, again)
        ]
        assert recalls[0] > recalls[1] - 0.8


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
def test_every_input_type_is_appended(tmp_path: Path, dtype: str) -> None:
    both = (
        np.rint(BOTH * 20 + (100 if dtype == "uint8" else 0))
        .clip(0 if dtype == "uint8" else -128, 127)
        .astype(dtype)
    )
    index = build(tmp_path / "ix", both[:N])
    opened = indexmill.append(index, both[N:])
    assert_sound(index)
    found = opened.search(both[N:], 1, nprobe=LISTS)
    np.testing.assert_array_equal(((both[found.vector_ids[:, 0]] == both[N:]).all(axis=1)), True)


def test_batches_of_a_build_are_shared_and_not_rewritten(tmp_path: Path) -> None:
    index = build(tmp_path / "ix")
    before, built = data_files(index), read_manifest(index, ("ivf",))
    inodes = [os.stat(index / f"batch-{i:06d}.imx").st_ino for i in range(2)]
    indexmill.append(index, NEW)
    after, manifest = data_files(index), read_manifest(index, ("ivf",))
    for i in range(2):
        name = f"batch-{i:06d}.imx"
        assert after[name] == before[name]
        assert os.stat(index / name).st_ino == inodes[i]
    entries = {entry.name: entry.build_id for entry in manifest.files}
    assert entries["batch-000000.imx"] == entries["batch-000001.imx"] == built.build_id[:32]
    assert entries["batch-000002.imx"] is None  # the last batch had room: 100 of 150
    assert manifest.ivf["batches"] == [150, 150, 140]
    assert (manifest.generation, manifest.parents) == (2, (built.build_id,))
    assert b'"major": 3' in after["manifest.json"]
    indexmill.append(index, points(600, 3)[500:])
    entries = {entry.name: entry.build_id for entry in read_manifest(index, ("ivf",)).files}
    assert entries["batch-000000.imx"] == built.build_id[:32]
    assert entries["batch-000002.imx"] == manifest.build_id[:32]
    assert read_manifest(index, ("ivf",)).ivf["batches"] == [150, 150, 140, 100]
    assert_sound(index)
    assert indexmill.upgrade(index)["generation"] == 3  # the format is the present one: nothing was done


def test_a_batch_of_another_build_is_refused(tmp_path: Path) -> None:
    index, other = build(tmp_path / "ix"), build(tmp_path / "other", seed=2)
    indexmill.append(index, NEW)
    shutil.copyfile(other / "batch-000000.imx", tmp_path / "batch")
    raw = bytearray((index / "batch-000000.imx").read_bytes())
    os.unlink(index / "batch-000000.imx")
    raw[4096 + 40] ^= 1
    (index / "batch-000000.imx").write_bytes(raw)
    assert any("batch-000000.imx" in problem for problem in verify_index(index))
    shutil.copyfile(tmp_path / "batch", index / "batch-000000.imx")
    files = IvfFiles(index)
    with pytest.raises(CorruptFile, match="build id"):
        files.open_batch(0)


def test_ten_small_appends_leave_few_batches_and_the_answers_of_one(tmp_path: Path) -> None:
    more = points(300, 4)
    index = build(tmp_path / "ix", batch_vectors=10_000)
    for first in range(0, 300, 30):
        indexmill.append(index, more[first : first + 30])
    assert_sound(index)
    assert len(read_manifest(index, ("ivf",)).ivf["batches"]) <= 3
    both = np.concatenate([OLD, more])
    opened: Any = indexmill.open(index)
    found = opened.search(both[::11], 10, nprobe=LISTS).vector_ids
    np.testing.assert_array_equal(found, nearest(both, both[::11], 10))


def test_a_large_append_makes_batches_of_the_size_that_the_job_asked_for(tmp_path: Path) -> None:
    more = points(700, 5)
    index = build(tmp_path / "ix", copies=2)
    indexmill.append(index, more)
    assert_sound(index)
    assert read_manifest(index, ("ivf",)).ivf["batches"] == [150, 150, 100, 150, 150, 150, 150, 100]
    both = np.concatenate([OLD, more])
    opened: Any = indexmill.open(index)
    found = opened.search(both[::17], 10, nprobe=LISTS).vector_ids
    np.testing.assert_array_equal(found, nearest(both, both[::17], 10))


def test_the_same_input_gives_the_same_bytes_for_any_workers(tmp_path: Path) -> None:
    old = build(tmp_path / "old", codec="pq", pq_bytes=4)
    made = []
    for workers in (1, 3):
        indexmill.append(old, NEW, out=tmp_path / f"out{workers}", workers=workers)
        made.append(data_files(tmp_path / f"out{workers}"))
    assert made[0] == made[1]
    assert read_manifest(old, ("ivf",)).generation == 1


def test_user_ids_and_metadata_follow(tmp_path: Path) -> None:
    def table(vectors: NDArray[Any], first: int) -> pa.Table:
        n = range(first, first + len(vectors))
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
        return pa.table({"sku": [f"s{i}" for i in n], "price": [float(i) for i in n], "v": rows})

    pq.write_table(table(OLD, 0), tmp_path / "old.parquet")
    pq.write_table(table(NEW, N), tmp_path / "new.parquet")
    index = tmp_path / "ix"
    indexmill.build(tmp_path / "old.parquet", index, id_column="sku", metadata_columns=["price"], **SMALL)
    opened = indexmill.append(index, tmp_path / "new.parquet", id_column="sku")
    assert opened.search(NEW[:9], 1, nprobe=LISTS).ids[:, 0].tolist() == [f"s{N + i}" for i in range(9)]
    assert pq.read_table(index / "metadata.parquet")["price"].to_pylist() == [
        float(i) for i in range(len(BOTH))
    ]
    assert_sound(index)
    indexmill.export(index, "parquet", tmp_path / "table")
    assert pq.read_metadata(tmp_path / "table" / "vectors.parquet").num_rows == len(BOTH)


def test_drift_tells_vectors_that_centroids_do_not_suit(tmp_path: Path) -> None:
    index = build(tmp_path / "ix")
    indexmill.append(index, points(100, 1)[50:], out=tmp_path / "alike")
    alike = read_manifest(tmp_path / "alike", ("ivf",)).ivf["drift"]
    assert alike["built_vectors"] == N
    assert alike["added_share"] == round(50 / 450, 6)
    assert 0.9 < alike["distance_ratio"] < 1.1
    indexmill.append(index, -2 * NEW, out=tmp_path / "other")
    other = read_manifest(tmp_path / "other", ("ivf",)).ivf["drift"]
    assert other["rebuild"]
    assert other["distance_ratio"] > 1.5
    assert "times as far from their centroids" in other["advice"]
    assert other["distance_built"] == alike["distance_built"]
    indexmill.append(tmp_path / "alike", -2 * NEW)
    mixed = read_manifest(tmp_path / "alike", ("ivf",)).ivf["drift"]
    assert alike["distance_ratio"] < mixed["distance_ratio"] < other["distance_ratio"]
    assert mixed["distance_built"] == alike["distance_built"]
    same = np.repeat(OLD[:1], 400, axis=0)
    indexmill.append(index, same)
    assert "uneven" in read_manifest(index, ("ivf",)).ivf["drift"]["advice"]


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", ids=[f"s{i}" for i in range(N)])
    before = data_files(index)
    ids = [f"n{i}" for i in range(len(NEW))]
    with pytest.raises(InputError, match=r"dimension 11; expected 12"):
        indexmill.append(index, NEW[:, 1:], ids=ids)
    with pytest.raises(InputError, match=r"id type none; expected string"):
        indexmill.append(index, NEW)
    with pytest.raises(InputError, match=r"id type int64; expected string"):
        indexmill.append(index, NEW, ids=np.arange(len(NEW)))
    with pytest.raises(InputError, match=r"dtype uint8; expected float32"):
        indexmill.append(index, NEW.astype(np.uint8), ids=ids)
    with pytest.raises(InputError, match=r"id 's7' is not unique: .*ix row 7 and <array> row 0"):
        indexmill.append(index, NEW, ids=["s7", *ids[1:]])
    with pytest.raises(InputError, match=r"id 'n1' is not unique: <array> row 0 and <array> row 1"):
        indexmill.append(index, NEW, ids=["n1", *ids[1:]], replace=True)
    with pytest.raises(BudgetError, match=r"400 vectors and 40 more take"):
        indexmill.append(index, NEW, ids=ids, memory="1MiB")
    bad = NEW.copy()
    bad[5, 2] = np.nan
    with pytest.raises(InputError, match=r"row 5: component 2 is nan"):
        indexmill.append(index, bad, ids=ids)
    assert data_files(index) == before
    plain = build(tmp_path / "plain", metric="ip")
    with pytest.raises(InputError, match=r"row 0: norm .* under inner product"):
        indexmill.append(plain, 50 * NEW)
    with pytest.raises(ConfigError, match=r"replace: .*plain has no user ids"):
        indexmill.append(plain, NEW / 10, replace=True)
    with pytest.raises(InputError, match=r"row 0: component \d+ is .*; sq8 lists of .* hold"):
        indexmill.append(build(tmp_path / "sq8", codec="sq8"), 50 * NEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ix", "plain", "sq8"]


def test_a_component_just_outside_the_range_of_sq8_is_told(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", codec="sq8")
    low, high = OLD.min(axis=0), OLD.max(axis=0)
    more = NEW.clip(low, high)
    more[0] = high + 0.05 * (high - low)
    indexmill.append(index, more)
    assert read_manifest(index, ("ivf",)).ivf["drift"]["clipped_share"] == round(1 / len(more), 6)
    assert_sound(index)
