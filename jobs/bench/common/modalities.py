"""Vectors and queries of two modalities, as of images and of questions about them, from a seed.

Both are made of the same latent factors, by maps of their own: a point z of a mixture of clusters becomes the vector
``z A + s O + a`` and the query ``z B + t P + b``, each divided by its length. A and B share a part; s and t are what
one modality alone tells (style, wording), O and P their maps; a and b move the modalities into cones of their own. So a
query is far from all vectors, and its nearest vectors, which have latent factors like its own, are far from each other.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

DIM = 128
#: Coordinates of latent factors, and of what one modality alone tells.
_LATENT = 48
#: Clusters; the one of rank r holds a share like 1 / (r + _RANK_OFFSET).
_CLUSTERS, _RANK_OFFSET = 1000, 20
#: Standard deviation of the j-th latent coordinate falls like (j + 1)**-_DECAY; of centres and of points about them.
_DECAY, _SPREAD, _SIZE = 0.4, 0.8, 0.55
#: Share of the variance of a map that is the same for both modalities.
_COMMON = 0.64
#: Standard deviation of what one modality alone tells.
_OWN = 0.6

Modality = Literal["vectors", "queries"]
#: Random streams of a seed.
_MODEL, _POINTS = 0, 1


class _Maps(NamedTuple):
    """What makes points of one modality: maps of latent factors and of its own, float64 (_LATENT, DIM), its cone."""

    latent: NDArray[np.float64]
    own: NDArray[np.float64]
    cone: NDArray[np.float64]


class Modalities:
    """Two modalities of one world.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = np.random.default_rng([seed, _MODEL])
        spectrum = np.arange(1, _LATENT + 1) ** -_DECAY
        self._spectrum = spectrum / np.sqrt((spectrum**2).mean())
        self._centres = _SPREAD * self._spectrum * random.standard_normal((_CLUSTERS, _LATENT))
        shares = 1 / (np.arange(_CLUSTERS) + _RANK_OFFSET)
        self._shares = shares / shares.sum()
        common = _map(random)
        self._maps = {one: _maps(random, common) for one in ("vectors", "queries")}

    def draw(self, modality: Modality, n: int, stream: int) -> NDArray[np.float32]:
        """Return `n` points of length 1, shape (n, DIM); `stream` tells draws of one modality apart."""
        random = np.random.default_rng([self.seed, _POINTS, modality == "queries", stream])
        maps = self._maps[modality]
        z = self._centres[random.choice(_CLUSTERS, n, p=self._shares)]
        z = z + _SIZE * self._spectrum * random.standard_normal((n, _LATENT))
        own = _OWN * random.standard_normal((n, _LATENT))
        points: Any = z @ maps.latent + own @ maps.own + maps.cone
        unit: NDArray[np.float32] = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(
            np.float32
        )
        return unit


def _map(random: np.random.Generator) -> NDArray[np.float64]:
    drawn: NDArray[np.float64] = random.standard_normal((_LATENT, DIM)) / np.sqrt(_LATENT)
    return drawn


def _maps(random: np.random.Generator, common: NDArray[np.float64]) -> _Maps:
    latent = np.sqrt(_COMMON) * common + np.sqrt(1 - _COMMON) * _map(random)
    cone = random.standard_normal(DIM)
    return _Maps(latent, _map(random), np.sqrt(DIM) * cone / np.linalg.norm(cone))
