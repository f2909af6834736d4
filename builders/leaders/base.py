"""Leaders, the random vectors that own clusters (eCP), and the interface of every index over them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.nearest.points import Points
from indexmill.builders.streams import LEADERS
from indexmill.formats.errors import ConfigError


class LeaderIndex(Protocol):
    """Index that finds the leaders nearest to vectors.

    Attributes
    ----------
    leaders : uint8 or float32 array, shape (n_leaders, dim)
        As `builders.distances.comparable` returns them.
    """

    leaders: NDArray[Any]

    def nearest(self, vectors: NDArray[Any], fanout: int = 1, threads: int = 1) -> NDArray[np.uint32]:
        """Return approximately the `fanout` leaders nearest to each vector, uint32 (m, fanout), distinct in a row.

        Nearest first, ties by the smaller id; the same for every number of threads.

        Raises
        ------
        ConfigError
            If there are fewer leaders than `fanout`, or the vectors have another dimension or type than the leaders.
        """
        ...


class ExactLeaders:
    """Comparison of every vector with every leader: uint8 in integers, float32 by matrix products."""

    def __init__(self, leaders: NDArray[Any]) -> None:
        self.leaders = comparable(leaders)
        self._points = Points(self.leaders)

    def nearest(self, vectors: NDArray[Any], fanout: int = 1, threads: int = 1) -> NDArray[np.uint32]:
        """See `LeaderIndex`; the result is exact."""
        return self._points.nearest(checked(vectors, self.leaders, fanout), fanout, threads)


def n_leaders(n_vectors: int, vector_bytes: int, leaf_kib: int) -> int:
    """Return the number of leaders, at least one, with clusters of `leaf_kib` KiB of vectors on average."""
    return max(1, min(n_vectors, -(-n_vectors * vector_bytes // (leaf_kib * 1024))))


def draw_leaders(n_vectors: int, n: int, seed: int) -> NDArray[np.int64]:
    """Draw `n` rows of `n_vectors` without replacement; ascending.

    Raises
    ------
    ConfigError
        If `n` is not between 1 and `n_vectors`.
    """
    if not 1 <= n <= n_vectors:
        raise ConfigError(
            f"leaders: expected 1 to {n_vectors:,}, one a vector at most, got {n:,}; ask for fewer"
        )
    return np.sort(np.random.default_rng([seed, LEADERS]).choice(n_vectors, n, replace=False))


def checked(vectors: NDArray[Any], leaders: NDArray[Any], fanout: int) -> NDArray[Any]:
    """Return `vectors` as `comparable` converts them, checked against the leaders.

    Raises
    ------
    ConfigError
        See `LeaderIndex.nearest`.
    """
    if not 1 <= fanout <= len(leaders):
        raise ConfigError(
            f"fanout: expected 1 to {len(leaders):,}, the number of leaders, got {fanout:,}; "
            "lower the fanout or draw more leaders"
        )
    rows = comparable(vectors)
    if rows.ndim != 2 or rows.shape[1] != leaders.shape[1] or rows.dtype != leaders.dtype:
        raise ConfigError(
            f"vectors: expected {leaders.dtype} rows of {leaders.shape[1]} components like the leaders, "
            f"got {rows.dtype} of shape {rows.shape}; draw the leaders from these vectors"
        )
    return rows
