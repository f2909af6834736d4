"""Indexes made by diskannpy and small graphs of faiss, for the tests of imports."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.imports.index import ImportedIndex

DATA = Path(__file__).parents[2] / "data" / "diskann.zip"
#: Folders of the archive, type of the components and metric.
DISKANN = {
    "float32": ("float32", "l2"),
    "uint8": ("uint8", "l2"),
    "int8": ("int8", "l2"),
    "product": ("float32", "ip"),
    "memory": ("float32", "cosine"),
}


def unpack_diskann(folder: Path) -> Path:
    """Extract the indexes of diskannpy: ``NAME/ann`` in `folder` is a prefix, ``answers.npz`` what it answers."""
    with zipfile.ZipFile(DATA) as archive:
        archive.extractall(folder)
    return folder


def read_all(index: ImportedIndex) -> tuple[np.ndarray, list[list[int]]]:
    """Return the vectors and lists of another program's index, as our parser reads them."""
    n = index.vectors.n_rows
    vectors = np.concatenate([block.vectors for block in index.vectors.blocks(97)])
    lists: list[list[int]] = []
    for block in index.lists.blocks():
        assert block.first == len(lists)
        lists += [row[:degree].tolist() for row, degree in zip(block.neighbours, block.degrees, strict=True)]
    assert len(vectors) == len(lists) == n
    return vectors, lists


def lists_of(index: Path) -> list[list[int]]:
    """Return the neighbour lists of one of our indexes, in slot order."""
    with IndexFiles(index) as files:
        nodes = files.graph.read_all()
    return [row[:degree].tolist() for row, degree in zip(nodes.neighbours, nodes.degrees, strict=True)]


def costs(vectors: np.ndarray, queries: np.ndarray, ids: np.ndarray, metric: str) -> np.ndarray:
    """What each of `ids`, (q, k), costs: smaller is nearer, in every metric."""
    wide, asked = vectors.astype(np.float64), queries.astype(np.float64)
    if metric == "cosine":
        wide, asked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (wide, asked))
    found: Any = wide[ids]
    if metric == "l2":
        return ((found - asked[:, None]) ** 2).sum(axis=2)
    return -np.einsum("qkd,qd->qk", found, asked)


def clustered_rows(n: int, dim: int = 8, seed: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(6, dim)) * 3
    return (centres[rng.integers(6, size=n)] + rng.normal(size=(n, dim))).astype(np.float32)
