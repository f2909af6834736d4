"""Sets whose queries are unlike their vectors: generated modalities, and texts whose words are pooled in two ways.

Queries, and vectors unless they are made for inner product, have length 1.

Text: the vectors are those of text40k. A vector for each word that three texts have is fitted to them by least squares,
such that the mean of a text's words is near to its vector. A query is the greatest value of each component over the
words of another text, divided by its length.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from indexmill.jobs.bench.common.dataset import embeddings
from indexmill.jobs.bench.common.modalities import Modalities
from indexmill.jobs.bench.common.parameters import SEED

#: Vectors and sampled queries of generated modalities; texts of text40k that are vectors, the others are sampled.
MODALITIES, SAMPLED, TEXTS = 50_000, 25_000, 30_000
#: Queries that tune and report.
QUERIES = 1000
#: Standard deviation of the logarithm of lengths, where vectors have lengths, and their random stream.
_SPREAD, _LENGTHS = 0.3, 1
#: Texts that a word is in at least, and words of a text at least.
_LEAST_TEXTS, _LEAST_WORDS = 3, 2
#: Ridge of the fit, as a share of the mean diagonal of its matrix, and steps of conjugate gradients.
_RIDGE, _STEPS = 1e-4, 60
_WORD = re.compile(r"\w+|[^\w\s]")


class Apart(NamedTuple):
    """Vectors; a sample of queries, others that are unlike the vectors, and some that are like them."""

    base: NDArray[np.float32]
    sample: NDArray[np.float32]
    apart: NDArray[np.float32]
    alike: NDArray[np.float32]


def modalities(n: int = MODALITIES, n_sample: int = SAMPLED) -> Apart:
    """Return the generated set."""
    world = Modalities(SEED)
    return Apart(
        world.draw("vectors", n, 0),
        world.draw("queries", n_sample, 0),
        world.draw("queries", QUERIES, 1),
        world.draw("vectors", QUERIES, 1),
    )


def with_lengths(made: Apart) -> Apart:
    """Return a set whose vectors have log-normal lengths, for inner product."""
    random = np.random.default_rng([SEED, _LENGTHS])
    lengths = np.exp(_SPREAD * random.standard_normal((len(made.base), 1)))
    return made._replace(base=(made.base * lengths).astype(np.float32))


def pooled_texts(folder: Path, n: int = TEXTS) -> Apart:
    """Return the set of text40k in `folder`."""
    texts, asked = (_texts(folder / f"{name}.parquet") for name in ("base", "query"))
    base, alike = (embeddings(folder / f"{name}.parquet") for name in ("base", "query"))
    counts = Counter(word for text in texts for word in set(text))
    places = {
        word: i for i, word in enumerate(sorted(w for w, count in counts.items() if count >= _LEAST_TEXTS))
    }
    words = _fitted(_means(texts, places), base)
    sample, apart = (_greatest(some, places, words) for some in (texts[n:], asked))
    return Apart(
        np.ascontiguousarray(base[:n]), sample, apart[:QUERIES], np.ascontiguousarray(alike[:QUERIES])
    )


def _texts(path: Path) -> list[list[str]]:
    """Return the words of each text."""
    column = pq.read_table(path, columns=["text"])["text"].to_pylist()
    return [[word.lower() for word in _WORD.findall(text)] for text in column]


def _means(texts: list[list[str]], places: dict[str, int]) -> Any:
    """Return the sparse matrix that takes vectors of words to the mean of each text."""
    known = [[places[word] for word in text if word in places] for text in texts]
    rows = np.repeat(np.arange(len(texts)), [len(words) for words in known])
    columns = np.array([word for words in known for word in words])
    shares = np.array([1 / len(words) for words in known for _ in words], np.float32)
    return csr_matrix((shares, (rows, columns)), (len(texts), len(places)))


def _fitted(means: Any, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors of words whose means are near to `vectors`: conjugate gradients of the normal equations."""
    ridge = _RIDGE * means.shape[0] / means.shape[1]
    fitted = np.zeros((means.shape[1], vectors.shape[1]), np.float32)
    left = means.T @ vectors
    step, squares = left.copy(), (left * left).sum(axis=0)
    for _ in range(_STEPS):
        moved = means.T @ (means @ step) + ridge * step
        length = squares / np.maximum((step * moved).sum(axis=0), np.finfo(np.float32).tiny)
        fitted += length * step
        left -= length * moved
        before, squares = squares, (left * left).sum(axis=0)
        step = left + squares / np.maximum(before, np.finfo(np.float32).tiny) * step
    return fitted


def _greatest(
    texts: list[list[str]], places: dict[str, int], words: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the greatest components of the words of each text, of those with several words, at length 1."""
    known = [[places[word] for word in text if word in places] for text in texts]
    pooled = np.array([words[some].max(axis=0) for some in known if len(some) >= _LEAST_WORDS])
    unit: NDArray[np.float32] = (pooled / np.linalg.norm(pooled, axis=1, keepdims=True)).astype(np.float32)
    return unit
