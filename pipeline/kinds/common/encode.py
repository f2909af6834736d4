"""Stage *encode*: the PQ codebook and a code for every vector, both in vector-id order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu, open_gpu
from indexmill.builders.quantize.asked import choose_codes
from indexmill.builders.quantize.gpu import encode_pq_on, train_pq_on
from indexmill.builders.quantize.opq import train_opq
from indexmill.builders.quantize.pq import encode_pq, train_pq
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.kinds.common.shared import CODEBOOK_NAME

VERSION = 5


def encode_task(
    vectors: str,
    sample: str,
    pq_bytes: int,
    rotation: str,
    seed: int,
    compute: str,
    spread: str | None,
    out: str,
    threads: int,
    advance: Any = None,
) -> None:
    """Train on ``sample.npy`` and write ``codebook.npz`` and ``codes.npy``.

    A codebook that lies beside the vectors is taken as it is: that of the set of which they are a part.

    Parameters
    ----------
    rotation : {"none", "opq"}
    spread : str, optional
        File of the directions in which queries lie, by which codes are chosen (`builders.quantize.asked`).
    """
    directory, gpu = Path(out), open_gpu(compute)
    codebook = given_codebook(Path(vectors).parent)
    if codebook is None:
        drawn = np.load(Path(sample) / "sample.npy", mmap_mode="r")
        if rotation == "opq":  # learnt on the processor
            codebook = train_opq(drawn, pq_bytes, seed=seed, threads=threads)
        else:
            codebook = trained(drawn, pq_bytes, seed, gpu, threads)
    rows = np.load(vectors, mmap_mode="r")
    report = {} if advance is None else {"advance": advance}
    shape = (len(rows), len(codebook.offsets) - 1)
    codes = create_npy(directory / "codes.npy", np.uint8, shape)
    if spread is None:
        encoded(rows, codebook, gpu, threads, **report, out=codes)
    else:
        encoded(rows, codebook, gpu, threads, out=codes)
        choose_codes(rows, codebook, np.load(spread), codes, threads, **report)
    codes.flush()
    save_codebook(codebook, directory)


def save_codebook(codebook: Codebook, directory: Path) -> None:
    """Write ``codebook.npz``."""
    parts = {name: value for name, value in vars(codebook).items() if value is not None}
    np.savez(directory / CODEBOOK_NAME, **parts)


def trained(
    sample: NDArray[Any], pq_bytes: int, seed: int, gpu: Gpu | None = None, threads: int = 1
) -> Codebook:
    """Return the codebook of a sample (n_sample, dim), trained on a GPU or here."""
    if gpu is not None:
        return train_pq_on(gpu, sample, pq_bytes, seed=seed)
    return train_pq(sample, pq_bytes, seed=seed, threads=threads)


def encoded(
    vectors: NDArray[Any], codebook: Codebook, gpu: Gpu | None = None, threads: int = 1, **how: Any
) -> NDArray[np.uint8]:
    """Return the codes of vectors (n, dim), computed on a GPU or here; `how`: the `advance` and `out` of either.

    Vectors that a rotation is for are rotated and coded here.
    """
    if gpu is not None and codebook.rotation is None:
        return encode_pq_on(gpu, vectors, codebook, **how)
    return encode_pq(vectors, codebook, threads, **how)


def load_codebook(directory: Path) -> Codebook:
    """Read what `save_codebook` wrote."""
    with np.load(directory / CODEBOOK_NAME) as arrays:
        return Codebook(**{name: arrays[name] for name in arrays.files})


def given_codebook(ingest: Path) -> Codebook | None:
    """Return the codebook that stage *ingest* put beside the vectors, if it did."""
    return load_codebook(ingest) if (ingest / CODEBOOK_NAME).exists() else None
