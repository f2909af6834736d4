"""Levels of a hierarchical graph, as HNSW draws them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from indexmill.builders.vamana.levels import draw_levels, most_levels


@pytest.mark.parametrize("m", [2, 16, 100])
def test_a_level_has_one_vertex_in_m_of_the_level_below(m: int) -> None:
    n = 1_500_000  # more than are drawn at a time
    levels = draw_levels(n, m, seed=3)
    for level, vertices in enumerate(levels, 1):
        expected = n * m**-level
        assert abs(len(vertices) - expected) <= 5 * np.sqrt(expected) + 1


def test_each_level_is_a_subset_of_the_one_below_it() -> None:
    levels = draw_levels(100_000, 8, seed=1)
    assert len(levels) >= 5
    for below, above in itertools.pairwise(levels):
        assert np.isin(above, below).all()
        assert (np.diff(below.astype(np.int64)) > 0).all()
    assert len(levels[-1]) > 0


def test_levels_depend_on_the_seed_alone() -> None:
    first, again, other = (draw_levels(5000, 4, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_a_few_vertices_may_have_no_upper_level() -> None:
    counts = {len(draw_levels(5, 16, seed)) for seed in range(40)}
    assert 0 in counts
    assert max(counts) > 0


def test_no_level_is_rarer_than_a_vertex_in_a_thousand_million() -> None:
    assert [most_levels(m) for m in (2, 16, 100)] == [29, 7, 4]
