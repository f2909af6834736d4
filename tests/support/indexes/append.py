"""Clustered vectors, small builds and checks of an index, for the tests of append and merge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.oracles.files.verify import verify_index
from tests.oracles.graph.vamana import reachable

import indexmill
from indexmill.formats.graph.index import IndexFiles
from indexmill.reader import _native

SMALL = {"R": 12, "L": 30, "pq_bytes": 6, "entries": 16, "workers": 1}
DIM = 12


def points(n: int, seed: int, dtype: str = "float32") -> np.ndarray:
    """Vectors of 15 clusters; `seed` draws them, the clusters stay."""
    centres = np.random.default_rng(99).normal(size=(15, DIM)) * 3
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(15, size=n)] + rng.normal(size=(n, DIM))
    if dtype in ("uint8", "int8"):
        info = np.iinfo(dtype)
        return np.clip(rows * 10 + (info.max + info.min + 1) // 2, info.min, info.max).astype(dtype)
    return rows.astype(dtype)


def build(out: Path, vectors: Any, **parameters: Any) -> Path:
    indexmill.build(vectors, out, **{**SMALL, **parameters})
    return out


def append(out: Path, index: Path, vectors: Any) -> Path:
    indexmill.append(index, vectors, out=out)
    return out


def merge(out: Path, first: Path, second: Path) -> Path:
    indexmill.merge(first, second, out=out)
    return out


def manifest(index: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((index / "manifest.json").read_text())
    return found


def run_record(index: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((index / "run.json").read_text())
    return found


def assert_sound(index: Path) -> None:
    """Both decoders find nothing wrong, every vertex is reachable, lists are distinct and nearest first."""
    assert verify_index(index) == []
    assert _native.verify(str(index)) == []
    with IndexFiles(index) as files:
        nodes = files.graph.read_all()
        everyone = set(range(files.graph.n_vertices))
        assert reachable(nodes.neighbours, nodes.degrees, files.entries.medoid) == everyone
        for slot, degree in enumerate(nodes.degrees):
            assert slot not in nodes.neighbours[slot, :degree]


def recall(index: Path, vectors: np.ndarray, queries: np.ndarray, metric: str = "l2", k: int = 10) -> float:
    """Share of the true neighbours among `vectors`, in vector-id order, that a search finds."""
    v, q = vectors.astype(np.float64), queries.astype(np.float64)
    if metric == "cosine":
        v, q = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (v, q))
    keys = -(q @ v.T) if metric == "ip" else (v**2).sum(axis=1) - 2 * q @ v.T
    truth = np.argsort(keys, axis=1, kind="stable")[:, :k]
    found = indexmill.open(index).search(queries, k, L=60).vector_ids
    return float(
        np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), truth.tolist(), strict=True)])
    )
