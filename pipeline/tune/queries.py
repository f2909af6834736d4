"""Queries that the caller gives: refused, or some of them taken, as they are compared with vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.sources.source import VectorBatch
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.kinds.common.metric import as_asked

#: Queries at least.
LEAST_QUERIES = 200


def check_count(count: int, hint: str = "") -> None:
    """Refuse too few queries; `hint` says what else would help.

    Raises
    ------
    InputError
    """
    if count < LEAST_QUERIES:
        raise InputError(
            f"queries: {count:,}; expected at least {LEAST_QUERIES}, half to tune on and half to report on; pass "
            f"more{hint}"
        )


def check_queries(given: NDArray[Any], dim: int, metric: str, like: str, them: str) -> None:
    """Refuse queries that do not suit vectors of `dim` components.

    Parameters
    ----------
    like, them : str
        What they are to be like, and what they are to belong to, in words.

    Raises
    ------
    InputError
    """
    if given.ndim != 2 or given.shape[1] != dim:
        raise InputError(
            f"queries: expected shape (q, {dim}) {like}, got {given.shape}; pass the queries that belong to {them}"
        )
    check_batch(VectorBatch(0, given, None, None, "queries", 0), metric)


def spread(given: NDArray[Any], count: int) -> NDArray[Any]:
    """Return `count` of the queries, (q, dim), at equal distances; all if they are fewer."""
    chosen = np.linspace(0, len(given) - 1, min(count, len(given))).astype(np.int64)
    return np.ascontiguousarray(given[chosen])


def as_compared(queries: NDArray[Any], metric: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return queries as they are compared with stored vectors of a type: of that type, else float32."""
    asked = as_asked(queries, metric)
    return asked if asked.dtype == dtype else asked.astype(np.float32)
