"""Part *pq*: training and encoding by product quantization beside faiss, and the error of the codes."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from indexmill.builders.quantize.opq import train_opq
from indexmill.builders.quantize.pq import encode_pq, train_pq
from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.dataset import read_bin
from indexmill.jobs.bench.common.parameters import PQ_BYTES, SEED, THREADS
from indexmill.jobs.bench.partition.builds import Builds
from indexmill.jobs.bench.programs.faiss import load_faiss

#: Set, bytes of a code, and rotation.
CASES = (
    ("sift1m", PQ_BYTES, "none"),
    ("text40k", PQ_BYTES, "none"),
    ("text40k", PQ_BYTES // 2, "none"),
    ("embed768", 2 * PQ_BYTES, "none"),
    ("embed768", 2 * PQ_BYTES, "opq"),
)
#: Vectors that quantizers are trained on, as a build draws them; both take 65,536 of them.
_SAMPLE = 100_000
#: Rows of the runs that compile kernels, and rows looked at together.
_FEW, _ROWS = 10_000, 50_000

#: Trains and encodes with a rotation or none, adding its seconds to the dict; returns what decodes rows first to last.
Method = Callable[[Any, int, str, dict[str, float]], Callable[[int, int], Any]]


def measure(space: Builds) -> dict[str, Any]:
    """Train on a sample and encode a whole set, in turns; medians of seconds, and mean squared errors.

    faiss trains a rotation once, since that takes minutes.
    """
    found = []
    for name, n_bytes, rotation in CASES:
        base = np.array(read_bin(space.sets[name].base))
        rounds: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
        ours(base[:_FEW], n_bytes, rotation, {})
        for done in range(space.rounds):
            for method in METHODS if done == 0 or rotation == "none" else ("indexmill",):
                rounds[method].append(once(METHODS[method], base, n_bytes, rotation))
        row: dict[str, Any] = {"set": name, "pq_bytes": n_bytes, "rotation": rotation, "n": len(base)}
        for method, runs in rounds.items():
            parts = {part: median(run[part] for run in runs) for part in runs[0]}
            row[method] = parts | {"seconds": median(run["train_s"] + run["encode_s"] for run in runs)}
        for what in ("seconds", "error"):
            row[f"{what}_ratio"] = ratio(row["indexmill"][what], row["faiss"][what])
        found.append(row)
    return {"rows": found}


def once(quantize: Method, base: Any, n_bytes: int, rotation: str) -> dict[str, float]:
    """Train and encode once; seconds and error."""
    spent: dict[str, float] = {}
    decode = quantize(base, n_bytes, rotation, spent)
    return spent | {"error": _error(base, decode)}


def ours(base: Any, n_bytes: int, rotation: str, spent: dict[str, float]) -> Callable[[int, int], Any]:
    """Quantize as the stage *encode* does."""
    sample, train = _sample(base), train_pq if rotation == "none" else train_opq
    with threadpool_limits(1, "blas"):
        began = time.perf_counter()
        book = train(sample, n_bytes, seed=SEED, threads=THREADS)
        trained = time.perf_counter()
        codes = encode_pq(base, book, THREADS)
        _note(spent, began, trained)
    return lambda first, last: _turned_back(book.decoded(codes[first:last]), book.rotation)


def faiss(base: Any, n_bytes: int, rotation: str, spent: dict[str, float]) -> Callable[[int, int], Any]:
    """Quantize with `faiss.ProductQuantizer`, and `faiss.OPQMatrix`, which take float32."""
    library = load_faiss()
    sample, dim = _sample(base).astype(np.float32), base.shape[1]
    made, matrix = library.ProductQuantizer(dim, n_bytes, 8), np.eye(dim, dtype=np.float32)
    began = time.perf_counter()
    if rotation == "opq":
        turn = library.OPQMatrix(dim, n_bytes)
        turn.train(sample)
        matrix = library.vector_to_array(turn.A).reshape(dim, dim).T
        sample = sample @ matrix
    made.train(sample)
    trained = time.perf_counter()
    starts = range(0, len(base), _ROWS)
    turned = (base[at : at + _ROWS].astype(np.float32) for at in starts)
    if rotation == "opq":
        turned = (rows @ matrix for rows in turned)
    codes = np.vstack([made.compute_codes(rows) for rows in turned])
    _note(spent, began, trained)
    return lambda first, last: _turned_back(
        made.decode(codes[first:last]), None if rotation == "none" else matrix
    )


def _turned_back(rows: Any, rotation: Any) -> Any:
    return rows if rotation is None else rows @ rotation.T


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
