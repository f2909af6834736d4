"""The generated benchmark set: its bytes, and its difficulty for searches."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from indexmill.jobs.bench.common import difficulty, generate
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.process import module


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def written(path: Path, n: int, seed: int = 1, stream: int = generate.BASE, threads: int = 2) -> Path:
    generate.write(path, generate.Manifold(seed), stream, n, threads)
    return path


def test_any_number_of_threads_writes_the_same_bytes(tmp_path: Path) -> None:
    n = 5 * generate.BLOCK + 17
    digests = {sha256(written(tmp_path / f"{threads}.u8bin", n, threads=threads)) for threads in (1, 2, 5)}
    assert len(digests) == 1
    assert sha256(written(tmp_path / "other.u8bin", n, seed=2)) not in digests


def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    n = generate.BLOCK + 1
    command = [*module(sys.executable, "common.generate"), "--n", str(n), "--seed", "1", "--queries", "100"]
    subprocess.run([*command, "--out", tmp_path / "a.u8bin"], check=True, capture_output=True)
    assert sha256(tmp_path / "a.u8bin") == sha256(written(tmp_path / "b.u8bin", n))
    queries = written(tmp_path / "c.u8bin", 100, stream=generate.QUERIES)
    assert sha256(tmp_path / "query.u8bin") == sha256(queries)


def test_a_block_is_made_alone_and_a_smaller_set_is_the_start_of_a_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "BLOCKS_AT_ONCE", 2)
    n = 3 * generate.BLOCK + 100
    whole = read_bin(written(tmp_path / "whole.u8bin", n))
    assert np.array_equal(whole[-100:], generate.Manifold(1).block(generate.BASE, 3)[:100])
    few = read_bin(written(tmp_path / "few.u8bin", generate.BLOCK + 5))
    assert np.array_equal(few, whole[: len(few)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.u8bin", "whole.u8bin"]


def test_generated_vectors_are_as_hard_as_descriptors_and_no_query_is_in_the_base(tmp_path: Path) -> None:
    base = read_bin(written(tmp_path / "base.u8bin", 60_000))
    queries = read_bin(written(tmp_path / "query.u8bin", 400, stream=generate.QUERIES))
    found = difficulty.measure(base, queries)
    # Both rise with n, to those of descriptors at some millions.
    assert 15 < found.lid < 21
    assert 1.8 < found.contrast < 2.2
    assert found.copies == 0
    assert len(np.unique(base, axis=0)) == len(base)
    within = difficulty.measure(base, sample=400)
    assert within.lid == pytest.approx(found.lid, rel=0.1)
    assert within.contrast == pytest.approx(found.contrast, rel=0.1)


def test_the_dimension_of_a_ball_is_its_own_and_a_line_has_one() -> None:
    random = np.random.default_rng(3)
    for dim, most in ((1, 0.1), (6, 0.6)):
        directions = random.standard_normal((20_000, dim))
        directions *= random.random((20_000, 1)) ** (1 / dim) / np.linalg.norm(
            directions, axis=1, keepdims=True
        )
        embedded = directions @ np.linalg.qr(random.standard_normal((20, dim)))[0].T
        found = difficulty.measure(embedded.astype(np.float32), np.zeros((1, 20), np.float32))
        # One estimate from 100 neighbours has a deviation of a tenth of itself.
        assert found.lid == pytest.approx(dim, abs=3 * most)


def test_the_estimator_agrees_with_its_formula_neighbour_by_neighbour() -> None:
    distances = np.array([[1.0, 2.0, 4.0], [0.0, 3.0, 9.0], [5.0, 5.0, 5.0]])
    expected = [
        -1 / (sum(math.log(d / row[-1]) for d in row if d) / sum(d > 0 for d in row)) for row in distances[:2]
    ]
    assert difficulty.local_dimensions(distances).tolist() == pytest.approx(expected)


def test_contrast_is_the_mean_distance_over_the_nearest_and_copies_are_counted() -> None:
    base = np.zeros((200, 2), np.float32)
    base[:, 0] = np.arange(200)
    found = difficulty.measure(base, np.array([[0, 0], [-1, 0]], np.float32))
    assert found.contrast == pytest.approx((99.5 + 100.5) / (0 + 1))
    assert found.copies == 0.5
    with pytest.raises(ValueError, match="100 neighbours"):
        difficulty.measure(base[:100], base[:1])


def test_two_distances_tell_the_dimension_and_copies_are_left_out() -> None:
    # In dimension d the ratio of the second distance to the nearest one exceeds mu with probability mu**-d.
    ratios = np.random.default_rng(4).random(20_000) ** (-1 / 6)
    distances = np.column_stack([np.ones(len(ratios)), ratios])
    assert difficulty.two_nearest_dimension(distances) == pytest.approx(6, rel=0.03)
    with_copy = np.vstack([distances, [[0.0, 1.0]]])
    assert difficulty.two_nearest_dimension(with_copy) == difficulty.two_nearest_dimension(distances)
    assert difficulty.two_nearest_dimension(np.ones((3, 2))) is None
