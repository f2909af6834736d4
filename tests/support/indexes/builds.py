"""Graph indexes of small arrays, built as a job would, and checks of an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.oracles.files.verify import verify_index

from indexmill.formats.sources.source import array_source
from indexmill.pipeline.build import run_build
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.reader import _native
from indexmill.reader.index import Index

#: Keys of a job that are not of its index.
RUN_KEYS = ("executor", "force", "memory", "ray_address", "work")
#: Stages of a build by the partition builder that goes through files.
REGION_STAGES = ["carve", "regions", "assign", "leaves", "choose", "unite", "link"]


def clustered(n: int, dim: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, dim)) * 4
    vectors = centres[rng.integers(0, 12, n)] + rng.normal(size=(n, dim))
    if dtype == "uint8":
        return np.clip(vectors * 10 + 128, 0, 255).astype(np.uint8)
    if dtype == "int8":
        return np.clip(vectors * 10, -128, 127).astype(np.int8)
    return vectors.astype(dtype)


def correlated(n: int, dim: int = 64, seed: int = 0) -> np.ndarray:
    """Vectors whose few directions of large variance are spread over all components: a rotation suits their codes."""
    rng = np.random.default_rng(seed)
    mixing, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))
    return (rng.normal(size=(n, dim)) * 0.85 ** np.arange(dim) @ mixing.T).astype(np.float32)


def far_away(queries: np.ndarray) -> np.ndarray:
    """Return queries moved out of the range of vectors: a little in all components, far in one, or far in all."""
    moved = queries.copy()
    moved[::3] += 5
    moved[1::3, 2] += 300
    moved[2::3] *= 50
    return moved


def build(
    out: Path | str,
    vectors: np.ndarray,
    *,
    workers: int = 1,
    progress: Progress | None = None,
    **parameters: Any,
) -> Path:
    """Build a graph index; `parameters` are of the index, or of the run."""
    settings = {"R": 12, "L": 30, "pq_bytes": 8, **parameters}
    run = {key: settings.pop(key) for key in RUN_KEYS if key in settings}
    spec = BuildSpec(
        input=["<array>"], out=str(out), workers=workers, parameters=Parameters(**settings), **run
    )
    run_build(spec, array_source(vectors), progress)
    return out


def data_files(index: Path) -> dict[str, bytes]:
    """Return the files of the present generation, and of those that share them, but run.json."""
    return {p.name: p.read_bytes() for p in index.iterdir() if p.is_file() and p.name != "run.json"}


def assert_sound(index: Path) -> None:
    assert verify_index(index) == []
    assert _native.verify(str(index)) == []


def recall(index: Path, vectors: np.ndarray, queries: np.ndarray, key: Any, k: int = 10) -> float:
    """Share of true neighbours found; `key(vectors, query)` is smaller for nearer vectors."""
    found = Index(index).search(queries, k, L=60).vector_ids
    truth = [
        np.argsort(key(vectors.astype(np.float64), q.astype(np.float64)), kind="stable")[:k] for q in queries
    ]
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), truth, strict=True)]))


def l2(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    return ((vectors - query) ** 2).sum(axis=1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
