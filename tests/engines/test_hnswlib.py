"""hnswlib's files, laid out for hnswlib itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.engines.environments import Search
from tests.support.cli import run

from indexmill.formats.reordered.opening import open_engine_file

N, DIM, K = 4000, 24, 10


def vectors(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


@pytest.mark.parametrize("space", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("order", ["star", "graph-bisection"])
def test_hnswlib_finds_the_same_labels_at_the_same_distances(
    client: Search, tmp_path: Path, space: str, order: str
) -> None:
    old, new = tmp_path / "old.bin", tmp_path / "new.bin"
    client("hnswlib", "hnswlib_client.py", old, vectors(N, 1), build=True, space=space, M=8)
    done = run("layout", old, "--out", new, "--order", order)
    assert done.exit_code == 0, done.stderr
    assert new.read_bytes() != old.read_bytes()
    assert open_engine_file(new).size == old.stat().st_size
    for list_size in (K, 40, 200):
        asked = {"build": False, "space": space, "L": list_size, "k": K}
        one, other = (
            dict(client("hnswlib", "hnswlib_client.py", path, vectors(50, 2), **asked)) for path in (old, new)
        )
        assert np.array_equal(one["ids"], other["ids"])
        assert np.array_equal(one["distances"], other["distances"])
        assert 10**12 + 3 not in other["ids"]
