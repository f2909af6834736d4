"""Costs of searches at a recall, between the list sizes that were measured."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from indexmill.pipeline.tune.curve import Curve, at_recall, list_sizes, recall_with


def test_list_sizes_begin_with_k_and_end_with_the_most() -> None:
    sizes = list_sizes(10, 1000, 1.25)
    assert sizes[0] == 10
    assert sizes[-1] == 1000
    assert all(a < b <= 1.3 * a for a, b in pairwise(sizes))
    assert list_sizes(1, 3, 1.25) == [1, 2, 3]


def test_a_cost_at_a_recall_lies_between_two_list_sizes() -> None:
    recalls = np.tile(np.array([0.8, 0.9, 1.0], np.float32), (50, 1))
    curve = Curve(np.array([10, 20, 40]), recalls, np.tile(np.array([5, 9, 17], np.float32), (50, 1)))
    there = at_recall(curve, 0.95)
    assert there.reads == pytest.approx(13)
    assert there.list_size == pytest.approx(30)
    assert there.interval() == pytest.approx((13, 13))
    np.testing.assert_allclose(recall_with(curve, 30), 0.95)
    below = at_recall(curve, 0.5)  # the shortest list is above it
    assert (below.reads, below.list_size, below.recall) == pytest.approx((5, 10, 0.8))
    beyond = at_recall(curve.half(reporting=True), 1.0 + 1e-3)
    assert not beyond.reached
    assert beyond.recall == pytest.approx(1.0)
