"""E2LSH hashes against their formula, and parameters against the success that they are solved for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.support.asked import asked

from indexmill.builders.lsh.fill import expected_blocks
from indexmill.builders.lsh.hash import PRODUCT_ROWS, draw_functions, hash_rows, project, sort_rows
from indexmill.builders.lsh.probes import collision_probability, probed, shared_bucket
from indexmill.builders.lsh.solve import extent_of, first_radius, radii_to, solve

RNG = np.random.default_rng(5)


def test_hashes_are_those_of_the_formula() -> None:
    vectors = RNG.normal(size=(300, 7)).astype(np.float32) * 10
    drawn = draw_functions(2, 5, 3, 7, 4.0, seed=9)
    near = 0
    for table in range(2):
        projected = project(vectors, drawn.projections[table : table + 1])[0]
        for radius in range(3):
            got = hash_rows(projected, 1.5, 4.0, drawn.offsets[radius, table], drawn.multipliers[table])
            for row, vector in enumerate(vectors.astype(np.float64)):
                t = (
                    drawn.projections[table].astype(np.float64) @ vector / 1.5 + drawn.offsets[radius, table]
                ) / 4.0
                if np.abs(t - np.round(t)).min() < 1e-5:
                    near += 1
                    continue
                pairs = zip(drawn.multipliers[table].tolist(), np.floor(t).tolist(), strict=True)
                assert got[row] == sum(m * int(h) for m, h in pairs) % 2**64 >> 32
    assert near < 20


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e17])
def test_projections_that_lie_in_no_cell_are_refused(bad: float) -> None:
    drawn = draw_functions(1, 1, 1, 2, 1.0, seed=1)
    with pytest.raises(OverflowError):
        hash_rows(np.array([[0.5, bad]], np.float32), 1.0, 1.0, drawn.offsets[0, 0], drawn.multipliers[0])


def test_functions_of_a_table_do_not_depend_on_how_many_there_are() -> None:
    few, many = draw_functions(2, 3, 2, 4, 4.0, 1), draw_functions(5, 3, 2, 4, 4.0, 1)
    assert np.array_equal(few.projections, many.projections[:2])
    assert np.array_equal(few.offsets, many.offsets[:, :2])
    assert np.array_equal(few.multipliers, many.multipliers[:2])
    assert (many.multipliers % 2 == 1).all()
    assert ((many.offsets >= 0) & (many.offsets <= 4)).all()
    assert len(np.unique(many.projections)) > 55


def test_products_do_not_depend_on_where_tasks_begin() -> None:
    vectors = RNG.normal(size=(PRODUCT_ROWS + 100, 16)).astype(np.float32)
    a = RNG.normal(size=(4, 6, 16)).astype(np.float32)
    whole = project(vectors, a)
    assert np.array_equal(whole[:, :, PRODUCT_ROWS:], project(vectors[PRODUCT_ROWS:], a))


def test_rows_are_sorted_by_bucket_fingerprint_and_row() -> None:
    hashes = RNG.integers(0, 2**32, 5000, np.uint32) & np.uint32(0xC000001F)  # many are equal
    buckets, fingerprints, rows = sort_rows(hashes, 100, 3, 29)
    expected = sorted((v % 8, v // 8, 100 + i) for i, v in enumerate(hashes.tolist()))
    assert list(zip(buckets.tolist(), fingerprints.tolist(), rows.tolist(), strict=True)) == expected
    _, short, _ = sort_rows(hashes, 0, 3, 8)
    assert short.max() < 256


def test_collisions_happen_as_often_as_foretold() -> None:
    drawn = draw_functions(1, 256, 40, 8, 4.0, seed=3)
    for distance in (0.5, 1.0, 2.0, 4.0):
        pair = np.zeros((2, 8), np.float32)
        pair[1, 3] = distance
        cells = [
            np.floor((project(pair, drawn.projections)[0] + drawn.offsets[i, 0][:, None]) / 4.0)
            for i in range(40)
        ]
        share = float(np.mean([c[:, 0] == c[:, 1] for c in cells]))
        # 256 directions, whose lengths along one axis vary, and 40 offsets of each
        assert share == pytest.approx(collision_probability(4.0 / distance), abs=0.04)


def test_one_minus_one_over_e_is_equation_5() -> None:
    found = solve(asked(), 100_000, 100.0, np.array([1.0, 2.0]))
    assert found.rho == pytest.approx(math.log(found.p1) / math.log(found.p2))
    assert found.n_functions == round(math.log(100_000) / -math.log(found.p2))
    assert found.n_tables == pytest.approx(100_000**found.rho, rel=0.15)  # m is rounded
    assert found.success == pytest.approx(1 - 1 / math.e, abs=0.01)
    assert found.candidates == 2 * found.n_tables


def test_more_success_takes_more_tables_and_what_is_given_stays() -> None:
    nearest = np.array([1.0])
    low, high = (solve(asked(success=s, gamma=0.5), 10_000, 50.0, nearest) for s in (0.5, 0.95))
    assert low.n_tables < high.n_tables
    assert low.success >= 0.5
    assert high.success >= 0.95
    given = solve(
        asked(n_functions=7, n_tables=3, n_radii=2, candidates=11, hash_bits=5, first_radius=2.5),
        10_000,
        50.0,
        nearest,
    )
    assert (given.n_functions, given.n_tables, given.candidates, given.hash_bits) == (7, 3, 11, 5)
    assert given.radii == (2.5, 5.0)
    assert given.success == pytest.approx(1 - (1 - given.p1**7) ** 3)
    assert given.met == pytest.approx(given.p1**7)


def test_radii_go_from_near_neighbours_to_the_extent() -> None:
    nearest = np.concatenate([np.zeros(50), np.linspace(1, 2, 101)])
    assert first_radius(nearest) == pytest.approx(1.05)
    found = solve(asked(), 1000, 33.0, nearest)
    assert found.radii[0] == pytest.approx(1.05)
    assert np.allclose(np.diff(np.log2(found.radii)), 1)
    assert found.radii[-1] < 33.0 <= found.radii[-1] * 2
    assert radii_to(32.0, 1.0, 2.0) == 5
    assert radii_to(33.0, 1.0, 2.0) == 6


def test_more_radii_than_sense_are_refused_with_those_that_make_some() -> None:
    with pytest.raises(ValueError, match=r"n_radii: 9 radii from 1 on by 2 go beyond 30.*give 5 or fewer"):
        solve(asked(n_radii=9), 1000, 30.0, np.array([1.0]))


def test_a_ratio_next_to_1_is_refused_before_its_radii_are_listed() -> None:
    with pytest.raises(ValueError, match=r"n_radii: 1\.\.256, not [0-9]{9,}; raise --ratio"):
        solve(asked(ratio=1 + 1e-12, n_functions=5), 1000, 30.0, np.array([1.0]))


@pytest.mark.parametrize("nearest", [np.empty(0), np.zeros(5)])
def test_vectors_that_are_all_equal_have_one_radius(nearest: np.ndarray) -> None:
    assert solve(asked(), 1, 0.0, nearest).radii == (1.0,)
    assert solve(asked(), 7, 0.0, nearest).hash_bits == 0


def test_the_extent_is_at_most_that_of_the_paper() -> None:
    low, high = RNG.uniform(-3, 0, 10), RNG.uniform(0, 5, 10)
    paper = 2 * np.abs([low, high]).max() * math.sqrt(10)
    assert extent_of(low, high) <= paper
    assert extent_of(low, high, norm=1.0) == 2.0


def test_average_buckets_fill_blocks_and_fingerprints_stay_whole() -> None:
    for n in (10, 1000, 10**6, 10**9):
        for entries in (22, 99, 816):
            bits = solve(asked(n_tables=1, block_entries=entries), n, 10.0, np.array([1.0])).hash_bits
            assert n / 2**bits <= max(0.7 * entries, 1)
            assert bits + 8 >= (n - 1).bit_length()
            assert bits == 0 or n / 2 ** (bits - 1) > 0.7 * entries or bits + 7 < (n - 1).bit_length()


def test_probes_are_those_of_the_least_scores() -> None:
    rng = np.random.default_rng(2)
    m, rows = 4, 60
    places, cells = rng.random((rows, m)), rng.integers(-1, 2, (rows, m)).astype(float)
    cells[0] = [0, 0, 0, 1]
    for probes in (1, 5, 30, 80):
        near = 0
        for place, cell in zip(places, cells, strict=True):
            scores = {}
            for change in itertools.product((-1, 0, 1), repeat=m):
                parts = [{-1: p * p, 0: 0.0, 1: (1 - p) ** 2}[d] for d, p in zip(change, place, strict=True)]
                scores[change] = sum(parts)
            ranked = sorted((c for c in scores if any(c)), key=scores.__getitem__)
            near += tuple(cell) in ranked[:probes]
        some = cells.any(axis=1)
        assert probed(places[some], cells[some], probes) == near


def test_probes_stand_for_tables() -> None:
    alone = collision_probability(4.0) ** 12
    assert shared_bucket(12, 4.0, 0) == pytest.approx(alone)
    met = [shared_bucket(12, 4.0, probes) for probes in (0, 2, 8, 32)]
    assert met == sorted(met)
    assert met[-1] > 3 * alone
    # With all neighbouring buckets of 3 functions only vectors two cells away are missed.
    assert shared_bucket(3, 4.0, 26) > 0.99
    without, with_probes = (
        solve(asked(success=0.8, probes=t), 10_000, 50.0, np.array([1.0])) for t in (0, 16)
    )
    assert with_probes.n_tables < without.n_tables / 2
    assert with_probes.success >= 0.8
    assert with_probes.candidates == pytest.approx(without.candidates, rel=0.25)


@pytest.mark.parametrize("growth", [1, 3, 20])
@pytest.mark.parametrize("shape", [0.05, 0.5, 5.0])
def test_blocks_are_foretold_from_a_sample_of_unlike_buckets(growth: int, shape: float) -> None:
    rng = np.random.default_rng(7)
    buckets, sampled, capacity = 4096, 16_000, 99
    shares = rng.gamma(shape, size=buckets)
    of_all = rng.multinomial(sampled * growth, shares / shares.sum())
    sample = rng.multivariate_hypergeometric(of_all, sampled)
    actual = (-(-of_all // capacity)).sum()
    assert expected_blocks(sample, growth, capacity) == pytest.approx(actual, rel=0 if growth == 1 else 0.06)


def test_a_bucket_with_everything_is_filled_block_by_block() -> None:
    counts = np.zeros(1024, np.int64)
    counts[7] = 10_000
    assert expected_blocks(counts, 10, 99) == pytest.approx(100_000 / 99, rel=0.05)
