"""`indexmill tune`: the name of the index of the job that it writes, and where it may write this."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.cli import run

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


@pytest.mark.parametrize("read", ["base.npy", "asked.npy"])
def test_the_job_replaces_no_vectors_and_no_queries(tmp_path: Path, read: str) -> None:
    rng = np.random.default_rng(1)
    np.save(tmp_path / "base.npy", rng.random((300, 4), np.float32))
    np.save(tmp_path / "asked.npy", rng.random((200, 4), np.float32))
    before = (tmp_path / read).read_bytes()
    result = run(
        "tune", tmp_path / "b*.npy", "--queries", tmp_path / "asked.npy", "--out", tmp_path / read, "--force"
    )
    assert result.exit_code == 2
    assert "is a file to read; name another one" in result.stderr
    assert (tmp_path / read).read_bytes() == before
