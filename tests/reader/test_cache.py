"""`Index.cache` against the slow oracle."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.oracles.graph.features import FeatureOracle
from tests.support.indexes.clusters import Clustered

from indexmill.formats.errors import ConfigError, CorruptFile
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import CacheInfo, Index

DEVICE = Path(__file__).parents[2] / "reader/core/tests/data/quick-device.json"
#: Bytes of the directory for each cached page.
DIRECTORY_BYTES = 8


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_holds_the_pages_that_the_oracle_would_keep(
    tmp_path: Path, policy: str, trained: bool
) -> None:
    written = write_small_index(tmp_path, n=400, dim=20, R=6)
    oracle, index = FeatureOracle(tmp_path), Index(tmp_path)
    sample, queries = np.roll(written.vectors[:15], 2, axis=1), np.roll(written.vectors[50:60], 1, axis=1)
    logs = [oracle.ask(query, 20, 4, policy, "medoid", k=1)[1].read_log for query in sample]
    for limit in (1, 3, 8):
        if trained:
            pages = oracle.hottest_pages(logs, limit)
            kept = index.cache(
                limit * (4096 + DIRECTORY_BYTES), sample, L=20, beam_width=4, policy=policy, entry="medoid"
            )
        else:
            pages = oracle.pages_around_entries(limit)
            kept = index.cache(limit * (4096 + DIRECTORY_BYTES))
        assert kept == index.cached == CacheInfo(limit, limit * (4096 + DIRECTORY_BYTES))
        found = index.search(queries, 5, L=20, beam_width=4, policy=policy, entry="medoid")
        for i, query in enumerate(queries):
            want, _ = oracle.ask(query, 20, 4, policy, "medoid", k=5, cached=pages)
            assert found.slots[i].tolist() == want.slots.tolist()
            assert found.counters["pages_read"][i] == want.pages_read
            assert found.counters["hops"][i] == want.hops
        assert found.counters["cache_hits"].sum() > 0


@pytest.mark.parametrize("engine", ["auto", "mmap", f"simulated:{DEVICE}"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_changes_reads_and_nothing_else(clustered: Clustered, policy: str, engine: str) -> None:
    index, queries = Index(clustered.path, engine), clustered.queries[:300]
    plain = index.search(queries, 10, L=20, policy=policy)
    ranged = index.range_search(queries, 20.0, L=20, policy=policy)
    size = clustered.path.joinpath("graph.imx").stat().st_size
    reads = [plain.counters["pages_read"].sum()]
    for n_bytes in (size // 10, size // 2, 2 * size):
        index.cache(n_bytes, clustered.queries[300:600], policy=policy)
        cached = index.search(queries, 10, L=20, policy=policy)
        np.testing.assert_array_equal(cached.slots, plain.slots)
        np.testing.assert_array_equal(cached.scores, plain.scores)
        for name in ("hops", "expansions", "distances", "code_distances", "bytes_used"):
            np.testing.assert_array_equal(cached.counters[name], plain.counters[name])
        np.testing.assert_array_equal(cached.counters["bytes_read"], 4096 * cached.counters["pages_read"])
        again = index.range_search(queries, 20.0, L=20, policy=policy)
        np.testing.assert_array_equal(again.slots, ranged.slots)
        reads.append(cached.counters["pages_read"].sum())
    assert reads == sorted(reads, reverse=True)
    assert reads[1] < 0.95 * reads[0]
    assert reads[2] < 0.65 * reads[0]
    index.cache(0)
    assert index.cached == CacheInfo(0, 0)
    np.testing.assert_array_equal(
        index.search(queries, 10, L=20, policy=policy).counters["pages_read"], plain.counters["pages_read"]
    )


def test_a_page_that_is_damaged_is_not_cached(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=400)
    index = Index(tmp_path)
    raw = bytearray((tmp_path / "graph.imx").read_bytes())
    raw[3 * 4096 + 100] ^= 4
    (tmp_path / "graph.imx").write_bytes(raw)
    with pytest.raises(CorruptFile, match=r"graph\.imx: page 3"):
        index.cache(2**30)
    with pytest.raises(CorruptFile, match=r"graph\.imx: page 3"):
        index.cache(2**30, written.vectors[:50], L=400)
    assert index.cached == CacheInfo(0, 0)


def test_nodes_larger_than_a_page_are_cached_whole(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=40, dim=2048)
    index = Index(tmp_path)
    assert index.cache(3 * 4096 + DIRECTORY_BYTES - 1) == CacheInfo(0, 0)
    assert index.cache(5 * (3 * 4096 + DIRECTORY_BYTES)).n_pages == 15
    assert index.cache(10**30).n_pages == 120
    found = index.search(written.vectors[:5], 1, L=40)
    np.testing.assert_array_equal(found.vector_ids[:, 0], np.arange(5))
    assert found.counters["pages_read"].sum() == 0


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    write_small_index(tmp_path, n=40)
    with pytest.raises(ConfigError, match="n_bytes: expected 0 or more bytes, got -1"):
        Index(tmp_path).cache(-1)


def test_searches_of_other_threads_go_on_while_the_cache_is_replaced(clustered: Clustered) -> None:
    index, queries = Index(clustered.path), clustered.queries[:40]
    want = index.search(queries, 10, L=20).slots
    wrong: list[object] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                if not np.array_equal(index.search(queries, 10, L=20).slots, want):
                    wrong.append("another answer")
            except Exception as error:
                wrong.append(error)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for round_ in range(20):
        index.cache((0, 100_000, 10_000_000)[round_ % 3], queries if round_ % 2 else None)
    stop.set()
    for asker in askers:
        asker.join()
    assert wrong == []
