"""`search(allow=...)` and `range_search(allow=...)` from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.files.small_index import Aids, SmallIndex, write_small_index
from tests.oracles.graph.features import FeatureOracle, scans
from tests.support.indexes.clusters import Clustered

from indexmill.formats.errors import InputError
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index

KINDS = [("float32", "ip"), ("float32", "cosine"), ("sq8", "l2"), ("uint8", "l2")]


@pytest.mark.parametrize(("dtype", "metric"), KINDS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_list_of_all_vectors_finds_exactly_the_allowed_ones(
    tmp_path: Path, dtype: str, metric: str, policy: str
) -> None:
    written = write_small_index(tmp_path, n=300, dtype=dtype, metric=metric)
    oracle, index = FeatureOracle(tmp_path), Index(tmp_path)
    queries = np.roll(written.vectors[:6], 1, axis=1)
    rng = np.random.default_rng(1)
    for n_allowed in (0, 1, 3, 30, 150, 300):
        ids = rng.permutation(300)[:n_allowed]
        allowed = set(np.flatnonzero(np.isin(written.vector_ids, ids)).tolist())
        found = index.search(queries, 5, L=300, policy=policy, allow=ids)
        for i, query in enumerate(queries):
            want, _ = oracle.ask(query, 300, 8, policy, k=5, allow=allowed)
            there = min(5, n_allowed)
            np.testing.assert_allclose(found.scores[i, :there], want.scores, rtol=1e-4, atol=1e-3)
            assert set(found.slots[i, :there].tolist()) <= allowed
            assert (found.vector_ids[i, there:] == -1).all()
            assert np.isnan(found.scores[i, there:]).all()


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> SmallIndex:
    """Make a graph of few edges, of which filters leave too few."""
    return write_small_index(tmp_path_factory.mktemp("sparse") / "ix", n=8000, dim=12, R=6)


@pytest.mark.parametrize("policy", POLICIES)
def test_filtered_searches_do_what_the_oracle_does(sparse: SmallIndex, policy: str) -> None:
    n, written = 8000, sparse
    oracle, index = FeatureOracle(written.path), Index(written.path)
    queries = np.roll(written.vectors[:3], 1, axis=1)
    plans = set()
    for n_allowed, L, k in ((40, 10, 4), (1000, 3, 2), (5500, 2, 2), (7000, 3, 2), (n, 3, 1)):
        ids = np.random.default_rng(n_allowed).permutation(n)[:n_allowed]
        allowed = set(np.flatnonzero(np.isin(written.vector_ids, ids)).tolist())
        plans.add(scans(L, n, n_allowed))
        found = index.search(queries, k, L=L, beam_width=3, policy=policy, entry="medoid", allow=ids)
        for i, query in enumerate(queries):
            want, _ = oracle.ask(query, L, 3, policy, "medoid", k=k, allow=allowed)
            assert [slot for slot in found.slots[i] if slot >= 0] == want.slots.tolist()
            for name, value in (
                ("pages_read", want.pages_read),
                ("hops", want.hops),
                ("expansions", len(want.expanded)),
                ("distances", want.exact_distances),
                ("code_distances", want.pq_distances),
            ):
                assert found.counters[name][i] == value, name
    assert plans == {True, False}


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_is_allowed_nothing_else_comes_back(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    n = data.draw(st.integers(1, 150), label="n")
    path = tmp_path_factory.mktemp("ix")
    written = write_small_index(path, n=n, R=min(8, max(n - 1, 1)), aids=Aids(n_navigation=0))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n), label="mask"))
    L = data.draw(st.integers(1, n), label="L")
    policy = data.draw(st.sampled_from(POLICIES), label="policy")
    index = Index(path)
    found = index.search(written.vectors[:3], 1, L=L, policy=policy, allow=mask)
    ids = found.vector_ids[found.vector_ids >= 0]
    assert mask[ids].all()
    assert (found.vector_ids >= 0).all() == mask.any()
    ranged = index.range_search(written.vectors[:3], np.inf, L=L, policy=policy, allow=mask)
    assert sorted(ranged.vector_ids[: ranged.starts[1]].tolist()) == np.flatnonzero(mask).tolist()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("policy", POLICIES)
def test_recall_stays_high_whatever_share_is_allowed(clustered: Clustered, policy: str, share: float) -> None:
    allowed = np.zeros(5000, bool)
    allowed[np.random.default_rng(3).permutation(5000)[: int(5000 * share)]] = True
    k = min(10, int(allowed.sum()))
    found = Index(clustered.path).search(clustered.queries[:200], k, L=64, policy=policy, allow=allowed)
    assert clustered.recall(found, allowed) >= 0.95


def test_recall_stays_high_along_edges(clustered: Clustered) -> None:
    allowed = np.random.default_rng(3).random(5000) < 0.9  # too many to scan them with the smallest list
    index = Index(clustered.path)
    assert not scans(2, 5000, int(allowed.sum()))
    for policy in POLICIES:
        found = index.search(clustered.queries[:400], 2, L=2, policy=policy, allow=allowed)
        alone = index.search(clustered.queries[:400], 2, L=2, policy=policy)
        assert (found.counters["code_distances"] != allowed.sum()).all()
        assert clustered.recall(found, allowed) >= clustered.recall(alone) - 0.03


def test_all_forms_of_a_filter_mean_the_same(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=130)
    index = Index(tmp_path)
    mask = np.random.default_rng(2).random(130) < 0.3
    ids = np.flatnonzero(mask)
    forms = [
        mask,
        mask.tolist(),
        pa.array(mask),
        pa.chunked_array([mask[:50], mask[50:]]),
        ids,
        ids[::-1].astype(np.uint16),
        ids.tolist(),
        np.concatenate([ids, ids[:3]]),
        pa.array(ids, pa.uint32()),
        index.filter(mask),
        Index(tmp_path).filter(ids),
    ]
    want = index.search(written.vectors[:9], 4, L=130, allow=mask)
    assert mask[want.vector_ids].all()
    for form in forms:
        np.testing.assert_array_equal(
            index.search(written.vectors[:9], 4, L=130, allow=form).slots, want.slots
        )
    for nothing in ([], np.zeros(130, bool), np.array([], np.int64)):
        assert index.filter(nothing).n_allowed == 0
        assert (index.search(written.vectors[:2], 3, allow=nothing).vector_ids == -1).all()


@pytest.mark.parametrize(
    ("allow", "said"),
    [
        ([3, 200], r"allow: expected vector ids 0\.\.199, got 200"),
        ([-1], r"0\.\.199, got -1"),
        (np.ones(199, bool), r"expected 200 booleans .* got bool of shape \(199,\)"),
        (np.ones((200, 1), bool), r"shape \(200, 1\)"),
        ([0.5], "float64"),
        (["a"], "allow: expected 200 booleans or an array of vector ids"),
        (pa.array([True, None]), "object"),
        (7, r"shape \(\)"),
    ],
)
def test_what_is_no_filter_is_refused(tmp_path: Path, allow: object, said: str) -> None:
    written = write_small_index(tmp_path, n=200)
    for ask in (
        Index(tmp_path).search,
        lambda queries, **how: Index(tmp_path).range_search(queries, 1.0, **how),
    ):
        with pytest.raises(InputError, match=said):
            ask(written.vectors[:2], allow=allow)


def test_a_filter_of_another_build_is_refused(tmp_path: Path) -> None:
    written = write_small_index(tmp_path / "a", n=200, seed=1)
    write_small_index(tmp_path / "b", n=200, seed=2)
    foreign = Index(tmp_path / "b").filter([1, 2])
    index = Index(tmp_path / "a")
    with pytest.raises(InputError, match="another build"):
        index.search(written.vectors[:2], allow=foreign)
    with pytest.raises(InputError, match="another build"):
        index.range_search(written.vectors[:2], 1.0, allow=foreign)
