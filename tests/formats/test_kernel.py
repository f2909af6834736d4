"""Kernels keep their machine code whatever other processes compile meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from indexmill.formats.kernel import CacheFiles, kernel


@kernel
def _total(values):  # type: ignore[no-untyped-def]
    total = 0
    for value in values:
        total += value
    return total


@pytest.mark.parametrize("round_", range(10))
def test_what_two_save_at_once_is_loaded_under_its_own_key(tmp_path: Path, round_: int) -> None:
    writers = 6
    together = Barrier(writers)

    def save(key: str) -> None:
        files = CacheFiles(str(tmp_path / "cache"), "function", "stamp")
        together.wait()
        files.save(key, f"code of {key}")

    keys = [f"type {i}" for i in range(writers)]
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(save, keys))
    files = CacheFiles(str(tmp_path / "cache"), "function", "stamp")
    assert [files.load(key) for key in keys] == [f"code of {key}" for key in keys]
    assert files.load("type of none") is None


def test_a_kernel_is_compiled_for_each_type_and_kept() -> None:
    for dtype in (np.int8, np.uint8):
        values = np.array([-5, -6], np.int8).view(dtype)
        assert _total(values) == int(values.astype(np.int64).sum())
    assert isinstance(_total._cache._cache_file, CacheFiles)
    assert len(_total._cache._cache_file._load_index()) == 2
