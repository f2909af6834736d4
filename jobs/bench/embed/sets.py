"""Vectors of the benchmark of embeddings: those that it is given, the bundled words, and other numbers of components.

Where vectors of another length come from:

* 384 components: the first half of each vector of ``embed768``, the mean of the model's last states, of length 1 again.
* 1,536 and 3,072: a substitute, since no model of that size is at hand. Beside the 768 components stand as many random
  ReLU features of them as are missing, ``max(0, x W)`` with normal W. Both halves have about the same length. All of it
  is turned by a random rotation, so that no component is one of the model's, and has length 1 again. Distances of such
  features grow with the angle between two vectors, so neighbours are nearly those of the sentences, and as hard to
  find, in as many components as larger models write. They are no vectors of such a model.

More vectors than are at hand are a substitute, too: those of ``sift1m`` three times, two of these with noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import (
    TRUTH_K,
    Dataset,
    K,
    embeddings,
    read_bin,
    read_truth,
    write_bin,
    write_blocks,
)
from indexmill.jobs.bench.common.difficulty import local_dimensions
from indexmill.jobs.bench.common.parameters import SEED
from indexmill.jobs.bench.common.process import run_indexmill
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.devices.machine import REPOSITORY

#: The set that all figures beside DiskANN are of, and that others are made from.
SENTENCES = "embed768"
#: Sets by their components.
BY_COMPONENTS = {384: "embed384", 768: SENTENCES, 1536: "lifted1536", 3072: "lifted3072"}
#: The vectors of a set `TIMES` times, copies with integers of up to `NOISE` added to each component; and its queries.
REPEATED, _SOURCE, TIMES, NOISE, _REPEATED_QUERIES = "sift3m", "sift1m", 3, 3, 512
#: The bundled words.
WORDS = REPOSITORY / "jobs" / "data" / "words20k" / "words.parquet"
#: Words that are asked for; the others are the base.
WORD_QUERIES = 2_000
#: Rows made at a time.
ROWS = 8_192


@dataclass(frozen=True)
class Case:
    """A set of vectors and the folder that its indexes lie in.

    Attributes
    ----------
    name : str
    space : Workspace
    metric : str or None
        As a user of such vectors gives it; None for the default.
    """

    name: str
    space: Workspace
    metric: str | None

    @property
    def is_float(self) -> bool:
        """Whether nodes may be smaller than the vectors."""
        return bool(self.space.data.dtype().kind == "f")


@dataclass(frozen=True)
class Embeddings:
    """All sets of a run.

    Attributes
    ----------
    run : Run
    rounds : int or None
        As it was asked for.
    """

    run: Run
    rounds: int | None = None

    def case(self, name: str) -> Case:
        """Return a set; one that the run is not given is written first unless it is there."""
        out = self.run.out if name == SENTENCES else self.run.out / name
        out.mkdir(parents=True, exist_ok=True)
        data = self.run.sets[name] if name in self.run.sets else self._made(name)
        return Case(name, Workspace(data, out), None if name in (_SOURCE, REPEATED) else "cosine")

    def _made(self, name: str) -> Dataset:
        rows = self.run.rows
        data = Dataset(self.run.out / "data" / (f"{name}-{rows}" if rows else name))
        if data.truth.exists():
            return data
        data.folder.mkdir(parents=True, exist_ok=True)
        if name == "words20k":
            write_words(data.folder, rows)
        elif name == REPEATED:
            write_repeated(self.run.sets[_SOURCE], data.folder)
        else:
            (dim,) = (dim for dim, known in BY_COMPONENTS.items() if known == name)
            source = self.run.sets[SENTENCES]
            own = source.shape()[1]
            write_changed(source, data.folder, dim, half if dim < own else Lift(own, dim))
        # The truth comes last: a set that has it is whole.
        log, n_neighbours = data.folder / "truth.log", min(TRUTH_K, data.shape()[0])
        run_indexmill(log, "truth", data.base, data.query, k=n_neighbours, out=data.truth)
        return data


def write_words(folder: Path, rows: int | None) -> None:
    """Write the bundled words: `WORD_QUERIES` drawn ones as queries, of the others the first `rows` as the base."""
    words = embeddings(WORDS)
    asked = np.zeros(len(words), bool)
    asked[np.random.default_rng(SEED).choice(len(words), WORD_QUERIES, replace=False)] = True
    write_bin(folder / "base.fbin", words[~asked][:rows])
    write_bin(folder / "query.fbin", words[asked])


def write_repeated(source: Dataset, folder: Path) -> None:
    """Write the base of a set of bytes `TIMES` times, each copy but the first with noise, and its first queries."""
    rows, random = read_bin(source.base), np.random.default_rng(SEED)

    def blocks() -> Iterator[Any]:
        for copy in range(TIMES):
            for at in range(0, len(rows), ROWS):
                block = np.asarray(rows[at : at + ROWS], np.int16)
                noise = random.integers(-NOISE, NOISE + 1, block.shape, np.int16) if copy else 0
                yield np.clip(block + noise, 0, 255).astype(np.uint8)

    write_blocks(folder / "base.u8bin", (TIMES * len(rows), rows.shape[1]), blocks())
    write_bin(folder / "query.u8bin", read_bin(source.query)[:_REPEATED_QUERIES])


def write_changed(source: Dataset, folder: Path, dim: int, change: Callable[[Any], Any]) -> None:
    """Write base and queries of a set after a change, which makes rows of `dim` components of rows."""
    for path, name in ((source.base, "base.fbin"), (source.query, "query.fbin")):
        rows = read_bin(path)
        blocks = (change(np.asarray(rows[at : at + ROWS])) for at in range(0, len(rows), ROWS))
        write_blocks(folder / name, (len(rows), dim), blocks)


def half(rows: Any) -> Any:
    """Return the first half of each row, of length 1."""
    return _normalised(rows[:, : rows.shape[1] // 2])


class Lift:
    """Random ReLU features beside rows, and a rotation of both; see the module.

    Parameters
    ----------
    dim : int
        Components of a row, which has length 1.
    wanted : int
        Those of the result, more than `dim`.
    """

    def __init__(self, dim: int, wanted: int) -> None:
        random = np.random.default_rng([SEED, wanted])
        features = random.standard_normal((dim, wanted - dim), np.float32)
        # Half of the squares of a normal variable are left: the features of a row of length 1 have length 1.
        self.features = features * np.float32(np.sqrt(2 / (wanted - dim)))
        self.rotation = np.linalg.qr(random.standard_normal((wanted, wanted)))[0].astype(np.float32)

    def __call__(self, rows: Any) -> Any:
        """Return rows of `wanted` components."""
        return _normalised(np.hstack([rows, np.maximum(rows @ self.features, 0)]) @ self.rotation)


def _normalised(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def likeness(data: Dataset, source: Dataset) -> dict[str, float]:
    """Return how hard a set is to search, and the share of the true neighbours that it has in common with its source.

    ``lid`` is the mean local intrinsic dimension of its queries (`difficulty.local_dimensions`).
    """
    mine, theirs = (read_truth(one.truth)[0][:, :K] for one in (data, source))
    same = (mine[:, :, None] == theirs[:, None, :]).any(axis=2)
    distances = np.sqrt(np.asarray(read_truth(data.truth)[1], np.float64))
    return {"lid": float(local_dimensions(distances).mean()), "same_neighbours": float(same.mean())}
