"""Layout metrics against their definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles.files.small_index import write_small_index
from tests.oracles.layout import page_metrics as oracle
from tests.support.indexes.layout import as_lists, random_graph, random_order

from indexmill.formats.errors import InputError
from indexmill.layout import metrics
from indexmill.layout.metrics import in_page_share, layout_metrics
from indexmill.layout.star import star_order
from indexmill.reader.index import Index
from indexmill.reader.threads import small_blocks
from indexmill.reader.trace import times_expanded


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 2**31), st.integers(2, 7), st.booleans())
def test_metrics_are_what_they_are_defined_to_be(n: int, r: int, seed: int, b: int, packed: bool) -> None:
    neighbours, degrees = random_graph(n, r, seed)
    lists = as_lists(neighbours, degrees)
    order = star_order(neighbours, degrees, b) if packed else random_order(n, seed)
    got = layout_metrics(neighbours, degrees, order, b, 0.5)
    assert got.in_page_edges == pytest.approx(oracle.in_page_share(lists, order.tolist(), b, [1.0] * n))
    pages = oracle.compactness(lists, order.tolist(), b)
    assert got.page_compactness == pytest.approx(np.mean(pages) if pages else 0.0, abs=1e-9)
    assert got.compactness_error == 0.0, "all pages were looked at"
    use = np.random.default_rng(seed).integers(0, 4, n)
    weighted = in_page_share(neighbours, degrees, order, b, use)
    assert weighted == pytest.approx(oracle.in_page_share(lists, order.tolist(), b, use.tolist()))


def test_sampled_compactness_is_as_near_as_its_error_says(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours, degrees = random_graph(1200, 8, 4)
    order, b = star_order(neighbours, degrees, 4), 4
    every = oracle.compactness(as_lists(neighbours, degrees), order.tolist(), b)
    monkeypatch.setattr(metrics, "COMPACTNESS_PAGES", 100)
    got = layout_metrics(neighbours, degrees, order, b, 1.0)
    sample = np.array(every)[np.linspace(0, len(every) - 1, 100).astype(int)]
    assert got.page_compactness == pytest.approx(sample.mean())
    assert got.compactness_error == pytest.approx(sample.std(ddof=1) / 10 * np.sqrt(1 - 100 / len(every)))
    assert 0 < abs(got.page_compactness - np.mean(every)) < 4 * got.compactness_error


def test_one_node_a_page_has_no_edges_inside() -> None:
    neighbours, degrees = random_graph(20, 5, 1)
    order = random_order(20, 1)
    got = layout_metrics(neighbours, degrees, order, 1, 0.9)
    assert (got.in_page_edges, got.page_compactness, got.compactness_error, got.fill) == (0.0, 0.0, 0.0, 0.9)
    assert in_page_share(neighbours, degrees, order, 1, np.ones(20)) == 0.0
    assert in_page_share(neighbours, degrees, order, 5, np.zeros(20, int)) == 0.0


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (np.ones(19), "use: expected 20 weights, got float64 of shape"),
        (np.ones((20, 1)), "of shape"),
        (np.full(20, "a"), "got <U1"),
        (np.where(np.arange(20) == 3, -1, 1), "vertex 3: expected a weight of 0 or more, got -1"),
        (np.where(np.arange(20) == 4, np.nan, 1), "vertex 4: .* got nan"),
        (np.where(np.arange(20) == 5, np.inf, 1), "vertex 5: .* got inf"),
    ],
)
def test_weights_that_are_none_are_refused(use: NDArray[np.float64], message: str) -> None:
    neighbours, degrees = random_graph(20, 5, 1)
    with pytest.raises(InputError, match=message):
        in_page_share(neighbours, degrees, random_order(20, 1), 4, use)


def test_a_trace_weighs_the_edges_that_its_queries_followed(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, 300, 20, R=6)
    index, order = Index(tmp_path), np.arange(300, dtype=np.uint32)
    b = index.native.nodes_per_page
    degrees = written.degrees.astype(np.int32)
    trace = index.search(written.vectors[:3], 5, L=12, trace=True).trace
    assert trace is not None
    followed = [row["vertex"] for row in trace.to_pylist() if row["kind"] == "expand"]
    edges = [(v, u) for v in followed for u in written.neighbours[v, : degrees[v]]]
    share = np.mean([u // b == v // b for v, u in edges])
    uses = times_expanded(trace, 300)
    assert in_page_share(written.neighbours, degrees, order, b, uses) == pytest.approx(share)


def test_threads_do_not_reach_the_metrics() -> None:
    neighbours, degrees = random_graph(700, 8, 5)
    order = star_order(neighbours, degrees, 6)
    with small_blocks(64):
        alone, together = (layout_metrics(neighbours, degrees, order, 6, 0.5, threads) for threads in (1, 3))
    assert alone == together == layout_metrics(neighbours, degrees, order, 6, 0.5)
