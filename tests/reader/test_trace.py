"""`Index.search(trace=True)`: the events of a query, against the slow oracle, the counters and the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray
from tests.oracles.files.small_index import write_small_index
from tests.oracles.graph.features import FeatureOracle
from tests.support.indexes.clusters import Clustered

from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index
from indexmill.reader.trace import times_expanded

#: Events that each counter counts.
COUNTED = {
    "pages_read": "read", "cache_hits": "cached", "distances": "measure", "expansions": "expand"
}  # fmt: skip


def rows(trace: pa.Table, query: int, kind: str) -> list[dict[str, Any]]:
    return [row for row in trace.to_pylist() if row["query"] == query and row["kind"] == kind]


def counts(trace: pa.Table, kind: str, n_queries: int) -> NDArray[np.int64]:
    chosen = np.array(trace["kind"].to_pylist()) == kind
    return np.bincount(trace["query"].to_numpy()[chosen], minlength=n_queries)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("dim", "n_bytes"), [(20, 0), (20, 4104 * 9), (1100, 0), (1100, 8200 * 9)])
def test_a_trace_tells_what_the_oracle_does(tmp_path: Path, policy: str, dim: int, n_bytes: int) -> None:
    written = write_small_index(tmp_path, n=300, dim=dim, R=6)
    oracle, index = FeatureOracle(tmp_path), Index(tmp_path)
    index.cache(n_bytes)
    cached = set(oracle.pages_around_entries(9) if n_bytes else [])
    queries = np.roll(written.vectors[50:58], 1, axis=1)
    options: dict[str, Any] = {"L": 20, "beam_width": 4, "policy": policy, "entry": "medoid"}
    found = index.search(queries, 5, trace=True, **options)
    assert found.trace is not None
    per_page = max(index.native.nodes_per_page, 1)
    for i, query in enumerate(queries):
        want, state = oracle.ask(query, 20, 4, policy, "medoid", k=5, cached=cached)
        events = {kind: rows(found.trace, i, kind) for kind in COUNTED.values()}
        reads, expanded = (
            [e[name] for e in events[kind]] for kind, name in (("read", "page"), ("expand", "vertex"))
        )
        order = (
            list if policy == "pipeline" else sorted
        )  # the oracle reads the pages of a round in their order
        assert order(reads) == order(state.read_log)
        # `completion` expands the vertices of a round page by page.
        assert (
            expanded == want.expanded if policy != "completion" else sorted(expanded) == sorted(want.expanded)
        )
        assert {e["vertex"]: e["distance"] for e in events["measure"]} == pytest.approx(state.exact)
        assert all(e["distance"] == pytest.approx(state.exact[e["vertex"]]) for e in events["expand"])
        assert all(
            e["page"] == e["vertex"] // per_page for kind in ("measure", "expand") for e in events[kind]
        )
        assert all(
            e["vertex"] is None and e["distance"] is None for kind in ("read", "cached") for e in events[kind]
        )
        assert {e["page"] for e in events["cached"]} <= cached
        assert max(e["hop"] for kind in events.values() for e in kind) == want.hops
    assert bool(n_bytes) == bool(found.counters["cache_hits"].sum())


@pytest.mark.parametrize("policy", POLICIES)
def test_events_add_up_to_the_counters_and_hold_the_results(clustered: Clustered, policy: str) -> None:
    index, queries = Index(clustered.path), clustered.queries[:100]
    index.cache(200_000, clustered.queries[100:200], policy=policy)
    n = len(clustered.vectors)
    allowed = index.filter(np.arange(0, n, 50))
    for options in ({}, {"allow": allowed}, {"allow": np.arange(n) % 10 > 0, "L": 1000}):
        found = index.search(queries, 10, policy=policy, trace=True, **options)  # type: ignore[arg-type]
        trace = found.trace
        assert trace is not None
        for counter, kind in COUNTED.items():
            np.testing.assert_array_equal(counts(trace, kind, 100), found.counters[counter], err_msg=counter)
        hops = np.zeros(100, np.uint64)
        np.maximum.at(hops, trace["query"].to_numpy(), trace["hop"].to_numpy().astype(np.uint64))
        np.testing.assert_array_equal(hops, found.counters["hops"])
        measured = trace.filter(pc.equal(trace["kind"], "measure"))
        keys = {
            (q, v): d
            for q, v, d in zip(
                *(measured[name].to_pylist() for name in ("query", "vertex", "distance")), strict=True
            )
        }
        assert len(keys) == measured.num_rows, "a vertex was measured twice"
        for query in range(100):
            for slot, score in zip(found.slots[query], found.scores[query], strict=True):
                assert slot < 0 or keys[query, slot] == score
        uses = times_expanded(trace, n)
        assert uses.shape == (n,)
        assert uses.sum() == found.counters["expansions"].sum()


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_expanded_was_at_hand(clustered: Clustered, policy: str) -> None:
    trace = Index(clustered.path).search(clustered.queries[:40], 10, policy=policy, trace=True).trace
    assert trace is not None
    at_hand: set[tuple[int, int]] = set()
    for row in trace.to_pylist():
        if row["kind"] == "read":
            if policy in ("page", "pipeline"):
                assert (row["query"], row["page"]) not in at_hand, "a page was read twice"
            at_hand.add((row["query"], row["page"]))
        else:
            assert (row["query"], row["page"]) in at_hand


@pytest.mark.parametrize("policy", POLICIES)
def test_a_trace_changes_nothing_and_repeats(clustered: Clustered, policy: str) -> None:
    index, queries = Index(clustered.path, "pread"), clustered.queries[:150]
    plain = index.search(queries, 10, policy=policy)
    traces = []
    for threads, inflight in ((1, 1), (1, 8), (3, 4)):
        found = index.search(queries, 10, policy=policy, threads=threads, inflight=inflight, trace=True)
        np.testing.assert_array_equal(found.slots, plain.slots)
        np.testing.assert_array_equal(found.scores, plain.scores)
        for name in ("pages_read", "hops", "expansions", "distances", "code_distances"):
            np.testing.assert_array_equal(found.counters[name], plain.counters[name])
        assert found.trace is not None
        traces.append(found.trace)
    assert plain.trace is None
    assert all(trace.equals(traces[0]) for trace in traces)
    assert index.search(queries, 10, policy=policy).trace is None, "a kept search state goes on tracing"


def test_a_trace_of_a_view_speaks_of_the_pages_of_the_view(clustered: Clustered) -> None:
    index, n = Index(clustered.path), len(clustered.vectors)
    order = np.random.default_rng(1).permutation(n)
    view = index.remapped(order)
    found = view.search(clustered.queries[:30], 10, entry="medoid", policy="beam", trace=True)
    real = index.search(clustered.queries[:30], 10, entry="medoid", policy="beam", trace=True)
    assert found.trace is not None
    assert real.trace is not None
    ours, theirs = found.trace.to_pydict(), real.trace.to_pydict()
    expanded = [v for v, kind in zip(ours["vertex"], ours["kind"], strict=True) if kind == "expand"]
    homes = [v for v, kind in zip(theirs["vertex"], theirs["kind"], strict=True) if kind == "expand"]
    assert sorted(order[expanded].tolist()) == sorted(homes), (
        "beam search visits the same vertices in any order"
    )
    for page, vertex in zip(ours["page"], ours["vertex"], strict=True):
        assert vertex is None or page == vertex // view.native.nodes_per_page


def test_the_columns_of_a_trace_are_typed(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, 1)
    trace = Index(tmp_path).search(written.vectors, 1, trace=True).trace
    assert trace is not None
    assert trace.schema == pa.schema(
        {
            "query": pa.uint32(), "hop": pa.uint32(), "page": pa.uint64(), "vertex": pa.uint32(),
            "kind": pa.string(), "distance": pa.float32(),
        }
    )  # fmt: skip
    assert trace["kind"].to_pylist() == ["read", "measure", "expand"]
    assert trace["vertex"].to_pylist() == [None, 0, 0]
    assert trace["distance"].to_pylist() == [None, 0.0, 0.0]
    nothing = Index(tmp_path).search(np.empty((0, 16), np.float32), 1, trace=True).trace
    assert nothing is not None
    assert nothing.num_rows == 0
    assert nothing.schema == trace.schema
