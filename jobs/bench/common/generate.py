"""Write vectors that are as hard to search as SIFT descriptors, as many as wanted, from a seed.

    python -m indexmill.jobs.bench.common.generate --n 3000000 --seed 1 --out base.u8bin

`difficulty` measures how hard they are. Vectors are made in blocks that depend on seed and position alone: any
number of threads writes the same bytes, and the first vectors of a larger set are the smaller set. The scope of that is
one CPU instruction set with one build of numpy, whose matrix products and tanh round differently elsewhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

DIM = 128
#: Vectors of a block; part of what the bytes depend on. A block and its intermediates stay in a core's cache.
BLOCK = 4096
#: Blocks held in memory until they are written, 32 MiB.
BLOCKS_AT_ONCE = 64
#: Random streams of a seed: of the manifold, and of vectors on it to index, to ask for, and to add to an index.
_MODEL, BASE, QUERIES, ADDED = 0, 1, 2, 3

#: Clusters, and how their sizes fall: the one of rank r holds a share like 1 / (r + _RANK_OFFSET).
_CLUSTERS, _RANK_OFFSET = 2000, 20
#: Coordinates of a point before it is mapped to `DIM` components, and the width of the map.
_LATENT, _HIDDEN = 64, 128
#: Coordinates that vary within a cluster, fewest and most: the spread of local dimension over the set.
_FREE = (18, 64)
#: Standard deviation of a cluster's j-th free coordinate falls like (j + 1)**-_DECAY, that of the centres' likewise.
_DECAY, _CENTRE_DECAY = 0.25, 0.3
#: Mean standard deviation of the centres, of the points about them, and how much the latter differs by cluster (log).
_SPREAD, _SIZE, _SIZE_DEVIATION = 0.78, 0.7, 0.4
#: Slope of the map where it is steepest, the deviation of its offsets, and what is added to the components.
_GAIN, _OFFSET, _LIFT = 0.7, 0.5, 0.3
#: Norm of a vector, as of SIFT descriptors, and half the width of the even noise that is added to its components.
_NORM, _NOISE = 512.0, 3.5


class Manifold:
    """A mixture of clusters on a curved surface of low dimension.

    A point is drawn in its cluster, where some of the `_LATENT` coordinates vary, each cluster's own choice, with a
    decaying spectrum; a layer of tanh features bends all clusters alike into `DIM` components. As in SIFT descriptors
    these are not negative (those below 0 become 0), heavy-tailed (the others are raised to the power 1.5), and of one
    norm. Noise, clipping to 0..255 and rounding follow. Every draw has noise of its own, so vectors
    are equal only by chance.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = np.random.default_rng([seed, _MODEL])
        shares = 1 / (np.arange(_CLUSTERS) + _RANK_OFFSET)
        self.shares = np.cumsum(shares / shares.sum())
        spectrum = _unit_power(np.arange(1, _LATENT + 1) ** -_CENTRE_DECAY)
        self.centres = _float(random.standard_normal((_CLUSTERS, _LATENT)) * _SPREAD * spectrum)
        self.deviations = self._draw_deviations(random)
        self.features = _float(random.standard_normal((_LATENT, _HIDDEN)) * _GAIN / np.sqrt(_LATENT))
        self.offsets = _float(random.standard_normal(_HIDDEN) * _OFFSET)
        self.mixing = _float(random.standard_normal((_HIDDEN, DIM)) / np.sqrt(_HIDDEN))

    @staticmethod
    def _draw_deviations(random: np.random.Generator) -> Any:
        """Draw each cluster's standard deviation by coordinate; float32, shape (_CLUSTERS, _LATENT)."""
        free = random.uniform(*_FREE, (_CLUSTERS, 1))
        ranks = np.arange(_LATENT)
        spectra = _unit_power(np.where(ranks < free, (ranks + 1.0) ** -_DECAY, 0))
        sizes = _SIZE * np.exp(_SIZE_DEVIATION * random.standard_normal((_CLUSTERS, 1)))
        return _float(random.permuted(spectra * sizes, axis=1))

    def block(self, stream: int, number: int) -> Any:
        """Return vectors `number` * BLOCK and following of a stream, as `write`; uint8, shape (BLOCK, DIM)."""
        random = np.random.Generator(np.random.SFC64([self.seed, stream, number]))
        cluster = np.searchsorted(self.shares[:-1], random.random(BLOCK), "right")
        points = random.standard_normal((BLOCK, _LATENT), np.float32)
        points *= self.deviations[cluster]
        points += self.centres[cluster]
        hidden = points @ self.features
        hidden += self.offsets
        np.tanh(hidden, out=hidden)
        vectors = hidden @ self.mixing
        vectors += np.float32(_LIFT)
        np.maximum(vectors, 0, out=vectors)
        vectors *= np.sqrt(vectors)
        vectors *= (_NORM / np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))).astype(np.float32)
        noise = np.frombuffer(random.bytes(BLOCK * DIM), np.int8).reshape(BLOCK, DIM)
        vectors += noise * np.float32(_NOISE / 128)
        return np.clip(np.rint(vectors, out=vectors), 0, 255, out=vectors).astype(np.uint8)


def write(path: Path, manifold: Manifold, stream: int, n: int, threads: int = 2) -> None:
    """Write `n` vectors of a stream as .u8bin, whole or not at all, in memory that does not grow with `n`.

    Parameters
    ----------
    path : Path
        In a folder that is there.
    manifold : Manifold
    stream : {BASE, QUERIES, ADDED}
    n : int
        Below 2**32, the count that the file's header holds.
    threads : int
        Blocks made at once; not part of the bytes.
    """
    from indexmill.formats.pagefile.atomic import atomic_write
    from indexmill.reader.threads import map_blocks

    group = BLOCK * BLOCKS_AT_ONCE
    with threadpool_limits(1, "blas"), atomic_write(path) as file:
        file.write(np.array([n, DIM], "<u4").tobytes())
        for start in range(0, n, group):
            count = min(group, n - start)

            def make(first: int, last: int, start: int = start) -> Any:
                return manifold.block(stream, (start + first) // BLOCK)[: last - first]

            for vectors in map_blocks(make, count, BLOCK, threads):
                file.write(vectors)


def generate(folder: Path, n: int, n_queries: int, seed: int, threads: int = 2) -> None:
    """Write ``base.u8bin`` and ``query.u8bin`` into `folder`: the files of a `Dataset` without its truth."""
    folder.mkdir(parents=True, exist_ok=True)
    manifold = Manifold(seed)
    write(folder / "base.u8bin", manifold, BASE, n, threads)
    write(folder / "query.u8bin", manifold, QUERIES, n_queries, threads)


def _unit_power(spectrum: Any) -> Any:
    """Scale standard deviations, along the last axis, so that the mean of their squares is 1."""
    return spectrum / np.sqrt((spectrum * spectrum).mean(axis=-1, keepdims=True))


def _float(values: Any) -> Any:
    return values.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--n", type=_count, required=True, help="vectors")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="file for the vectors, .u8bin")
    parser.add_argument("--queries", type=_count, help="also write so many held-out queries")
    parser.add_argument("--query-out", type=Path, help="file for them; default: query.u8bin beside --out")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    began = time.perf_counter()
    manifold = Manifold(arguments.seed)
    write(arguments.out, manifold, BASE, arguments.n, arguments.threads)
    seconds = time.perf_counter() - began
    speed = arguments.n * DIM / 1e6 / seconds
    print(f"{arguments.out}: {arguments.n:,} vectors, {seconds:.1f} s, {speed:.0f} MB/s", file=sys.stderr)
    if arguments.queries:
        out = arguments.query_out or arguments.out.with_name("query.u8bin")
        write(out, manifold, QUERIES, arguments.queries, arguments.threads)


def _count(text: str) -> int:
    count = int(text)
    if not 0 < count < 2**32:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 1 to {2**32 - 1}")
    return count


if __name__ == "__main__":
    main()
