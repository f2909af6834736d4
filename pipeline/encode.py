"""Stage *encode*: the PQ codebook and a code for every vector, both in vector-id order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from indexmill.builders.pq import encode_pq, train_pq
from indexmill.formats.codes import Codebook
from indexmill.formats.mapped import create_npy

VERSION = 2


def encode_task(
    vectors: str, sample: str, pq_bytes: int, seed: int, out: str, threads: int, advance: Any = None
) -> None:
    """Train on ``sample.npy`` and write ``codebook.npz`` and ``codes.npy``."""
    directory = Path(out)
    drawn = np.load(Path(sample) / "sample.npy", mmap_mode="r")
    codebook = train_pq(drawn, pq_bytes, seed=seed, threads=threads)
    rows = np.load(vectors, mmap_mode="r")
    report = {} if advance is None else {"advance": advance}
    shape = (len(rows), len(codebook.offsets) - 1)
    codes = create_npy(directory / "codes.npy", np.uint8, shape)
    encode_pq(rows, codebook, threads, **report, out=codes)
    codes.flush()
    np.savez(directory / "codebook.npz", pivots=codebook.pivots, offsets=codebook.offsets)


def load_codebook(directory: Path) -> Codebook:
    """Read what `encode_task` wrote."""
    with np.load(directory / "codebook.npz") as arrays:
        return Codebook(arrays["pivots"], arrays["offsets"])
