"""Stage *encode*: the PQ codebook and a code for every vector, both in vector-id order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from indexmill.builders.opq import train_opq
from indexmill.builders.pq import encode_pq, train_pq
from indexmill.formats.codes import Codebook
from indexmill.formats.mapped import create_npy

VERSION = 3


def encode_task(
    vectors: str,
    sample: str,
    pq_bytes: int,
    rotation: str,
    seed: int,
    out: str,
    threads: int,
    advance: Any = None,
) -> None:
    """Train on ``sample.npy`` and write ``codebook.npz`` and ``codes.npy``; `rotation` is "none" or "opq"."""
    directory = Path(out)
    drawn = np.load(Path(sample) / "sample.npy", mmap_mode="r")
    train = {"none": train_pq, "opq": train_opq}[rotation]
    codebook = train(drawn, pq_bytes, seed=seed, threads=threads)
    rows = np.load(vectors, mmap_mode="r")
    report = {} if advance is None else {"advance": advance}
    shape = (len(rows), len(codebook.offsets) - 1)
    codes = create_npy(directory / "codes.npy", np.uint8, shape)
    encode_pq(rows, codebook, threads, **report, out=codes)
    codes.flush()
    save_codebook(codebook, directory)


def save_codebook(codebook: Codebook, directory: Path) -> None:
    """Write ``codebook.npz``."""
    parts = {name: value for name, value in vars(codebook).items() if value is not None}
    np.savez(directory / "codebook.npz", **parts)


def load_codebook(directory: Path) -> Codebook:
    """Read what `encode_task` wrote."""
    with np.load(directory / "codebook.npz") as arrays:
        return Codebook(**{name: arrays[name] for name in arrays.files})
