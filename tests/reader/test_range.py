"""`range_search` against brute force and the slow oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.oracles.graph.features import FeatureOracle
from tests.support.indexes.clusters import Clustered

from indexmill.formats.errors import ConfigError, InputError
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index, RangeResult


def rows(found: RangeResult, name: str) -> list[list]:
    values = getattr(found, name).tolist()
    return [values[a:b] for a, b in zip(found.starts[:-1], found.starts[1:], strict=True)]


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_list_of_all_vectors_finds_all_within_the_radius(tmp_path: Path, metric: str, policy: str) -> None:
    written = write_small_index(tmp_path, n=300, metric=metric)
    index = Index(tmp_path)
    queries = np.roll(written.vectors[:8], 1, axis=1)
    everything = index.search(queries, 300, L=300, policy=policy)
    assert (everything.vector_ids >= 0).all()
    # A radius that is a score takes in the vector that has it, and all that are better.
    for rank in (0, 1, 17, 120, 299):
        for i, query in enumerate(queries):
            radius = everything.scores[i, rank]
            best = everything.scores[i]
            within = best <= radius if metric == "l2" else best >= radius
            found = index.range_search(query, radius, L=300, policy=policy)
            assert found.slots.tolist() == everything.slots[i][within].tolist()
            assert found.vector_ids.tolist() == everything.vector_ids[i][within].tolist()
            np.testing.assert_array_equal(found.scores, best[within])
            np.testing.assert_array_equal(found.ids, everything.ids[i][within])


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_infinite_radii_take_everything_or_nothing(tmp_path: Path, metric: str) -> None:
    written = write_small_index(tmp_path, n=300, metric=metric)
    index = Index(tmp_path)
    widest, none = (np.inf, -np.inf) if metric == "l2" else (-np.inf, np.inf)
    for policy in POLICIES:
        for L in (1, 7, 300):
            all_of_them = index.range_search(written.vectors[:3], widest, L=L, policy=policy)
            assert all_of_them.starts.tolist() == [0, 300, 600, 900]
            assert sorted(all_of_them.vector_ids[300:600].tolist()) == list(range(300))
            assert (all_of_them.counters["distances"] == 300).all()
            empty = index.range_search(written.vectors[:3], none, L=L, policy=policy)
            assert empty.starts.tolist() == [0, 0, 0, 0]
            assert empty.ids.shape == empty.scores.shape == (0,)


@pytest.mark.parametrize("policy", POLICIES)
def test_range_searches_do_what_the_oracle_does(tmp_path: Path, policy: str) -> None:
    written = write_small_index(tmp_path, n=500, dim=12, R=6)
    oracle, index = FeatureOracle(tmp_path), Index(tmp_path)
    queries = np.roll(written.vectors[:5], 1, axis=1)
    grew = 0
    slots = np.random.default_rng(4).permutation(500)[:200]
    for allow in (None, set(slots.tolist())):
        ids = None if allow is None else written.vector_ids[slots]
        for L, radius in ((1, 250.0), (4, 200.0), (10, 270.0), (60, 250.0)):
            found = index.range_search(queries, radius, L=L, beam_width=4, policy=policy, allow=ids)
            for i, query in enumerate(queries):
                want, state = oracle.ask(query, L, 4, policy, "navigation", radius=radius, allow=allow)
                grew += state.L > L
                assert rows(found, "slots")[i] == want.slots.tolist()
                for name, value in (
                    ("pages_read", want.pages_read),
                    ("hops", want.hops),
                    ("expansions", len(want.expanded)),
                    ("distances", want.exact_distances),
                    ("code_distances", want.pq_distances),
                ):
                    assert found.counters[name][i] == value, name
    assert grew


@pytest.mark.parametrize("policy", POLICIES)
def test_a_short_list_grows_until_nearly_all_within_are_found(clustered: Clustered, policy: str) -> None:
    index, queries = Index(clustered.path), clustered.queries[:200]
    radius = float(np.median(np.partition(clustered.distances[:200], 90, axis=1)[:, 90]))
    within = clustered.distances[:200] <= radius
    assert within.sum(axis=1).mean() > 64  # far more than L
    found = index.range_search(queries, radius, L=16, policy=policy)
    hits = sum(int(within[i, ids].sum()) for i, ids in enumerate(rows(found, "vector_ids")))
    assert hits / within.sum() >= 0.97
    assert (found.scores <= radius).all()
    counts = np.diff(found.starts)
    few, many = counts < 50, counts > 100
    assert few.any()
    assert many.any()
    assert found.counters["pages_read"][few].mean() < found.counters["pages_read"][many].mean()
    if policy in ("page", "pipeline"):
        n_pages = clustered.path.joinpath("graph.imx").stat().st_size // 4096
        assert found.counters["pages_read"].max() <= n_pages


@pytest.mark.parametrize("policy", POLICIES)
def test_range_searches_with_a_filter_find_nearly_all(clustered: Clustered, policy: str) -> None:
    allowed = np.random.default_rng(5).random(5000) < 0.4
    radius = float(np.median(np.partition(clustered.distances[:200], 90, axis=1)[:, 90]))
    within = (clustered.distances[:200] <= radius) & allowed
    for L in (2, 16):
        found = Index(clustered.path).range_search(
            clustered.queries[:200], radius, L=L, policy=policy, allow=allowed
        )
        hits = sum(int(within[i, ids].sum()) for i, ids in enumerate(rows(found, "vector_ids")))
        assert hits / within.sum() >= (0.95 if L == 16 else 0.8)
        assert allowed[found.vector_ids].all()


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=50, dim=16)
    index, queries = Index(tmp_path), written.vectors[:2]
    for radius in (np.nan, float("nan")):
        with pytest.raises(InputError, match="radius: expected a number, got NaN"):
            index.range_search(queries, radius)
    bad = queries.copy()
    bad[1, 3] = np.nan
    with pytest.raises(InputError, match="row 1"):
        index.range_search(bad, 1.0)
    with pytest.raises(InputError, match="expected 16 dimensions, got 15"):
        index.range_search(queries[:, :15], 1.0)
    with pytest.raises(InputError, match="not numeric"):
        index.range_search(queries.astype(str), 1.0)
    with pytest.raises(InputError, match="raise L"):
        index.range_search(queries, 1.0, L=0)
    with pytest.raises(ConfigError, match="policy"):
        index.range_search(queries, 1.0, policy="guess")
    with pytest.raises(ConfigError, match="beam_width"):
        index.range_search(queries, 1.0, beam_width=65)
