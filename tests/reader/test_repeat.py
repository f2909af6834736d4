"""Searches that repeat bit for bit, recall that the others may lose, and results that a search remembers."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.oracles.graph.features import FeatureOracle
from tests.support.indexes.clusters import Clustered

from indexmill.formats.errors import ConfigError
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index, SearchResult

TIMES = {"latency_us", "io_wait_us"}


def same(one: SearchResult, other: SearchResult) -> None:
    np.testing.assert_array_equal(one.slots, other.slots)
    np.testing.assert_array_equal(one.scores, other.scores)
    for name in one.counters.keys() - TIMES:
        np.testing.assert_array_equal(one.counters[name], other.counters[name], err_msg=name)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_deterministic_search_repeats_over_engines_threads_and_interleaving(
    clustered: Clustered, policy: str
) -> None:
    queries = clustered.queries[:300]
    first = None
    for engine, threads, inflight in (("pread", 1, 1), ("auto", 1, 64), ("pread", 4, 8), ("mmap", 2, 3)):
        index = Index(clustered.path, engine)
        found = index.search(queries, 10, L=15, policy=policy, threads=threads, inflight=inflight)
        first = first or found
        same(first, found)


def test_without_the_flag_recall_stays_within_two_thousandths(clustered: Clustered) -> None:
    """A quiet machine seldom changes the order of reads: searches are repeated until it has done so for each L."""
    index = Index(clustered.path, "pread")
    for L in (10, 20, 40):
        fixed = index.search(clustered.queries, 10, L=L)
        recalls, reordered = [], False
        while len(recalls) < 3 or not reordered:
            free = index.search(clustered.queries, 10, L=L, deterministic=False, threads=2, inflight=64)
            recalls.append(clustered.recall(free))
            reordered |= bool((free.counters["pages_read"] != fixed.counters["pages_read"]).any())
            assert len(recalls) < 100, "reads never landed in another order: nothing was tested"
        assert abs(np.mean(recalls) - clustered.recall(fixed)) <= 0.002, (L, recalls)


@pytest.mark.parametrize("policy", ["beam", "completion", "page"])
def test_without_the_flag_policies_with_rounds_repeat_all_the_same(clustered: Clustered, policy: str) -> None:
    index, queries = Index(clustered.path, "pread"), clustered.queries[:300]
    free = index.search(queries, 10, L=15, policy=policy, deterministic=False, threads=4, inflight=16)
    same(index.search(queries, 10, L=15, policy=policy), free)


@pytest.mark.parametrize("policy", POLICIES)
def test_searching_from_previous_results_does_what_the_oracle_does(tmp_path: Path, policy: str) -> None:
    written = write_small_index(tmp_path, n=400, dim=20, R=6)
    oracle, index = FeatureOracle(tmp_path), Index(tmp_path)
    queries = np.roll(written.vectors[:12], 1, axis=1)
    for _ in range(2):  # each call begins anew
        found = index.search(queries, 5, L=25, beam_width=3, policy=policy, entry="previous", inflight=1)
        previous: list[int] = []
        for i, query in enumerate(queries):
            want, _ = oracle.ask(query, 25, 3, policy, "centroids", k=5, previous=previous)
            assert found.slots[i].tolist() == want.slots.tolist()
            assert found.counters["pages_read"][i] == want.pages_read
            assert found.counters["code_distances"][i] == want.pq_distances
            previous = want.slots.tolist()


def test_previous_results_carry_over_to_the_next_call_only_without_the_flag(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=400, dim=20, R=6)
    oracle, index = FeatureOracle(tmp_path), Index(tmp_path)
    one, other = np.roll(written.vectors[:2], 1, axis=1)
    how = {"L": 25, "policy": "page", "beam_width": 3, "entry": "previous", "inflight": 1}
    for deterministic in (True, False):
        last = index.search(one, 5, deterministic=deterministic, **how).slots[0].tolist()
        found = index.search(other, 5, deterministic=deterministic, **how)
        previous = [] if deterministic else last
        want, _ = oracle.ask(other, 25, 3, "page", "centroids", k=5, previous=previous)
        assert found.counters["code_distances"][0] == want.pq_distances
        assert found.slots[0].tolist() == want.slots.tolist()


def test_previous_results_of_queries_at_once_are_refused_with_the_flag(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=100)
    index = Index(tmp_path)
    for many in ({"threads": 2, "inflight": 1}, {"threads": 1, "inflight": 2}):
        for ask in (index.search, lambda queries, **how: index.range_search(queries, 9.0, **how)):
            with pytest.raises(ConfigError, match="deterministic = false"):
                ask(written.vectors, entry="previous", **many)
            ask(written.vectors, entry="previous", deterministic=False, **many)


def test_searches_go_on_while_the_index_is_replaced(tmp_path: Path) -> None:
    written = write_small_index(tmp_path / "ix", n=300, seed=1, metadata=True)
    write_small_index(tmp_path / "next", n=300, seed=2, metadata=True)
    indexes = [Index(tmp_path / "ix", engine) for engine in ("auto", "pread", "mmap")]
    queries = written.vectors[:20]
    want = indexes[0].search(queries, 5, L=30)
    wrong: list[object] = []
    stop, rounds = threading.Event(), [0, 0, 0]

    def ask(i: int) -> None:
        while not stop.is_set() or rounds[i] < 3:
            try:
                found = indexes[i].search(queries, 5, L=30)
                np.testing.assert_array_equal(want.scores, found.scores)
                np.testing.assert_array_equal(want.ids, found.ids)
                assert len(indexes[i].range_search(queries[:2], np.inf).ids) == 600
                assert indexes[i].metadata([7]).num_rows == 1
                indexes[i].cache(20_000 * (rounds[i] % 2))
            except BaseException as error:
                wrong.append(error)
                return
            rounds[i] += 1

    askers = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    for asker in askers:
        asker.start()
    for generation in range(12):
        (tmp_path / "ix").rename(tmp_path / "old")
        shutil.copytree(tmp_path / ("next" if generation % 2 else "old"), tmp_path / "ix")
        shutil.rmtree(tmp_path / "old")
    (tmp_path / "ix").rename(tmp_path / "old")
    (tmp_path / "next").rename(tmp_path / "ix")
    shutil.rmtree(tmp_path / "old")
    stop.set()
    for asker in askers:
        asker.join()
    assert wrong == []
    assert not np.array_equal(Index(tmp_path / "ix").search(queries, 5, L=30).scores, want.scores)
