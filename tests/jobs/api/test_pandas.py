"""Indexes of pandas frames equal those of the same rows in a table.

pandas is no requirement of the other tests: where it is installed, pyarrow imports it, which takes 20 MiB of each
process and would blur what the tests of plans measure. `make ecosystem` installs it and runs this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.indexes.builds import clustered, data_files

import indexmill
from indexmill.formats.errors import InputError, OutputExistsError
from indexmill.formats.sources.source import array_source

pd = pytest.importorskip("pandas")

VECTORS = clustered(300, 8)
SMALL: dict[str, Any] = {"R": 8, "L": 20, "pq_bytes": 4, "workers": 1}


def rows() -> pa.Table:
    n, dim = VECTORS.shape
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), dim)
    return pa.table({"vector": vectors, "name": [f"item {i}" for i in range(n)]})


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "columns of numpy": lambda table: table.to_pandas(),
    "columns of Arrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_gives_the_bytes_of_its_table(kind: str, tmp_path: Path) -> None:
    index = indexmill.build(FRAMES[kind](rows()), tmp_path / "ix", **SMALL, id_column="name")
    indexmill.build(rows(), tmp_path / "table", **SMALL, id_column="name")
    assert index.search(VECTORS[5], k=1).ids.tolist() == [["item 5"]]
    assert data_files(tmp_path / "ix") == data_files(tmp_path / "table")


def test_a_frame_of_numbers_is_an_array(tmp_path: Path) -> None:
    built = [
        json.loads((indexmill.build(given, tmp_path / f"{i}", **SMALL).path / "manifest.json").read_text())
        for i, given in enumerate((VECTORS, pd.DataFrame(VECTORS)))
    ]
    assert len({manifest["build_id"] for manifest in built}) == 1


@pytest.mark.parametrize("columns", ["with one name", "sparse"])
def test_numbers_that_give_no_stream_are_an_array(columns: str) -> None:
    frame = pd.DataFrame(VECTORS)
    frame = (
        frame.astype(pd.SparseDtype(np.float32))
        if columns == "sparse"
        else frame.set_axis(["same"] * 8, axis=1)
    )
    assert np.array_equal(next(iter(array_source(frame).batches())).vectors, VECTORS)


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    frame = pd.DataFrame({"vector": [[1.0, 2.0]] * 40 + [None] + [[2.0, 1.0]] * 40})
    with pytest.raises(InputError, match=r"^<stream>: row 40: null vector"):
        indexmill.build(frame, tmp_path / "ix")
    frame = pd.DataFrame({"vector": [[1.0, 2.0]] * 40 + [[1.0]] + [[2.0, 1.0]] * 40})
    with pytest.raises(InputError, match=r"^<stream>: row 40: 1 components; expected 2 as in row 0"):
        indexmill.build(frame, tmp_path / "ix")


def test_a_fit_that_fails_leaves_the_names_of_columns(tmp_path: Path) -> None:
    named = pd.DataFrame(VECTORS, columns=[f"x{i}" for i in range(8)])
    fitted = indexmill.NeighborsTransformer(3, path=tmp_path / "ix").fit(named)
    indexmill.build(VECTORS, tmp_path / "ix", R=8, L=20, force=True)
    with pytest.raises(OutputExistsError):
        fitted.fit(VECTORS[:, :5])
    assert fitted.feature_names_in_.tolist() == list(named.columns)
    assert fitted.transform(named[:9]).shape == (9, 300)
