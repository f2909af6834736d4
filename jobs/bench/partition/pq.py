"""Part *pq*: training and encoding by product quantization beside faiss, and the error of the codes."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.builders.quantize.pq import encode_pq, train_pq
from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import PQ_BYTES, SEED, THREADS
from indexmill.jobs.bench.partition.builds import Builds
from indexmill.jobs.bench.programs.faiss import load_faiss

#: Set and bytes of a code.
CASES = (("sift1m", PQ_BYTES), ("text40k", PQ_BYTES), ("text40k", PQ_BYTES // 2))
#: Vectors that quantizers are trained on, as a build draws them; both take 65,536 of them.
_SAMPLE = 100_000
#: Rows of the runs that compile kernels, and rows looked at together.
_FEW, _ROWS = 10_000, 50_000

#: Trains and encodes, adding its seconds to the dict; returns what decodes rows first to last.
Method = Callable[[Any, int, dict[str, float]], Callable[[int, int], Any]]


def measure(space: Builds) -> dict[str, Any]:
    """Train on a sample and encode a whole set, in turns; medians of seconds, and mean squared errors."""
    found = []
    for name, n_bytes in CASES:
        base = np.array(read_bin(space.sets[name].base))
        for quantize in METHODS.values():
            quantize(base[:_FEW], n_bytes, {})
        rounds = [_round(base, n_bytes) for _ in range(space.rounds)]
        row: dict[str, Any] = {"set": name, "pq_bytes": n_bytes, "n": len(base)}
        for method in METHODS:
            parts = {part: median(one[method][part] for one in rounds) for part in rounds[0][method]}
            row[method] = parts | {"seconds": median(_seconds(one[method]) for one in rounds)}
        for what in ("seconds", "error"):
            row[f"{what}_ratio"] = ratio(row["indexmill"][what], row["faiss"][what])
        found.append(row)
    return {"rows": found}


def _round(base: Any, n_bytes: int) -> dict[str, dict[str, float]]:
    """Let each method train and encode once; seconds and error of each."""
    found = {}
    for name, quantize in METHODS.items():
        spent: dict[str, float] = {}
        decode = quantize(base, n_bytes, spent)
        found[name] = spent | {"error": _error(base, decode)}
    return found


def _seconds(spent: dict[str, float]) -> float:
    return spent["train_s"] + spent["encode_s"]


def ours(base: Any, n_bytes: int, spent: dict[str, float]) -> Callable[[int, int], Any]:
    """Quantize as the stage *encode* does."""
    sample = _sample(base)
    with threadpool_limits(1, "blas"):
        began = time.perf_counter()
        book = train_pq(sample, n_bytes, seed=SEED, threads=THREADS)
        trained = time.perf_counter()
        codes = encode_pq(base, book, THREADS)
        _note(spent, began, trained)
    chunks = list(zip(book.offsets[:-1], book.offsets[1:], strict=True))

    def decode(first: int, last: int) -> Any:
        some = codes[first:last]
        return np.hstack([book.pivots[some[:, j], a:b] for j, (a, b) in enumerate(chunks)])

    return decode


def faiss(base: Any, n_bytes: int, spent: dict[str, float]) -> Callable[[int, int], Any]:
    """Quantize with `faiss.ProductQuantizer`, which takes float32."""
    library = load_faiss()
    sample = _sample(base).astype(np.float32)
    made = library.ProductQuantizer(base.shape[1], n_bytes, 8)
    began = time.perf_counter()
    made.train(sample)
    trained = time.perf_counter()
    starts = range(0, len(base), _ROWS)
    codes = np.vstack([made.compute_codes(base[at : at + _ROWS].astype(np.float32)) for at in starts])
    _note(spent, began, trained)
    return lambda first, last: made.decode(codes[first:last])


METHODS: dict[str, Method] = {"indexmill": ours, "faiss": faiss}


def _sample(base: Any) -> Any:
    return base[np.linspace(0, len(base) - 1, min(len(base), _SAMPLE)).astype(np.int64)]


def _note(spent: dict[str, float], began: float, trained: float) -> None:
    spent |= {"train_s": trained - began, "encode_s": time.perf_counter() - trained}


def _error(base: Any, decode: Callable[[int, int], Any]) -> float:
    """Return the mean squared distance between vectors and what their codes stand for."""
    total = 0.0
    for first in range(0, len(base), _ROWS):
        some = base[first : first + _ROWS]
        apart = some - decode(first, first + len(some))
        total += float(np.einsum("ij,ij->", apart, apart, dtype=np.float64))
    return total / len(base)
