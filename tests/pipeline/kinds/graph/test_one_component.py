"""Vectors of one component, or that differ in few of them: formats are chosen, and every way to store them is sound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.builds import assert_sound, build, l2, recall

from indexmill.formats.index.manifest import read_manifest
from indexmill.pipeline.kinds.graph.candidates import LEAST_VECTORS


def numbers(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 1)).astype(np.float32)


def mostly_constant(n: int, seed: int = 1) -> np.ndarray:
    """Draw vectors of 32 components, of which 28 never vary."""
    vectors = np.full((n, 32), 7, np.float32)
    vectors[:, :4] = np.random.default_rng(seed).normal(size=(n, 4))
    return vectors


@pytest.mark.parametrize(
    ("make", "least"),
    [(numbers, 0.5), (mostly_constant, 0.9)],  # a code of one component has 256 values for 10,000 vectors
)
def test_a_format_is_chosen(tmp_path: Path, make: Callable[..., np.ndarray], least: float) -> None:
    vectors = make(LEAST_VECTORS)
    index = build(tmp_path / "ix", vectors)
    assert_sound(index)
    found = read_manifest(index).graph["format"]
    assert {one["pq_rotation"] for one in found["tried"]} == {"none", "opq"}
    assert recall(index, vectors, make(20, 2), l2) > least


@pytest.mark.parametrize("make", [numbers, mostly_constant])
@pytest.mark.parametrize(
    "how",
    [
        {"keep_vectors": True, "node_dtype": "sq8"},
        {"keep_vectors": True, "node_dtype": "sq16"},
        {"codes_on_page": True},
        {"codes_on_page": True, "pq_rotation": "opq"},
    ],
)
def test_each_way_of_storing_them_is_sound(
    tmp_path: Path, how: dict[str, Any], make: Callable[..., np.ndarray]
) -> None:
    vectors = make(250)
    index = build(tmp_path / "ix", vectors, navigation=0.0, **how)
    assert_sound(index)
    assert recall(index, vectors, make(20, 2), l2) > 0.95
