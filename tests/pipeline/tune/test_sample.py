"""Samples of `tune`: sizes, vectors, queries and true neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.append import points

from indexmill.formats.errors import InputError
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.effort import LEAST_LARGEST, samples_within
from indexmill.pipeline.tune.request import TuneRequest
from indexmill.pipeline.tune.sample import check_enough, check_k, draw, level_of, sample_sizes


def test_samples_grow_fourfold_and_leave_queries_out() -> None:
    assert sample_sizes(1_000_000, 100_000, 2_000, None) == ((6_250, 25_000, 100_000), 2_000)
    assert sample_sizes(4_000, 100_000, 2_000, None) == ((900, 3_600), 400)
    assert sample_sizes(20_000, 100_000, 2_000, 501) == ((1_250, 5_000, 20_000), 500)


def test_memory_that_holds_the_least_samples_is_enough() -> None:
    spec = BuildSpec(input=["base.npy"], out="x.index", memory=LEAST_LARGEST << 20, workers=3)
    sizes, queries, workers = samples_within(
        TuneRequest(spec=spec), 4_000, lambda size, workers: size * workers << 20
    )
    assert (sizes, queries, workers) == ((800, LEAST_LARGEST), 400, 1)


def test_too_few_vectors_or_queries_or_too_many_neighbours_are_refused() -> None:
    with pytest.raises(InputError, match=r"3,999 vectors; expected at least 4,000"):
        check_enough(3_999)
    with pytest.raises(InputError, match=r"queries: 199; expected at least 200"):
        sample_sizes(9_000, 100_000, 2_000, 199)
    with pytest.raises(InputError, match=r"k: 91 neighbours wanted; expected 1 to 90"):
        check_k(91, (900, 3_600))
    with pytest.raises(InputError, match=r"use a smaller -k, or --effort high"):
        check_k(91, (900, 3_600), ", or --effort high")


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_samples_are_nested_and_truth_is_that_of_brute_force(metric: str, tmp_path: Path) -> None:
    vectors = points(1500, 2)
    drawn = draw(array_source(vectors), None, 1200, 300, metric, 1, tmp_path, Silent())
    order = np.argsort(np.lexsort(vectors.T))
    rank = {row.tobytes(): int(i) for row, i in zip(vectors, order, strict=True)}
    taken = [rank[row.tobytes()] for row in (*drawn.rows, *drawn.queries)]
    assert sorted(taken) == list(range(1500))  # all of them once: no query is a vector of a sample
    level = level_of(drawn, 400, metric, 10, 1, tmp_path)
    rows = np.load(level.path)
    assert np.array_equal(rows, drawn.rows[:400])
    wide, asked = rows.astype(np.float64), drawn.queries.astype(np.float64)
    if metric == "cosine":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
        asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    scores = ((wide[None] - asked[:, None]) ** 2).sum(axis=2)
    if metric == "ip":
        largest = (wide**2).sum(axis=1).max()
        scores = largest + (asked**2).sum(axis=1)[:, None] - 2 * asked @ wide.T
    np.testing.assert_allclose(level.queries.kth, np.sort(scores, axis=1)[:, 9], rtol=1e-4, atol=1e-5)


def test_an_unusable_vector_is_named_by_its_row(tmp_path: Path) -> None:
    vectors = points(900, 2)
    vectors[321, 4] = np.nan
    with pytest.raises(InputError, match=r"row 321: component 4 is nan"):
        draw(array_source(vectors), None, 800, 100, "l2", 1, tmp_path, Silent())
