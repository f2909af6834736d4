"""`indexmill tune`: the name of the index of the job that it writes."""

from __future__ import annotations

import pytest

from indexmill.jobs.cli.commands.tune import index_name


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("data/base.npy", "base.index"), ("data/", "data.index"), ("data/*", "data.index"),
        ("data/*.parquet", "data.index"), ("s3://bucket/x/part-[0-3]?.npy", "x.index"), ("*.npy", "tuned.index"),
    ],
)  # fmt: skip
def test_an_index_is_called_by_its_file_or_folder(source: str, name: str) -> None:
    assert index_name(source) == name
