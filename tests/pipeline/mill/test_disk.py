"""Errors of file systems that take no more: which file, why, and which errors they are."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexmill.formats.errors import BudgetError
from indexmill.pipeline.mill.disk import refusal, told_when_full

FULL = "No space left on device"
needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="Linux has a device that is always full"
)


def of(*arguments: object) -> tuple[str, str] | None:
    return refusal(OSError(*arguments))


def test_of_two_names_the_one_that_is_written_counts() -> None:
    assert of(errno.ENOSPC, FULL, "source", None, "target") == ("target", FULL)
    assert of(errno.ENOSPC, FULL, "target") == ("target", FULL)
    assert of(errno.ENOSPC, FULL) == ("", FULL)


def test_what_was_needed_is_told_and_the_words_of_a_library_are_not() -> None:
    assert of(errno.ENOSPC, f"{FULL}; copying takes 5 bytes", "a") == ("a", f"{FULL}; copying takes 5 bytes")
    assert of(errno.ENOSPC, f"Error writing bytes to file. Detail: [errno 28] {FULL}") == ("", FULL)


def test_a_file_that_is_too_large_has_a_reason_of_its_own() -> None:
    assert of(errno.EFBIG, os.strerror(errno.EFBIG), "a") == (
        "a", "File too large; the file system or `ulimit -f` allows no larger file"
    )  # fmt: skip


def test_other_errors_are_none_of_a_full_disk() -> None:
    assert of(errno.EACCES, "Permission denied", "a") is None
    assert of("5 requested of 7") is None
    with pytest.raises(PermissionError), told_when_full(lambda path, reason: "full"):
        raise PermissionError(errno.EACCES, "Permission denied", "a")


@needs_full
def test_an_array_that_numpy_could_not_write_is_one_of_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "rows.npy").symlink_to("/dev/full")
    with pytest.raises(BudgetError), told_when_full(lambda path, reason: f"{path}: {reason}"):
        np.save(tmp_path / "rows.npy", np.zeros(100_000))


@needs_full
def test_a_table_that_arrow_could_not_write_is_one_of_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").symlink_to("/dev/full")
    with (
        pytest.raises(BudgetError, match=f"^: {FULL}$"),
        told_when_full(lambda path, reason: f"{path}: {reason}"),
    ):
        pq.write_table(pa.table({"a": np.zeros(100_000)}), tmp_path / "rows.parquet")


def test_the_limit_of_the_shell_is_one_of_a_full_disk(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, limits[1]))
    try:
        with pytest.raises(BudgetError, match="ulimit"), told_when_full(lambda path, reason: reason):
            (tmp_path / "large").write_bytes(bytes((8 << 20) + 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
