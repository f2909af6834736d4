"""Weights of a power diagram whose cells hold given numbers of rows.

x belongs to the site c with the least ``|x - c|^2 + w_c``. The weights are the dual solution of a transport problem:
they maximize a concave function of w whose gradient is load minus target (Aurenhammer, Hoffmann and Aronov 1998). The
function has kinks where rows lie in separate clusters, and changing one weight at a time gets stuck there. Therefore
rows belong to cells by softmin at a temperature, which makes the function smooth, and Newton's steps follow the maximum
while the temperature falls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.reader.threads import map_blocks

#: Most temperatures of a fit, the factor between them, Newton steps at each temperature, and halvings of a step.
_TEMPERATURES, _COOLING, _NEWTON_STEPS, _HALVINGS = 12, 3.0, 6, 8
#: Longest step of a weight, in temperatures: the quadratic model fails further out.
_LONGEST_STEP = 8.0
#: Added to the diagonal of the singular Hessian, in shares.
_RIDGE = 1e-3
#: Rows of a task.
_BLOCK = 8192


class _Loads(NamedTuple):
    """Loads of the cells under a set of weights: soft loads at a temperature, and hard counts."""

    value: float  # of the smoothed dual, which is maximized
    soft: NDArray[np.float64]  # (k,) shares of the rows
    together: NDArray[np.float64]  # (k, k) mean of p_a p_b over the rows
    hard: NDArray[np.int64]  # (k,) rows


def fit_weights(
    distances: NDArray[np.float32],
    weights: NDArray[np.float64],
    targets: NDArray[np.int64],
    temperature: float,
    tolerance: float,
    threads: int,
) -> NDArray[np.float64]:
    """Return weights with which the cells hold `targets` rows.

    Parameters
    ----------
    distances : float32 array, shape (m, k)
        Squared distances of m rows to k sites, up to a constant in each row.
    weights : float64 array, shape (k,)
        Start of the fit.
    targets : int64 array, shape (k,)
        Positive, with sum m.
    temperature : float
        First temperature: the squared distance over which neighbouring cells overlap.
    tolerance : float
        The fit stops when no cell differs from its target by more than this fraction, or by more than one row.
    threads : int
        Does not change the result.

    Returns
    -------
    float64 array, shape (k,)
        Of the weights tried, those whose worst cell differs least from its target: no weights separate equal rows.
    """
    shares = targets / len(distances)
    best, least = weights, np.inf
    for _ in range(_TEMPERATURES):
        now = _loads(distances, weights, shares, temperature, threads)
        for _ in range(_NEWTON_STEPS):
            wrong = np.abs(now.hard - targets)
            worst = float((np.where(wrong > 1, wrong, 0) / targets).max())
            if worst < least:
                best, least = weights, worst
            if least <= tolerance:
                return best
            if np.abs(now.soft / shares - 1).max() <= tolerance / 4:
                break
            curvature = (np.diag(now.soft) - now.together) + _RIDGE * np.diag(shares)
            step = temperature * np.linalg.solve(curvature, now.soft - shares)
            step *= min(1.0, _LONGEST_STEP * temperature / np.abs(step).max())
            for _ in range(_HALVINGS):
                trial = _loads(distances, weights + step, shares, temperature, threads)
                if trial.value > now.value:
                    break
                step /= 2
            else:
                break
            weights, now = weights + step, trial
        temperature /= _COOLING
    return best


def _loads(
    distances: NDArray[np.float32],
    weights: NDArray[np.float64],
    shares: NDArray[np.float64],
    temperature: float,
    threads: int,
) -> _Loads:
    k = distances.shape[1]
    added = weights.astype(np.float32)

    def block(first: int, last: int) -> tuple[float, NDArray[Any], NDArray[Any], NDArray[Any]]:
        soft = distances[first:last] + added
        nearest = soft.argmin(axis=1)
        least = np.take_along_axis(soft, nearest[:, None], 1)
        soft -= least
        soft *= np.float32(-1 / temperature)
        np.exp(soft, out=soft)
        sums = soft.sum(axis=1, keepdims=True)
        soft /= sums
        value = least.sum(dtype=np.float64) - temperature * np.log(sums).sum(dtype=np.float64)
        return float(value), soft.sum(axis=0), soft.T @ soft, np.bincount(nearest, minlength=k)

    value, soft, together = 0.0, np.zeros(k), np.zeros((k, k))
    hard = np.zeros(k, np.int64)
    for part in map_blocks(block, m := len(distances), _BLOCK, threads):
        value, soft, together, hard = value + part[0], soft + part[1], together + part[2], hard + part[3]
    return _Loads(value / m - float(weights @ shares), soft / m, together / m, hard)
