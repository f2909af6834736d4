"""Points of which the nearest to any vectors are found, by the widest products that their type allows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.gpu import Gpu
from indexmill.builders.nearest.byte_codes import CodedPoints, coded_points
from indexmill.builders.nearest.gpu import nearest_on
from indexmill.builders.nearest.panels import fits_panels, in_panels, nearest_in_panels
from indexmill.builders.nearest.products import nearest_points


class Points:
    """Points, made ready to be compared with any number of vectors of their type.

    Bytes are compared in integers, exactly. Floats are compared by products of float32, or by those of byte codes where
    a few misses cost nothing that matters.

    Parameters
    ----------
    points : uint8, float16 or float32 array, shape (n, dim)
    coded_for : int, optional
        Compare floats by byte codes, if these miss few of so many nearest points; at most n.
    gpu : Gpu, optional
        Compares them in place of the processor, without codes.

    Attributes
    ----------
    looked_for, missed : int
        Nearest points of some of the points, and how many of these byte codes miss; 0 if there are none.
    """

    def __init__(self, points: NDArray[Any], *, coded_for: int | None = None, gpu: Gpu | None = None) -> None:
        self._points, self._gpu = points, gpu
        self._panels = in_panels(points) if gpu is None and fits_panels(points) else None
        self._coded: CodedPoints | None = None
        if coded_for is not None and gpu is None and points.dtype.kind == "f":
            self._coded = coded_points(points, coded_for)
        self.looked_for = 0 if self._coded is None else self._coded.looked_for
        self.missed = 0 if self._coded is None else self._coded.missed

    def nearest(self, vectors: NDArray[Any], fanout: int = 1, threads: int = 1) -> NDArray[np.uint32]:
        """Return the points nearest to each vector, uint32 (m, fanout), nearest first, ties by the smaller id.

        The result is the same for every number of threads, and if the vectors are passed in blocks of a multiple of
        `products.TILE_ROWS`.
        """
        if self._gpu is not None:
            return nearest_on(self._gpu, vectors, self._points, fanout)
        if self._panels is not None:
            return nearest_in_panels(vectors, self._panels, fanout, threads)
        if self._coded is not None:
            return self._coded.nearest(vectors, fanout, threads)
        return nearest_points(vectors, self._points, fanout, threads)
