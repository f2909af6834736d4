"""SRS and QALSH on a few vectors, against what their papers' definitions give when they are followed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from indexmill.jobs.bench.lsh import qalsh
from indexmill.jobs.bench.lsh.qalsh import Qalsh
from indexmill.jobs.bench.lsh.srs import SUCCESS, Srs, chi_square, chi_square_quantile, p_tau


class Drawn:
    """A generator that draws given directions."""

    def __init__(self, directions: list[list[float]]) -> None:
        self._directions = np.array(directions)

    def standard_normal(self, shape: tuple[int, int]) -> np.ndarray:
        assert self._directions.shape == shape
        return self._directions


def drawing(monkeypatch: pytest.MonkeyPatch, directions: list[list[float]]) -> None:
    """Let the next index have these directions."""
    monkeypatch.setattr("numpy.random.default_rng", lambda _: Drawn(directions))


# SRS (Sun et al., 2014): points in the order of their projected distance d' are measured. It ends after T' of them, or
# before a point with Psi_m(c^2 d'^2 / best^2) >= p_tau, where Psi_m is the chi-square distribution with m degrees of
# freedom: then a nearer point would most likely have come before.

#: Projected on the first two axes: d' of 1, 2, 3, 4 and 5. True squared distances: 50, 4, 9, 17, 25.
POINTS = np.array([[0, 5, 0], [4, 0, 1], [1, 0, 7], [0, 3, 0], [2, 0, 0]], np.float32)
FIRST_TWO_AXES = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
ORIGIN = np.zeros((1, 3), np.float32)


def test_two_degrees_of_freedom_are_an_exponential() -> None:
    # Psi_2(x) = 1 - exp(-x / 2): half of it at 2 ln 2.
    assert chi_square(2 * math.log(2), 2) == pytest.approx(0.5)
    assert chi_square_quantile(0.5, 2) == pytest.approx(2 * math.log(2))
    # Psi_4(x) = 1 - exp(-x / 2) (1 + x / 2): at 2 it is 1 - 2 / e.
    assert chi_square(2.0, 4) == pytest.approx(1 - 2 / math.e)


def test_the_threshold_of_srs_is_the_least_that_leaves_its_success() -> None:
    # A point at c r lies before the nearest with probability Psi(Psi^-1(p) / c^2) = 1 - (1 - p)^(1/4) for c = 2, m = 2.
    # Of n such points more than T' = n do so with at most that probability over T' / n = 1 (Markov):
    #   p = 0.1805: 0.1805 - (1 - 0.8195^(1/4)) = 0.1805 - 0.0485 = 0.1320 < 1/2 - 1/e = 0.1321
    #   p = 0.1807: 0.1807 - (1 - 0.8193^(1/4)) = 0.1807 - 0.0486 = 0.1321
    assert pytest.approx(0.1321, abs=1e-4) == SUCCESS
    assert p_tau(2.0, 1.0, 2) == pytest.approx(0.1807, abs=3e-4)


def test_srs_measures_points_in_the_order_of_their_projections(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing(monkeypatch, FIRST_TWO_AXES)
    srs = Srs(POINTS, dimensions=2)
    # T' = 3: rows 2, 4 and 3, with squared distances 50, 4 and 9.
    found = srs.search(ORIGIN, 2, 3)
    assert found.rows.tolist() == [[4, 3]]
    assert found.measured.tolist() == [3]
    # All: rows 4, 3, 1, 0, 2 by 4, 9, 17, 25, 50.
    assert srs.search(ORIGIN, 5, 5).rows.tolist() == [[4, 3, 1, 0, 2]]


@pytest.mark.parametrize(
    ("height", "rows", "measured"),
    [
        # It ends where exp(-2 d'^2 / best^2) <= 1 - p_tau = 0.8193, that is d'^2 / best^2 >= 0.0997.
        # Row 2 is first, 1 + 7^2 = 50 away. Row 4: 4 / 50 = 0.08, measured: best is 4. Row 3: 9 / 4, the end.
        (7, [4], 2),
        # Row 2 is 1 + 5^2 = 26 away. Row 4: 4 / 26 = 0.154, the end: the nearest is missed.
        (5, [2], 1),
        # 1 + 20^2 = 401. Row 4: 4 / 401, measured. Row 3: the end.
        (20, [4], 2),
    ],
)
def test_srs_ends_where_a_nearer_point_would_have_come_before(
    monkeypatch: pytest.MonkeyPatch, height: float, rows: list[int], measured: int
) -> None:
    points = POINTS.copy()
    points[2, 2] = height
    drawing(monkeypatch, FIRST_TWO_AXES)
    found = Srs(points, dimensions=2).search(ORIGIN, 1, 5, ratio=2.0)
    assert found.rows.tolist() == [rows]
    assert found.measured.tolist() == [measured]


def test_srs_compares_with_the_kth_nearest_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing(monkeypatch, FIRST_TWO_AXES)
    # k = 2: rows 2 (50) and 4 (4). Row 3: 9 / 50 = 0.18 >= 0.0997, the end.
    found = Srs(POINTS, dimensions=2).search(ORIGIN, 2, 5, ratio=2.0)
    assert found.rows.tolist() == [[4, 2]]
    assert found.measured.tolist() == [2]


# QALSH (Huang et al., 2015): a point is a candidate once it lies within w R / 2 of the query on l of m lines. A search
# ends at the radius R within c times which it has k candidates, or when it has 100 + k - 1 of them (beta n = 100).


def test_the_parameters_of_qalsh_are_those_of_its_formulas() -> None:
    # c = 2: w = sqrt(8 c^2 ln c / (c^2 - 1)) = sqrt(32 ln 2 / 3) = 2.7191
    # p1 = P(|Z| <= w / 2 = 1.3596) = 0.8260, p2 = P(|Z| <= w / 4 = 0.6798) = 0.5034, p1 - p2 = 0.3226
    # n = 100: beta = 1; sqrt(ln 2) = 0.8326, sqrt(ln e) = 1; m = (1.8326)^2 / (2 x 0.3226^2) = 16.1: 17
    #   alpha = (0.8326 x 0.8260 + 0.5034) / 1.8326 = 0.6500; l = 0.6500 x 17 = 11.05: 12
    few = qalsh.solve(2.0, 100)
    assert few.width == pytest.approx(2.7191, abs=1e-4)
    assert (few.n_lines, few.threshold) == (17, 12)
    assert qalsh.solve(2.0, 4) == few  # beta is at most 1
    # n = 10^6: beta = 10^-4; sqrt(ln 20000) = 3.1470; m = (4.1470)^2 / (2 x 0.3226^2) = 82.6: 83
    #   alpha = (3.1470 x 0.8260 + 0.5034) / 4.1470 = 0.7482; l = 0.7482 x 83 = 62.1: 63
    many = qalsh.solve(2.0, 1_000_000)
    assert (many.n_lines, many.threshold) == (83, 63)


#: Twelve lines along x, which are enough for a candidate (l = 12), and five along y, which are not.
LINES = 12 * [[1.0, 0.0]] + 5 * [[0.0, 1.0]]
#: Distances from the origin: sqrt(82) = 9.06, 2, 3 and 10.
FLAT = np.array([[1, 9], [2, 0], [-3, 0], [10, 0]], np.float32)


@pytest.mark.parametrize(
    ("k", "rows", "measured", "scanned"),
    [
        # Nearest on the lines: 0 on five of them, 1 on twelve; the middle one is 1, so R >= 2 x 1 / w = 0.74: R = 1.
        # R = 1, windows to 1.36: row 0 on x (12 entries), rows 1 to 3 on y (15). Row 0 is measured: 9.06 > c R = 2.
        # R = 2, windows to 2.72: row 1 on x (12 entries). Measured: 2 <= c R = 4, the end.
        (1, [1], 2, 27 + 12),
        # The second nearest so far is 9.06 > 4. R = 4, windows to 5.44: row 2 on x (12). 3 <= c R = 8, the end.
        (2, [1, 2], 3, 27 + 12 + 12),
        # The third is 9.06 > 8. R = 8, windows to 10.88: row 3 on x (12), row 0 on y (5). 9.06 <= 16, the end.
        (3, [1, 2, 0], 4, 27 + 12 + 12 + 12 + 5),
    ],
)
def test_qalsh_meets_points_by_windows_that_grow_with_the_radius(
    monkeypatch: pytest.MonkeyPatch, k: int, rows: list[int], measured: int, scanned: int
) -> None:
    drawing(monkeypatch, LINES)
    found = Qalsh(FLAT, 2.0).search(np.zeros((1, 2), np.float32), k)
    assert found.rows.tolist() == [rows]
    assert found.measured.tolist() == [measured]
    assert found.scanned.tolist() == [scanned]


def test_a_point_on_one_line_too_few_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    # On eleven lines along x row 0 is at 1, on six along y at 9: it is met by 11 < l lines until windows reach 9.
    # R = 1 on: 11 x-lines row 0, 6 y-lines rows 1 to 3. R = 2, to 2.72: row 1 on x: 11 + 6 = 17 >= 12 lines. 2 <= 4.
    drawing(monkeypatch, 11 * [[1.0, 0.0]] + 6 * [[0.0, 1.0]])
    found = Qalsh(FLAT, 2.0).search(np.zeros((1, 2), np.float32), 1)
    assert found.rows.tolist() == [[1]]
    assert found.measured.tolist() == [1]
