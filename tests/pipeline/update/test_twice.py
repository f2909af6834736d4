"""No job brings vectors into an index that a job brought there before, whatever else the two say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.builds import data_files
from tests.support.indexes.lists import build
from tests.support.indexes.lsh import clusters

import indexmill
from indexmill.formats.errors import ConfigError
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.generations.brought import brought_into
from indexmill.pipeline.update.run import UpdateResult, run_update
from indexmill.pipeline.update.spec import UpdateSpec

VECTORS = clusters(420, 12)


def job(folder: Path, **keys: Any) -> UpdateResult:
    spec = UpdateSpec.model_validate({"base": str(folder / "ix"), "workers": 1, **keys})
    return run_update(spec, given_to(spec))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index without user ids, files of more vectors, and a job that has added the first."""
    build(tmp_path / "ix", VECTORS[:300])
    for name, rows in (("a", VECTORS[300:350]), ("b", VECTORS[350:400])):
        np.save(tmp_path / f"{name}.npy", rows)
    assert job(tmp_path, add=str(tmp_path / "a.npy")).manifest["input"]["n_vectors"] == 350
    return tmp_path


@pytest.mark.parametrize("how", [{"compact": "auto"}, {"compact": True}, {"delete": "gone.txt"}], ids=str)
def test_another_key_of_the_job_brings_nothing_twice(folder: Path, how: dict[str, Any]) -> None:
    (folder / "gone.txt").write_text("1\n2\n")
    before = data_files(folder / "ix")
    how = {key: str(folder / value) if key == "delete" else value for key, value in how.items()}
    with pytest.raises(ConfigError, match=r"add: the vectors of \S*a.npy are in \S*ix already"):
        job(folder, add=str(folder / "a.npy"), **how)
    assert data_files(folder / "ix") == before
    assert not (folder / ".ix.indexmill-job").exists()


def test_a_file_among_others_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"the vectors of \S*a.npy are in"):
        job(folder, add=[str(folder / "b.npy"), str(folder / "a.npy")])
    assert job(folder, add=str(folder / "b.npy")).manifest["input"]["n_vectors"] == 400


def test_a_file_that_was_written_anew_is_another(folder: Path) -> None:
    np.save(folder / "a.npy", VECTORS[400:])
    assert job(folder, add=str(folder / "a.npy")).manifest["input"]["n_vectors"] == 370


@pytest.mark.parametrize("change", ["append", "compact", "job", "upgrade", "delete", "merge"])
def test_later_changes_forget_nothing(folder: Path, change: str) -> None:
    index = folder / "ix"
    indexmill.delete(index, np.arange(3), by="vector")
    if change == "append":
        indexmill.append(index, VECTORS[400:], workers=1)
    elif change == "compact":
        indexmill.compact(index)
    elif change == "job":
        job(folder, add=str(folder / "b.npy"), compact=True)
    elif change == "upgrade":
        indexmill.upgrade(index)
    elif change == "merge":
        build(folder / "first", VECTORS[400:])
        index = folder / "merged"
        indexmill.merge(folder / "first", folder / "ix", out=index, workers=1)
    with pytest.raises(ConfigError, match="already"):
        job(folder, base=str(index), add=str(folder / "a.npy"), compact="auto")


def test_an_index_elsewhere_knows_as_much(folder: Path) -> None:
    indexmill.append(folder / "ix", VECTORS[400:], out=folder / "other", workers=1)
    with pytest.raises(ConfigError, match="already"):
        job(folder, base=str(folder / "other"), add=str(folder / "a.npy"))


def test_a_rollback_undoes_what_was_brought(folder: Path) -> None:
    indexmill.rollback(folder / "ix")
    assert brought_into(folder / "ix") == []
    assert job(folder, add=str(folder / "a.npy"), compact="auto").manifest["input"]["n_vectors"] == 350


def test_vectors_that_replace_themselves_may_come_again(tmp_path: Path) -> None:
    build(tmp_path / "ix", VECTORS[:300], np.arange(300))
    rows = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[300:310].ravel()), 12)
    pq.write_table(pa.table({"id": np.arange(290, 300), "vector": rows}), tmp_path / "a.parquet")
    keys: dict[str, Any] = {"add": str(tmp_path / "a.parquet"), "id_column": "id", "replace": True}
    assert job(tmp_path, **keys).steps[0]["replaced"] == 10
    assert job(tmp_path, **keys, compact=True).manifest["input"]["n_vectors"] == 300


def test_an_index_is_merged_once_even_by_force(folder: Path) -> None:
    np.save(folder / "centroids.npy", VECTORS[::60][:7])
    given = str(folder / "centroids.npy")
    for name, first in (("one", 0), ("other", 150)):
        build(folder / name, VECTORS[first : first + 150], centroids=given)
    bases = [str(folder / "one"), str(folder / "other")]
    assert job(folder, base=bases).manifest["input"]["n_vectors"] == 300
    with pytest.raises(ConfigError, match=r"base: the vectors of \S*other are in \S*one, "):
        job(folder, base=bases, force=True, compact="auto")


def test_a_damaged_record_forbids_nothing(folder: Path) -> None:
    record = folder / "ix" / "run.json"
    record.write_text(json.dumps({"brought": 3, "update": []}))
    assert job(folder, add=str(folder / "b.npy")).manifest["input"]["n_vectors"] == 400
    record.write_text("[")
    assert brought_into(folder / "ix") == []
