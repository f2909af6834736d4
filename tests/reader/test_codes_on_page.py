"""Graphs whose nodes hold the codes of their neighbours: searched as the oracle does, opened, damaged."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.hostile import field_offset, patch_page_file, section_offset
from tests.oracles.files.on_page import read_on_page
from tests.oracles.files.small_index import Aids, SmallIndex, random_navigation, write_small_index
from tests.oracles.files.verify import verify_index
from tests.oracles.graph.on_page import OnPageOracle
from tests.support.damage import reseal

from indexmill.formats.errors import ConfigError, CorruptFile
from indexmill.formats.graph.navigation import NAVIGATION_NAME, write_navigation
from indexmill.formats.pagefile.frame import PAGE_BYTES, block_checksums
from indexmill.reader import _native
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index

ON_PAGE = Aids(on_page=True)
#: Sizes of an index, and pages of a block: several nodes share a page, one fills a page, one takes two.
SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "shared": ({"dim": 20, "R": 8, "aids": ON_PAGE}, 1),
    "page": ({"dim": 250, "R": 40, "aids": replace(ON_PAGE, n_chunks=24)}, 1),
    "two pages": ({"dim": 250, "R": 48, "aids": replace(ON_PAGE, n_chunks=64)}, 2),
}
COUNTERS = ("pages_read", "hops", "expansions", "distances", "code_distances")


def queries_like(vectors: np.ndarray, n: int) -> np.ndarray:
    return np.roll(vectors[:n], 1, axis=1)


@pytest.fixture
def small(tmp_path: Path) -> SmallIndex:
    return write_small_index(tmp_path / "ix", n=300, dim=24, aids=ON_PAGE)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("entry", ["medoid", "centroids"])
def test_searches_do_what_the_oracle_does(tmp_path: Path, shape: str, policy: Any, entry: Any) -> None:
    how, pages = SHAPES[shape]
    written = write_small_index(tmp_path, n=350, **how)
    oracle, index = OnPageOracle(tmp_path), Index(tmp_path)
    assert written.node_format.pages_per_node == pages == oracle.pages_per_block
    queries = queries_like(written.vectors, 10)
    found = index.search(queries, 5, L=25, beam_width=3, policy=policy, entry=entry)
    for i, query in enumerate(queries):
        want = oracle.search(query, 5, 25, 3, policy, entry)
        assert found.slots[i].tolist() == want.slots.tolist()
        assert found.vector_ids[i].tolist() == want.vector_ids.tolist()
        counts = (want.pages_read, want.hops, len(want.expanded), want.exact_distances, want.pq_distances)
        assert tuple(int(found.counters[name][i]) for name in COUNTERS) == counts


def test_rounds_start_at_several_entry_vertices(tmp_path: Path) -> None:
    written = write_small_index(tmp_path, n=350, **SHAPES["shared"][0])
    oracle, index = OnPageOracle(tmp_path), Index(tmp_path)
    queries = queries_like(written.vectors, 10)
    for beam_width, L in ((20, 30), (64, 6), (64, 40)):
        found = index.search(
            queries, 5, L=L, beam_width=beam_width, policy="rounds", entry="centroids", trace=True
        )
        assert found.trace is not None
        for i, query in enumerate(queries):
            want = oracle.search(query, 5, L, beam_width, "rounds")
            assert found.slots[i].tolist() == want.slots.tolist()
            counts = (want.pages_read, want.hops, len(want.expanded), want.exact_distances, want.pq_distances)
            assert tuple(int(found.counters[name][i]) for name in COUNTERS) == counts
        first = found.trace.filter(
            (found.trace["kind"].to_numpy() == "read") & (found.trace["hop"].to_numpy() == 1)
        )
        assert len(first) > len(queries)


@pytest.mark.parametrize(
    ("dtype", "metric", "rotated"),
    [
        ("float16", "l2", False), ("uint8", "l2", False), ("int8", "l2", True), ("sq16", "cosine", False),
        ("sq8", "ip", False), ("float32", "ip", True), ("float32", "cosine", False),
    ],
)  # fmt: skip
def test_all_types_and_metrics_are_searched(tmp_path: Path, dtype: str, metric: str, rotated: bool) -> None:
    aids = replace(ON_PAGE, rotated=rotated)
    written = write_small_index(tmp_path, n=350, dim=19, dtype=dtype, metric=metric, aids=aids)
    assert verify_index(tmp_path) == [] == _native.verify(str(tmp_path))
    oracle, index = OnPageOracle(tmp_path), Index(tmp_path)
    queries = queries_like(written.vectors, 12)
    found = index.search(queries, 5, L=30, beam_width=2)
    for i, query in enumerate(queries):
        want = oracle.search(query, 5, 30, 2, "pipeline", "centroids")
        np.testing.assert_allclose(found.scores[i], want.scores, rtol=1e-4, atol=1e-3)
        if metric == "l2":
            assert found.slots[i].tolist() == want.slots.tolist()
            assert found.counters["pages_read"][i] == want.pages_read


def test_a_node_of_two_pages_is_one_read(tmp_path: Path) -> None:
    how, pages = SHAPES["two pages"]
    written = write_small_index(tmp_path, n=350, **how)
    found = Index(tmp_path).search(queries_like(written.vectors, 8), 5, L=30, trace=True)
    assert found.trace is not None
    reads = int((found.trace["kind"].to_numpy() == "read").sum())
    assert pages * reads == found.counters["pages_read"].sum()
    assert found.counters["pages_read"].sum() * PAGE_BYTES == found.counters["bytes_read"].sum()


@pytest.mark.parametrize("shape", SHAPES)
def test_few_allowed_vertices_are_all_read(tmp_path: Path, shape: str) -> None:
    written = write_small_index(tmp_path, n=350, **SHAPES[shape][0])
    oracle, index = OnPageOracle(tmp_path), Index(tmp_path)
    slots = set(range(3, 350, 40))
    allowed = np.zeros(350, bool)
    allowed[written.vector_ids[sorted(slots)]] = True
    queries = queries_like(written.vectors, 6)
    found = index.search(queries, 4, L=10, allow=allowed)
    for i, query in enumerate(queries):
        best, pages = oracle.scan(query, 4, slots)
        assert found.slots[i].tolist() == best
        assert found.counters["pages_read"][i] == pages
        assert found.counters["code_distances"][i] == 0


def test_a_cache_and_a_view_change_nothing_that_is_found(tmp_path: Path) -> None:
    for number, shape in enumerate(SHAPES):
        path = tmp_path / str(number)
        written = write_small_index(path, n=350, **SHAPES[shape][0])
        queries, index = queries_like(written.vectors, 20), Index(path)
        first = index.search(queries, 5, L=25)
        view = index.remapped(np.arange(350, dtype=np.uint32)).search(queries, 5, L=25)
        index.cache(100_000)
        cached = index.search(queries, 5, L=25)
        for other in (view, cached):
            np.testing.assert_array_equal(other.slots, first.slots)
            np.testing.assert_array_equal(other.counters["expansions"], first.counters["expansions"])
        np.testing.assert_array_equal(view.counters["pages_read"], first.counters["pages_read"])
        assert (cached.counters["pages_read"] < first.counters["pages_read"]).any()


def bytes_read() -> int:
    """Bytes that this process has read so far."""
    line = next(line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar"))
    return int(line.split()[1])


def test_opening_reads_and_holds_as_much_whatever_the_size(tmp_path: Path) -> None:
    costs = {}
    for on_page in (True, False):
        for n in (400, 4000):
            path = tmp_path / f"{on_page}-{n}"
            write_small_index(path, n=n, dim=8, aids=Aids(on_page=on_page, n_navigation=0))
            Index(path, "pread")
            before = bytes_read()
            index = Index(path, "pread")
            costs[on_page, n] = bytes_read() - before, index.native.memory_bytes
    (read, held), (read_more, held_more) = costs[True, 400], costs[True, 4000]
    assert held == held_more
    assert abs(read_more - read) < 200  # digits of a manifest
    assert costs[False, 4000][0] > costs[False, 400][0] + 2 * PAGE_BYTES
    assert costs[False, 4000][1] > costs[False, 400][1] + 4 * 3600


def blocks_of(index: SmallIndex) -> np.ndarray:
    """The blocks of graph.imx, uint8 (m, bytes), as a copy."""
    data = (index.path / "graph.imx").read_bytes()
    start, size = section_offset(index.path / "graph.imx", "nodes"), index.node_format.group_bytes
    n_bytes = index.node_format.n_pages(len(index.stored)) * PAGE_BYTES
    return np.frombuffer(data[start : start + n_bytes], np.uint8).reshape(-1, size).copy()


def rewrite(index: SmallIndex, blocks: np.ndarray) -> None:
    path = index.path / "graph.imx"
    patch_page_file(path, {section_offset(path, "nodes"): blocks.tobytes()})
    reseal(index.path)


def test_a_flipped_bit_is_named(small: SmallIndex) -> None:
    path = small.path / "graph.imx"
    damaged = bytearray(path.read_bytes())
    damaged[PAGE_BYTES + 700] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptFile, match=r"graph\.imx: block at page 1: expected CRC32C"):
        Index(small.path).search(small.vectors[:200], 5, L=300)
    assert any(re.search(r"graph\.imx: page 1: ", line) for line in _native.verify(str(small.path)))


@pytest.mark.parametrize("change", ["checksum", "swap"])
def test_a_block_whose_own_checksum_is_wrong_is_refused(small: SmallIndex, change: str) -> None:
    blocks = blocks_of(small)
    if change == "checksum":
        blocks[1, 0] ^= 1
    else:
        blocks[[0, 1]] = blocks[[1, 0]]
    rewrite(small, blocks)
    with pytest.raises(CorruptFile, match=r"graph\.imx: block at page \d+: expected CRC32C"):
        Index(small.path).search(small.vectors, 5, L=300)
    assert any("block at page" in line for line in _native.verify(str(small.path)))
    assert any("its checksum" in line for line in verify_index(small.path))


@pytest.mark.parametrize("value", [0, 31, 255])
def test_a_code_that_is_not_its_neighbours_is_found_by_verify(small: SmallIndex, value: int) -> None:
    f = small.node_format
    blocks = blocks_of(small)
    at = f.head_bytes + f.vector_bytes + 4 + 4 * f.max_degree + 2  # a code of the first neighbour of slot 0
    blocks[0, at] = value if blocks[0, at] != value else value ^ 1
    blocks[0, :4] = block_checksums(blocks[:1, 4:]).view(np.uint8)
    rewrite(small, blocks)
    neighbour = int(small.neighbours[0, 0])
    (damage,) = _native.verify(str(small.path))
    assert f"page 1: slot 0, code of neighbour {neighbour}: expected that of codes.imx" in damage
    (problem,) = verify_index(small.path)
    assert f"slot 0: code of neighbour {neighbour}" in problem
    Index(small.path).search(small.vectors[:50], 5, L=300)


def test_codes_of_another_size_and_a_navigation_graph_are_refused(small: SmallIndex) -> None:
    path = small.path / "graph.imx"
    whole = path.read_bytes()
    for value in (0, 3, 513):
        patch_page_file(path, {field_offset(path, "code_bytes"): value.to_bytes(8, "little")})
        with pytest.raises(CorruptFile, match=r'field "(code_bytes|node_bytes)"'):
            Index(small.path)
        path.write_bytes(whole)
    write_navigation(small.path / NAVIGATION_NAME, random_navigation(np.random.default_rng(1), 300, 20), 300)
    reseal(small.path)
    with pytest.raises(CorruptFile, match=r"no navigation\.imx beside codes in nodes"):
        Index(small.path)


def test_entries_that_need_codes_in_memory_are_refused(small: SmallIndex) -> None:
    index = Index(small.path)
    assert index.default_entry == "centroids"
    for how in ({"entry": "previous", "inflight": 1}, {"entry": "navigation"}):
        with pytest.raises(
            ConfigError, match=r"entry: .* has its codes in the nodes, not in memory; use entry"
        ):
            index.search(small.vectors[:2], 3, **how)


def test_places_behind_a_short_list_are_zero(small: SmallIndex) -> None:
    nodes = read_on_page(small.path / "graph.imx")
    assert nodes is not None
    assert nodes.problems == []
    assert min(map(len, nodes.neighbours)) < 8 == max(map(len, nodes.neighbours))
