"""Refusals of `append`, which change nothing."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.append import DIM, SMALL, append, build, manifest, points
from tests.support.indexes.builds import data_files
from tests.support.indexes.built import Built

import indexmill
from indexmill.formats.errors import (
    BudgetError,
    ConfigError,
    CorruptFile,
    IndexmillError,
    InputError,
    OutputExistsError,
)
from indexmill.formats.graph.index import IndexFiles
from indexmill.pipeline.mill.publish import output_lock

OLD, NEW = points(900, 1), points(200, 2)


@pytest.fixture(scope="module")
def old(built: Built) -> Path:
    return built(build, OLD)


@pytest.fixture(scope="module")
def appended(built: Built, old: Path) -> Path:
    return built(append, old, NEW)


def _save(path: Path, rows: Any) -> Path:
    np.save(path, rows)
    return path


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (points(5, 1)[:, :4].copy(), r"m\.npy: dimension 4; expected 12 as in .*ix; convert the input"),
        (points(5, 1, "uint8"), r"m\.npy: dtype uint8; expected float32 as in"),
        (np.full((3, DIM), np.nan, np.float32), r"m\.npy: row 0: component 0 is nan"),
        (np.empty((0, DIM), np.float32), r"m\.npy: no vectors"),
    ],
)
def test_vectors_that_do_not_fit_are_refused_and_nothing_changes(
    old: Path, tmp_path: Path, rows: np.ndarray, message: str
) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    before = data_files(index)
    with pytest.raises(InputError, match=message):
        indexmill.append(index, _save(tmp_path / "m.npy", rows))
    assert data_files(index) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ix", "m.npy"]


def test_ids_that_exist_or_are_of_another_type_are_refused(tmp_path: Path) -> None:
    index = tmp_path / "ix"
    indexmill.build(OLD, index, ids=np.arange(900) * 10, **SMALL)
    for ids, message in (
        ([11, 21, 70, 31], r"id 70 is not unique: .*ix row 7 and <array> row 2"),
        ([11, 21, 11, 31], r"id 11 is not unique: <array> row 0 and <array> row 2"),
        (list("abcd"), r"<array>: id type string; expected int64 as in .*ix; name a fitting column"),
        (None, r"<array>: id type none; expected int64"),
    ):
        with pytest.raises(InputError, match=message):
            indexmill.append(index, NEW[:4], ids=ids)
    assert indexmill.append(index, NEW[:2], ids=[1, -5]).search(NEW[:2], 1).ids[:, 0].tolist() == [1, -5]


def test_metadata_of_another_shape_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "ix"
    indexmill.build(OLD, index, metadata=pa.table({"price": np.arange(900.0)}), **SMALL)
    for metadata, got in ((None, "none"), (pa.table({"price": ["a", "b"]}), "price: string")):
        with pytest.raises(InputError, match=f"metadata columns {got}; expected price: double as in"):
            indexmill.append(index, NEW[:2], metadata=metadata)
    pq.write_table(pa.table({"v": NEW[:2].tolist(), "prise": [1.0, 2.0]}), tmp_path / "m.parquet")
    with pytest.raises(InputError, match=r"m\.parquet: .*price.*prise"):
        indexmill.append(index, tmp_path / "m.parquet")


def test_a_norm_above_the_largest_needs_a_rebuild(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", OLD, metric="ip")
    longest = OLD[np.argmax(np.linalg.norm(OLD, axis=1))]
    indexmill.append(index, longest[None])
    more = np.stack([OLD[0], longest * np.float32(1.001)])
    with pytest.raises(InputError, match=r"<array>: row 1: norm .*takes norms up to .*build the index again"):
        indexmill.append(index, more)


@pytest.mark.parametrize(("node_dtype", "factor"), [("sq8", 3), ("sq16", 3), ("float16", 1e5)])
def test_values_that_a_node_cannot_hold_need_a_rebuild(
    tmp_path: Path, node_dtype: str, factor: float
) -> None:
    index = build(tmp_path / "ix", OLD, node_dtype=node_dtype)
    more = np.stack([OLD[3], OLD[4]])
    more[1, 5] = np.abs(OLD[:, 5]).max() * factor
    with pytest.raises(InputError, match=r"<array>: row 1: component 5 is .*hold .*build the index again"):
        indexmill.append(index, more)


def test_a_value_just_outside_the_scale_is_stored_as_its_end(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", OLD, node_dtype="sq8")
    more = NEW[:1].copy()
    low, high = OLD[:, 3].min(), OLD[:, 3].max()
    more[0, 3] = high + 0.05 * (high - low)
    indexmill.append(index, more)
    assert manifest(index)["drift"]["clipped_share"] == 1
    with IndexFiles(index) as files:
        assert files.graph.read_nodes(900, 1).vectors[0, 3] == 255


def test_settings_that_cannot_work_are_refused(old: Path, appended: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[IndexmillError], str]] = [
        ({"memory": "1MiB"}, BudgetError, r"give at least [\d,]+ bytes with --memory"),
        ({"memory": "much"}, ConfigError, "memory: 'much' is not a size"),
        ({"workers": 0}, ConfigError, "workers: expected 1 to 1024, got 0"),
        ({"out": appended}, OutputExistsError, "add --force"),
        ({"out": tmp_path, "force": True}, OutputExistsError, "is not an index"),
    ]
    (tmp_path / "other").touch()
    for how, error, message in cases:
        with pytest.raises(error, match=message):
            indexmill.append(old, NEW, **how)
    with pytest.raises(InputError, match="no such index"):
        indexmill.append(tmp_path / "none", NEW)
    with pytest.raises(InputError, match=rf"{re.escape(str(appended))}: an index; .*indexmill merge"):
        indexmill.append(old, appended)


def test_a_damaged_index_is_not_extended(old: Path, tmp_path: Path) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    raw = bytearray((index / "graph.imx").read_bytes())
    raw[3 * 4096 + 100] ^= 1
    (index / "graph.imx").write_bytes(raw)
    with pytest.raises(CorruptFile, match=r"graph\.imx: page 3"):
        indexmill.append(index, NEW)
    assert (index / "graph.imx").read_bytes() == raw


def test_a_full_disk_is_an_error_and_changes_nothing(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    index = shutil.copytree(old, tmp_path / "ix")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BudgetError, match=r"vectors\.npy: [\d,]+ bytes do not fit the disk"):
        indexmill.append(index, NEW)
    assert data_files(index) == data_files(old)
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]


def test_one_job_at_a_time_writes_an_index(old: Path, tmp_path: Path) -> None:
    index = shutil.copytree(old, tmp_path / "ix")
    with output_lock(index), pytest.raises(ConfigError, match="another job is writing"):
        indexmill.append(index, NEW)
    scratch = tmp_path / ".ix.indexmill-scratch"
    scratch.mkdir()
    (scratch / "left-by-a-killed-run").touch()
    indexmill.append(index, NEW)
    assert [p.name for p in tmp_path.iterdir()] == ["ix"]
