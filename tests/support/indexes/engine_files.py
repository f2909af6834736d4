"""Other engines' files as a layout reads and writes them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from indexmill.formats.reordered.graph_file import GraphFile
from indexmill.formats.reordered.opening import open_engine_file


def reordered(path: Path, order: np.ndarray) -> bytes:
    """Return what the file at `path` is in another order."""
    out = io.BytesIO()
    open_engine_file(path).write(order.astype(np.uint32), out, lambda items: None)
    return out.getvalue()


def read_whole(path: Path) -> None:
    """Read and write everything, as a layout does."""
    file = open_engine_file(path)
    if isinstance(file, GraphFile):
        for _ in file.lists.blocks():
            pass
    file.write(np.arange(file.n, dtype=np.uint32)[::-1], io.BytesIO(), lambda items: None)


def check_there_and_back(path: Path, seed: int) -> None:
    """Check that a random order and its inverse give the file back; what lies between is written beside it."""
    order = np.random.default_rng(seed).permutation(open_engine_file(path).n)
    there = path.with_name("there")
    there.write_bytes(reordered(path, order))
    assert reordered(there, np.argsort(order)) == path.read_bytes()
