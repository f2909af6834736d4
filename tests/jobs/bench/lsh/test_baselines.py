"""SRS and QALSH of the benchmark of hash tables, beside slow and obvious code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from indexmill.jobs.bench.lsh import qalsh as lsh_qalsh
from indexmill.jobs.bench.lsh import tree as lsh_tree
from indexmill.jobs.bench.lsh.qalsh import Qalsh
from indexmill.jobs.bench.lsh.srs import SUCCESS, Srs, chi_square, chi_square_quantile, p_tau

N, DIM, N_QUERIES = 700, 24, 12


def _bytes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    centres = random.integers(40, 200, (10, DIM))
    drawn = np.clip(
        centres[random.integers(0, 10, N + N_QUERIES)] + random.normal(0, 25, (N + N_QUERIES, DIM)), 0, 255
    )
    return drawn[:N].astype(np.uint8), drawn[N:].astype(np.uint8)


def _squares(base: np.ndarray, queries: np.ndarray) -> np.ndarray:
    return ((base[None].astype(float) - queries[:, None].astype(float)) ** 2).sum(axis=2)


def test_the_tree_gives_points_in_order_of_their_distance_and_each_once() -> None:
    random = np.random.default_rng(5)
    points = random.standard_normal((501, 8)).astype(np.float32)
    points[100:160] = points[100]  # copies fill leaves of their own
    tree = lsh_tree.build(points)
    front = lsh_tree.front(tree)
    for query in random.standard_normal((3, 8)).astype(np.float32):
        lsh_tree.begin(front, tree, query)
        given = [lsh_tree.advance(front, tree, query) for _ in range(len(points))]
        assert lsh_tree.advance(front, tree, query)[0] == -1
        rows = tree.rows[[place for place, _ in given]]
        assert sorted(rows) == list(range(len(points)))
        expected = np.sort(((points - query) ** 2).sum(axis=1))
        np.testing.assert_allclose([apart for _, apart in given], expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_srs_without_a_limit_finds_the_exact_neighbours(dtype: type) -> None:
    base, queries = (part.astype(dtype) for part in _bytes(1))
    found = Srs(base).search(queries, 5, N)
    squares = _squares(base, queries)
    np.testing.assert_array_equal(
        np.take_along_axis(squares, found.rows, axis=1), np.sort(squares, axis=1)[:, :5]
    )
    assert (found.measured == N).all()


def test_srs_measures_the_nearest_in_projection_and_no_more_than_its_limit() -> None:
    base, queries = _bytes(2)
    srs = Srs(base, seed=3)
    found = srs.search(queries, 4, 60)
    projected = _squares(base @ srs.directions.astype(float), queries @ srs.directions.astype(float))
    nearest = np.argsort(projected, axis=1)[:, :60]
    squares = np.take_along_axis(_squares(base, queries), nearest, axis=1)
    np.testing.assert_array_equal(
        np.take_along_axis(_squares(base, queries), found.rows, axis=1), np.sort(squares, axis=1)[:, :4]
    )
    assert (found.measured == 60).all()


def test_srs_finds_the_same_by_several_threads() -> None:
    base, queries = _bytes(4)
    srs = Srs(base)
    one, three = (srs.search(queries, 4, 60, 4.0, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.rows, three.rows)
    np.testing.assert_array_equal(one.measured, three.measured)


def test_srs_stops_early_where_the_chi_square_test_says_so() -> None:
    base, queries = _bytes(3)
    srs = Srs(base)
    ratio, share = 1.5, 0.5
    found = srs.search(queries, 1, int(share * N), ratio)
    threshold = p_tau(ratio, share)
    projected = np.sort(
        _squares(base @ srs.directions.astype(float), queries @ srs.directions.astype(float)), axis=1
    )
    order = np.argsort(
        _squares(base @ srs.directions.astype(float), queries @ srs.directions.astype(float)), axis=1
    )
    squares = _squares(base, queries)
    for i in range(N_QUERIES):
        best, measured = math.inf, 0
        while measured < int(share * N):
            if chi_square(ratio**2 * projected[i, measured] / best if best < math.inf else 0.0) >= threshold:
                break
            best = min(best, squares[i, order[i, measured]])
            measured += 1
        assert found.measured[i] == measured
        assert squares[i, found.rows[i, 0]] == best
    assert found.measured.min() < int(share * N)


def test_chi_square_is_that_of_tables_and_p_tau_leaves_the_success_asked_for() -> None:
    assert chi_square(15.507) == pytest.approx(0.95, abs=1e-4)  # 8 degrees
    assert chi_square_quantile(0.95) == pytest.approx(15.507, abs=1e-3)
    assert p_tau(4.0, 0.00242, 6) == pytest.approx(0.1809, abs=2e-3)  # Table 2 of the paper
    p = p_tau(2.0, 0.05)
    assert p - chi_square(chi_square_quantile(p) / 4) / 0.05 == pytest.approx(SUCCESS, abs=1e-6)


def test_qalsh_has_the_parameters_of_its_paper() -> None:
    found = lsh_qalsh.solve(2.0, 1_000_000)
    assert found.width == pytest.approx(2.719, abs=1e-3)  # section 5.3
    assert 0.5 < found.threshold / found.n_lines < 0.9
    assert lsh_qalsh.solve(3.0, 1_000_000).n_lines < found.n_lines < lsh_qalsh.solve(1.5, 1_000_000).n_lines


def test_qalsh_measures_what_a_slow_count_of_collisions_measures() -> None:
    base, queries = _bytes(4)
    base = base.astype(np.float32)
    queries = queries.astype(np.float32)
    for ratio, k in ((2.0, 1), (2.0, 20), (3.0, 5)):
        qalsh = Qalsh(base, ratio, seed=2)
        found = qalsh.search(queries, k)
        for i, query in enumerate(queries):
            rows, measured, scanned = _slow_qalsh(qalsh, base, query, k)
            assert (measured, scanned) == (found.measured[i], found.scanned[i])
            squares = _squares(base, query[None])[0]
            np.testing.assert_allclose(squares[found.rows[i]], squares[rows], rtol=1e-5)


def _slow_qalsh(qalsh: Qalsh, base: np.ndarray, query: np.ndarray, k: int) -> tuple[list[int], int, int]:
    """Count collisions in dictionaries, windows as sets of what lies between two places."""
    p = qalsh.parameters
    projected = query[None].astype(np.float32) @ qalsh.directions.T
    lines = []
    for line, centre in enumerate(projected[0]):
        near = [(abs(float(place) - float(centre)), place >= centre, int(row))
                for place, row in zip(qalsh.places[line], qalsh.rows[line], strict=True)]  # fmt: skip
        lines.append([sorted(e for e in near if e[1] == side) for side in (False, True)])
    counts: dict[int, int] = {}
    candidates: list[int] = []
    scanned, radius, most = 0, 0.0, lsh_qalsh.FALSE_POSITIVES + k - 1
    while len(candidates) < most:
        ahead = sorted(min(side[0][0] for side in sides if side) for sides in lines if any(sides))
        if not ahead:
            break
        wanted = 2 * ahead[len(ahead) // 2] / p.width
        radius = max(p.ratio ** math.ceil(math.log(wanted) / math.log(p.ratio)), radius * p.ratio)
        passed = True
        while passed and len(candidates) < most:
            passed = False
            for sides in lines:
                for side in sides:
                    taken = [e for e in side[: lsh_qalsh.TURN] if e[0] <= radius * p.width / 2]
                    del side[: len(taken)]
                    scanned += len(taken)
                    passed |= bool(taken)
                    for _, _, row in taken:
                        counts[row] = counts.get(row, 0) + 1
                        if counts[row] == p.threshold and len(candidates) < most:
                            candidates.append(row)
        squares = _squares(base, query[None])[0][candidates]
        if len(candidates) >= k and np.sort(squares)[k - 1] <= (p.ratio * radius) ** 2:
            break
    order = np.argsort(_squares(base, query[None])[0][candidates], kind="stable")[:k]
    return [candidates[i] for i in order], len(candidates), scanned
