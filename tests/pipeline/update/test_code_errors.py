"""Memory of the errors of codes, as plans and refusals of appends and merges count it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import build

from indexmill.pipeline.append.codes import code_error, error_bytes
from indexmill.pipeline.generations.opened import OpenedIndex

DIM, N = 256, 12_000


@pytest.mark.parametrize("rotation", ["none", "opq"])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_errors_of_codes_take_what_is_counted(dtype: str, rotation: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(2).integers(0, 100, (300, DIM)).astype(dtype)
    how: dict[str, Any] = {"R": 8, "L": 8, "pq_bytes": 16, "pq_rotation": rotation, "navigation": 0}
    build(tmp_path / "ix", rows, **how)
    vectors = np.random.default_rng(3).integers(0, 100, (N, DIM))
    with OpenedIndex(tmp_path / "ix") as index:
        compared = vectors.astype(index.space.dtype)
        codebook = index.codes.codebook
        code_error(compared[:100], index.space, codebook)  # compiles kernels
        tracemalloc.start()
        try:
            code_error(compared, index.space, codebook)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        told = error_bytes(index, N)
    assert (codebook.rotation is not None) == (rotation == "opq")
    assert 0.9 * told < peak <= told
