"""Indexes of data sets of Hugging Face and of `ray.data` equal those of the same rows in a table.

They need datasets and pandas, which other tests must not find (`test_pandas`): `make ecosystem` installs both and runs
this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.indexes.builds import clustered, data_files

import indexmill
from indexmill.formats.errors import InputError

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three

VECTORS = clustered(300, 8)
SMALL: dict[str, Any] = {"R": 8, "L": 20, "pq_bytes": 4, "workers": 1}
COLUMNS: dict[str, Any] = {"id_column": "name", "metadata_columns": ["tags"]}


def rows() -> pa.Table:
    n, dim = VECTORS.shape
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), dim)
    tags = [["a", f"b{i}"][: i % 3] for i in range(n)]
    return pa.table({"vector": vectors, "name": [f"item {i}" for i in range(n)], "tags": tags})


def check(given: Any, folder: Path) -> None:
    """Compare the index of `given` with that of the table, byte by byte."""
    index = indexmill.build(given, folder / "ix", column="vector", **SMALL, **COLUMNS)
    indexmill.build(rows(), folder / "table", column="vector", **SMALL, **COLUMNS)
    assert index.search(VECTORS[5], k=1).ids.tolist() == [["item 5"]]
    assert index.metadata([5])["tags"].to_pylist() == [["a", "b5"]]
    assert data_files(folder / "ix") == data_files(folder / "table")


@pytest.mark.parametrize("kind", ["Dataset", "IterableDataset"])
def test_a_data_set_of_hugging_face_gives_the_bytes_of_its_table(kind: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    given = datasets.Dataset(rows())
    check(given if kind == "Dataset" else given.to_iterable_dataset(num_shards=3), tmp_path)


def test_splits_of_hugging_face_are_refused_by_their_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    splits = datasets.Dataset(rows()).train_test_split(test_size=0.1)
    with pytest.raises(
        InputError, match=r"^<stream>: DatasetDict has several splits, train, test; expected one"
    ):
        indexmill.build(splits, tmp_path / "ix", **SMALL)


@pytest.mark.parametrize(
    ("row", "said"), [(None, "null vector"), ([1.0], "1 components; expected 2 as in row 0")]
)
def test_a_bad_row_of_hugging_face_is_named(row: list[float] | None, said: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    given = datasets.Dataset.from_dict({"vector": [[1.0, 2.0]] * 40 + [row] + [[2.0, 1.0]] * 40})
    with pytest.raises(InputError, match=rf"^<stream>: row 40: {said}"):
        indexmill.build(given, tmp_path / "ix", **SMALL)


@pytest.mark.ray
def test_a_data_set_of_ray_gives_the_bytes_of_its_table(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    pytest.importorskip("pandas")
    data = pytest.importorskip("ray.data")
    three: Three = request.getfixturevalue("three")
    three.executor.share(0)
    data.DataContext.get_current().execution_options.preserve_order = True
    check(data.from_arrow([rows().slice(start, 100) for start in (0, 100, 200)]), tmp_path)
