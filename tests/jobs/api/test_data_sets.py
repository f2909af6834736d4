"""Indexes of data sets of Hugging Face and of `ray.data` equal those of the same rows in a table.

They need datasets and pandas, which other tests must not find (`test_pandas`): `make ecosystem` installs both and runs
this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
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


def test_an_error_in_a_generator_of_hugging_face_is_told_with_the_row_it_reached(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")

    def generated() -> Iterator[dict[str, Any]]:
        yield from ({"vector": [1.0, float(i)]} for i in range(2000))
        raise KeyError("the next one")

    given = datasets.IterableDataset.from_generator(generated)
    said = r"^<stream>: breaks off after row \d+ \(KeyError: 'the next one'\); expected a stream"
    with pytest.raises(InputError, match=said):
        indexmill.build(given, tmp_path / "ix", **SMALL)


@pytest.fixture
def ray_data(request: pytest.FixtureRequest) -> Any:
    """The module `ray.data` on a cluster, which keeps the order of rows."""
    pytest.importorskip("pandas")
    data = pytest.importorskip("ray.data")
    three: Three = request.getfixturevalue("three")
    three.executor.share(0)
    data.DataContext.get_current().execution_options.preserve_order = True
    return data


def rows_with(bad: Any, at: int) -> list[dict[str, Any]]:
    """Forty rows of two components, except that `bad` is one."""
    return [{"vector": bad if i == at else np.array([1, i], np.float32)} for i in range(40)]


@pytest.mark.ray
@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (np.ones(3, np.float32), "row 17: 3 components; expected 2 as in row 0"),
        (np.ones(0, np.float32), "row 17: 0 components; expected 2 as in row 0"),
        (np.array([1, np.nan], np.float32), "row 17: component 1 is nan"),
    ],
)
def test_a_bad_row_of_ray_is_named(ray_data: Any, blocks: int, row: Any, said: str, tmp_path: Path) -> None:
    given = ray_data.from_items(rows_with(row, 17), override_num_blocks=blocks)
    with pytest.raises(InputError, match=rf"^<stream>: {said}"):
        indexmill.build(given, tmp_path / "ix", **SMALL)


@pytest.mark.ray
def test_rows_of_another_type_than_the_first_are_named(ray_data: Any, tmp_path: Path) -> None:
    given = ray_data.from_items(rows_with(None, 17), override_num_blocks=4)
    with pytest.raises(InputError, match=r"^<stream>: rows 10 to 19: column 'vector' has type .*; expected "):
        indexmill.build(given, tmp_path / "ix", column="vector", **SMALL)


@pytest.mark.ray
def test_an_error_in_a_task_of_ray_is_told_with_the_row_it_reached(ray_data: Any, tmp_path: Path) -> None:
    def made(batch: dict[str, Any]) -> dict[str, Any]:
        if 17 in batch["id"]:
            raise ValueError("no such picture")
        return {"vector": np.ones((len(batch["id"]), 2), np.float32)}

    given = ray_data.range(40, override_num_blocks=4).map_batches(made)
    said = (
        r"^<stream>: breaks off (before row 0|after row 9) \(ValueError: no such picture\); expected a stream"
    )
    with pytest.raises(InputError, match=said):
        indexmill.build(given, tmp_path / "ix", **SMALL)


@pytest.mark.ray
def test_a_data_set_of_ray_gives_the_bytes_of_its_table(ray_data: Any, tmp_path: Path) -> None:
    check(ray_data.from_arrow([rows().slice(start, 100) for start in (0, 100, 200)]), tmp_path)
