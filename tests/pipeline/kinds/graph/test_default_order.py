"""The order of a job that names none: agglomerative where its lists fit the memory, else star."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.pipeline.kinds.graph.default_order import order_scratch, with_order
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape

GIB = 1 << 30


def shape(n: int, dtype: str = "uint8", **parameters: object) -> GraphShape:
    return GraphShape(n, 128, np.dtype(dtype), 0.0, Parameters.model_validate(parameters))


@pytest.mark.parametrize(
    ("n", "memory", "order"),
    [
        (1_000_000, GIB, "agglomerative"),
        (10_000_000, 8 * GIB, "agglomerative"),
        (10_000_000, 2 * GIB, "star"),
        (100_000_000, 16 * GIB, "star"),
        (1_000_000, 512 << 20, "star"),
        (1_000_000, 384 << 20, "agglomerative"),  # a district of star takes more
    ],
)
def test_the_lists_must_fit_the_memory(n: int, memory: int, order: str) -> None:
    assert with_order(shape(n), memory).parameters.order == order


def test_a_named_order_stands() -> None:
    for order in ("star", "agglomerative", "identity"):
        assert with_order(shape(10_000_000, order=order), GIB).parameters.order == order


def test_vectors_are_not_widened_for_it() -> None:
    orders = {
        dtype: with_order(shape(1000, dtype), GIB).parameters.order
        for dtype in ("float16", "int8", "float32")
    }
    assert orders == {"float16": "star", "int8": "agglomerative", "float32": "agglomerative"}


def test_scratch_space_is_counted() -> None:
    assert order_scratch(shape(1000, order="identity")) < order_scratch(shape(1000, order="star"))
    assert order_scratch(shape(1000, order="star")) < order_scratch(shape(1000))
    assert order_scratch(shape(1000)) <= order_scratch(shape(1000, "float32"))
