"""Page reads of all vectors, predicted from those of growing samples."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.pipeline.tune.curve import AtRecall
from indexmill.pipeline.tune.growth import predict


def searched(*reads: float, by: float = 0.0) -> list[AtRecall]:
    """What samples take, with noise of their own."""
    rng = np.random.default_rng(1)
    return [AtRecall(one, 20.0, 0.95, one + by * rng.normal(size=2000)) for one in reads]


def test_the_outlook_lies_between_the_same_number_and_the_same_factor_a_doubling() -> None:
    there = predict([4_000, 8_000, 16_000], searched(12, 17, 18), 256_000)
    assert there.reads == pytest.approx((18 + 6 + 6 + 18 * 1.5 * 1.5) / 2)
    low, high = there.interval()
    assert low == pytest.approx(30 + 0.025 * 10.5, abs=0.2)
    assert high == pytest.approx(40.5 - 0.025 * 10.5, abs=0.2)


def test_a_sample_that_is_all_there_is_has_its_own_reads_for_an_outlook() -> None:
    there = predict([4_000, 16_000], searched(12, 18, by=0.1), 16_000)
    assert there.reads == 18
    assert there.interval() == pytest.approx((17.8, 18.2), abs=0.02)


def test_reads_that_stay_are_predicted_to_stay() -> None:
    assert predict([4_000, 16_000], searched(7, 7), 10**9).reads == pytest.approx(7)


def test_reads_that_fall_stay_above_nothing() -> None:
    there = predict([6_250, 25_000, 100_000], searched(40, 30, 25, by=0.1), 100_000_000)
    assert there.reads == pytest.approx(25 * (25 / 40) ** (np.log(1000) / np.log(16)))
    low, high = there.interval()
    assert low is not None
    assert high is not None
    assert 0 < low < there.reads < high


def test_noise_of_the_queries_grows_with_what_is_carried_on() -> None:
    widths = []
    for n in (16_000, 64_000, 1_024_000):
        low, high = predict([4_000, 16_000], searched(16, 16.1, by=0.1), n).interval()
        assert low is not None
        assert high is not None
        widths.append(high - low)
    assert widths[0] == pytest.approx(0.4, abs=0.05)
    assert widths[0] < widths[1] < widths[2]


def test_what_a_sample_does_not_reach_is_not_predicted() -> None:
    there = predict([1_000, 4_000], searched(10, np.inf), 9_000)
    assert there.reads == np.inf
    assert there.interval() == (None, None)
