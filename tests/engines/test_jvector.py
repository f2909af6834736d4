"""Exports to JVector, opened and searched by JVector."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.engines.environments import jvector_classpath
from tests.oracles.files.small_index import Aids, random_vectors, write_small_index
from tests.support.indexes.append import build
from tests.support.indexes.export import (
    K,
    assert_same_except_ties,
    our_search,
    our_search_counted,
    permuted_lists,
    whole_points,
)

import indexmill

VERSIONS = ("3.0.6", "4.0.0-rc.8")
QUERIES = whole_points(40, seed=8)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("jvector") / "ix", whole_points(3000), R=16, pq_bytes=8)


def search(
    version: str, folder: Path, queries: np.ndarray, list_size: int, similarity: str = "EUCLIDEAN", n: int = 0
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the k first slots found, (q, k), similarities to `n` codes, (q, n), and distances computed."""
    asked = folder.parent / "queries.bin"
    queries.astype(">f4").tofile(asked)
    command = ["java", "-cp", jvector_classpath(version), "Search", folder, asked, list_size, similarity, n]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    found = [[int(word) for word in line.split()[:K]] for line in lines[: len(queries)]]
    scores = [[float(word) for word in line.split()] for line in lines[len(queries) : -1]]
    return np.array(found), np.array(scores), int(lines[-1])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("list_size", [10, 16, 64])
def test_jvector_answers_as_our_own_search_does(
    index: Path, tmp_path: Path, version: str, list_size: int
) -> None:
    indexmill.export(index, "jvector", tmp_path / "out")
    theirs, _, visited = search(version, tmp_path / "out", QUERIES, list_size)
    ours, computed = our_search_counted(index, QUERIES, list_size)
    assert_same_except_ties(index, QUERIES, theirs, ours)
    assert visited == pytest.approx(computed, rel=0.03)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_graph_with_permuted_lists_does_not_pass(index: Path, tmp_path: Path, version: str) -> None:
    indexmill.export(permuted_lists(index, tmp_path / "wrong"), "jvector", tmp_path / "out")
    theirs, _, _ = search(version, tmp_path / "out", QUERIES, 16)
    with pytest.raises(AssertionError):
        assert_same_except_ties(index, QUERIES, theirs, our_search(index, QUERIES, 16))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("dtype", "metric", "similarity"),
    [
        ("float32", "l2", "EUCLIDEAN"),
        ("float32", "ip", "DOT_PRODUCT"),
        ("float32", "cosine", "COSINE"),
        ("uint8", "l2", "EUCLIDEAN"),
        ("sq16", "l2", "EUCLIDEAN"),
    ],
)
def test_vectors_and_codes_mean_what_they_mean_here(
    tmp_path: Path, version: str, dtype: str, metric: str, similarity: str
) -> None:
    n = 300
    small = write_small_index(
        tmp_path / "ix", n=n, dim=13, dtype=dtype, metric=metric, id_type="none", R=12, aids=Aids(n_chunks=5)
    )
    indexmill.export(small.path, "jvector", tmp_path / "out")
    queries = random_vectors(np.random.default_rng(3), 15, 13, dtype).astype(np.float32)
    theirs, scores, _ = search(version, tmp_path / "out", queries, n, similarity, n)
    mine = indexmill.open(small.path).search(queries.astype(small.vectors.dtype), K, L=n).slots
    assert (theirs == mine).mean() > 0.98
    chunks = pairwise(small.codebook.offsets)
    decoded = np.concatenate(
        [small.codebook.pivots[small.codes[:, j], a:b] for j, (a, b) in enumerate(chunks)], axis=1
    )
    decoded = decoded[:, :13].astype(np.float64)
    dots = queries @ decoded.T
    if similarity == "EUCLIDEAN":
        expected = 1 / (1 + ((queries[:, None] - decoded) ** 2).sum(axis=2))
    elif similarity == "DOT_PRODUCT":
        expected = (1 + dots) / 2
    else:
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(decoded, axis=1)
        expected = (1 + dots / lengths) / 2
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_snippet_runs(index: Path, tmp_path: Path, version: str) -> None:
    found = indexmill.export(index, "jvector", tmp_path / 'it"s here')
    script = tmp_path / "snippet.jsh"
    script.write_text(found["open"] + "/exit\n")
    command = ["jshell", "--class-path", jvector_classpath(version), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert len(done.stdout.splitlines()) == 64, done.stdout + done.stderr
