"""The codebook of an extended index: how much its codes err on added vectors, and a new one where they err too much."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.opq import BLOCK as OPQ_BLOCK
from indexmill.builders.quantize.opq import train_opq
from indexmill.builders.quantize.pq import TRAINING_VECTORS, encode_pq, train_pq
from indexmill.formats.graph.codes import Codebook
from indexmill.pipeline.append.scratch import GrowingGraph
from indexmill.pipeline.generations.node_space import NodeSpace
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.kinds.common.memory import THREAD_BYTES

#: Error of the added vectors' codes over that of the built ones' from which a rebuild is advised, or a merge trains a
#: codebook: about 5% more page reads than those of a rebuild were measured there (docs/benchmarks.md, Appends).
REBUILD_CODE_ERROR = 1.75
#: Vectors of either kind whose code error is measured.
_ERROR_SAMPLE = 10_000


class CodeErrors(NamedTuple):
    """Mean squared errors of codes.

    Attributes
    ----------
    coded : int
        Vectors that there were when the codebook was trained: in the last build, or later in a merge.
    built : float
        Error of these vectors.
    added : float or None
        Error of vectors added since; None if there are none.
    ratio : float or None
        `added` over `built`, corrected by `optimism`; None without added vectors, and where `built` is 0 or a centre
        was trained by one row.
    """

    coded: int
    built: float
    added: float | None
    ratio: float | None

    @property
    def are_large(self) -> bool:
        """Whether another codebook would pay."""
        return self.ratio is not None and self.ratio >= REBUILD_CODE_ERROR


def code_errors(index: OpenedIndex, graph: GrowingGraph) -> CodeErrors:
    """Return the errors of the codes of `index` on its vectors, and on those added since its codebook was trained.

    A layout mixes the two in its slots: there the errors are those that the manifest has, and what was added after it
    counts by its number.
    """
    n, coded, codebook = len(graph.vectors), coded_vectors(index), index.codes.codebook
    new = code_error(graph.vectors[index.laid_out :], index.space, codebook)
    if index.laid_out == coded:
        old = code_error(graph.vectors[:coded], index.space, codebook)
    else:
        recorded = index.manifest.drift or {}
        old, before = (float(recorded[key] or 0) for key in ("code_error_built", "code_error_added"))
        new = (before * (index.laid_out - coded) + new * (n - index.laid_out)) / (n - coded)
    trained = min(coded, index.parameters.sample_vectors, TRAINING_VECTORS)
    fit = optimism(trained / len(codebook.pivots))
    ratio = round(new / old / fit, 6) if old > 0 and fit is not None else None
    return CodeErrors(coded, old, new, ratio)


def trained_anew(
    index: OpenedIndex, graph: GrowingGraph, threads: int, available: int
) -> tuple[Codebook, CodeErrors]:
    """Return a codebook of all vectors, with as many bytes of a code and a rotation if `index` has one; and its errors.

    Memory: `training_bytes`, of as many threads as fit `available` bytes.
    """
    p, n, old = index.parameters, len(graph.vectors), index.codes.codebook
    rows = np.linspace(0, n - 1, min(n, p.sample_vectors, TRAINING_VECTORS)).astype(np.int64)
    chunks = len(old.offsets) - 1
    one = training_bytes(index, n, 1)
    each = training_bytes(index, n, 2) - one
    usable = max(1, min(threads, 1 + (available - one) // each))
    train = train_pq if old.rotation is None else train_opq
    codebook = train(index.space.as_given(graph.vectors[rows]), chunks, seed=p.seed, threads=usable)
    return codebook, CodeErrors(n, code_error(graph.vectors, index.space, codebook), None, None)


def training_bytes(index: OpenedIndex, n: int, threads: int) -> int:
    """Return the memory of `trained_anew` for `n` vectors."""
    p, dim, codebook = index.parameters, index.space.node.dim, index.codes.codebook
    rows, chunks = min(n, p.sample_vectors, TRAINING_VECTORS), len(codebook.offsets) - 1
    need = rows * dim * (4 + index.space.dtype.itemsize)
    each = rows * (4 * -(-dim // chunks) + 16) + THREAD_BYTES
    if codebook.rotation is not None:
        need += rows * (4 * dim + chunks) + 40 * dim * dim
        each += OPQ_BLOCK * (8 * dim + 4 * chunks) + 12 * dim * dim
    return need + threads * each


def error_bytes(index: OpenedIndex, n: int) -> int:
    """Return the memory of `code_errors` of `n` vectors: of those that are drawn, as given, rotated and decoded."""
    codebook, given = index.codes.codebook, index.space.dtype.itemsize
    # floats without a rotation stay as they are
    copies = 1 if given == 4 and codebook.rotation is None else 2
    dim, chunks = index.space.node.dim, len(codebook.offsets) - 1
    each = (
        dim * (given + 4 * copies) + chunks + 4 * -(-dim // chunks) + 16
    )  # codes, one chunk decoded, and numbers
    return each * min(n, _ERROR_SAMPLE)


def code_error(vectors: NDArray[Any], space: NodeSpace, codebook: Codebook) -> float:
    """Return the mean squared error of the codes of compared rows (m, dim), of at most 10,000 evenly spaced ones."""
    chosen = np.linspace(0, len(vectors) - 1, min(len(vectors), _ERROR_SAMPLE)).astype(np.int64)
    sample = space.as_given(vectors[chosen])
    rotated, difference = codebook.rotated(sample), codebook.decoded(encode_pq(sample, codebook))
    np.subtract(rotated, difference, out=difference)
    return float(np.einsum("ij,ij->", difference, difference, dtype=np.float64)) / len(sample)


def coded_vectors(index: OpenedIndex) -> int:
    """Return how many vectors there were when the codebook was trained: in the last build, or later in a merge."""
    recorded = (index.manifest.drift or {}).get("coded_vectors")
    return recorded if isinstance(recorded, int) and 1 <= recorded <= index.n else index.built


def optimism(rows_per_centre: float) -> float | None:
    """Return by what factor codes err more on new rows than on those that trained them, though both are alike.

    The mean of m rows with variance v has variance v / m: its rows lie v (1 - 1/m) from it on average, others
    v (1 + 1/m). None where a centre has a single row, and an error of zero says nothing.
    """
    m = rows_per_centre
    return (m + 1) / (m - 1) if m > 1 else None
