"""Units larger than a page: names, counts of what searches read, and layouts that leave fewer to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.support.indexes.clusters import Clustered

from indexmill.formats.errors import ConfigError
from indexmill.formats.graph.index import IndexFiles
from indexmill.jobs.compare import units as compared
from indexmill.jobs.compare.costs import compare_rows
from indexmill.jobs.compare.units import split_units, unit_cells, unit_cost, unit_name, units_read
from indexmill.layout.order import Adjacency, Given, Work, in_memory
from indexmill.layout.star import StarOrder
from indexmill.layout.units.order import in_units
from indexmill.reader.choices import POLICIES
from indexmill.reader.index import Index

PAGE = 4096


def test_units_are_sorted_sizes_each_once() -> None:
    assert split_units([]) == []
    assert split_units(["1MiB", "64KiB", "65536", "4KiB"]) == [4096, 65536, 1 << 20]
    assert [unit_name(unit) for unit in (4096, 65536, 1 << 20, 3 << 19, 2 << 30)] == [
        "4KiB", "64KiB", "1MiB", "1536KiB", "2GiB"
    ]  # fmt: skip
    assert unit_cost(65536) == "units_64KiB"


@pytest.mark.parametrize("size", ["0", "1KiB", "5000", "6KiB", "64KB"])
def test_a_unit_that_is_no_multiple_of_the_page_is_refused(size: str) -> None:
    with pytest.raises(
        ConfigError, match=f"--unit: expected a multiple of the page, 4096 bytes.*got '{size}'"
    ):
        split_units(["64KiB", size])


def test_a_unit_that_is_no_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="--unit: 'large' is not a size"):
        split_units(["large"])


@pytest.mark.parametrize(("dim", "pages_per_node"), [(20, 1), (1000, 1), (1100, 2)])
@pytest.mark.parametrize("policy", POLICIES)
def test_units_are_counted_once_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dim: int, pages_per_node: int, policy: str
) -> None:
    written = write_small_index(tmp_path / "ix", 150, dim)
    index = Index(tmp_path / "ix")
    assert index.native.pages_per_node == pages_per_node
    queries = np.roll(written.vectors[:30], 1, axis=1)
    options: dict[str, Any] = {"policy": policy, "deterministic": True}
    sizes = [PAGE, 2 * PAGE, 3 * PAGE, 16 * PAGE, 1 << 30]
    monkeypatch.setattr(compared, "QUERIES_AT_ONCE", 7)
    counted = units_read(index, queries, 5, 20, options, sizes)
    trace = index.search(queries, 5, L=20, trace=True, **options).trace
    assert trace is not None
    for size in sizes:
        expected: list[set[int]] = [set() for _ in queries]
        for event in trace.to_pylist():
            if event["kind"] == "read":
                begin = event["page"] * pages_per_node * PAGE
                for byte in range(begin, begin + pages_per_node * PAGE, PAGE):
                    expected[event["query"]].add(byte // size)
        assert counted[unit_cost(size)].tolist() == [len(one) for one in expected]
    assert (counted[unit_cost(1 << 30)] == 1).all()


def test_pages_in_units_are_read_as_before_from_fewer_units(clustered: Clustered) -> None:
    index = Index(clustered.path)
    with IndexFiles(clustered.path) as files:
        nodes, b = files.graph.read_all(), files.graph.node_format.nodes_per_page
    graph = Adjacency(nodes.neighbours, nodes.degrees.astype(np.int32))
    stars = StarOrder().fit(graph, None, b, 1)
    pages = np.random.default_rng(1).permutation(len(stars) // b)
    before = np.concatenate([*(stars[page * b : page * b + b] for page in pages), stars[len(pages) * b :]])
    after = in_units(before, Given(graph, None, b, 1, 1, Work(), in_memory))
    queries, views = clustered.queries[:300], [index.remapped(order) for order in (before, after)]
    for policy in POLICIES:
        options: dict[str, Any] = {"policy": policy, "deterministic": True}
        found = [view.search(queries, 10, L=30, **options) for view in views]
        np.testing.assert_array_equal(found[0].vector_ids, found[1].vector_ids)
        for name in ("pages_read", "hops", "distances", "bytes_used"):
            np.testing.assert_array_equal(found[0].counters[name], found[1].counters[name])
        read = [units_read(view, queries, 10, 30, options, [PAGE, 16 * PAGE]) for view in views]
        np.testing.assert_array_equal(read[0]["units_4KiB"], read[1]["units_4KiB"])
        assert read[1]["units_64KiB"].mean() < 0.8 * read[0]["units_64KiB"].mean()


def test_the_table_has_units_their_ratio_and_bytes() -> None:
    rows = [
        {"index": name, "policy": "page", "recall": recall, "pages_read": 9.0, "latency_us_mean": 1.0,
         "latency_us_p99": 1.0, "qps": 1.0, "units_64KiB": factor * recall, "units_1MiB": 2.0}
        for name, factor in (("a", 20), ("b", 10)) for recall in (0.92, 0.96)
    ]  # fmt: skip
    lines = compare_rows(rows, (0.90, 0.94, 0.97), ["units_64KiB", "units_1MiB"])
    headings, cells = unit_cells(lines, [65536, 1 << 20])
    assert headings == ["recall", "policy", "index", "64KiB", "ratio", "read", "1MiB", "ratio", "read"]
    assert cells[0] == ["0.90", "page", "a", "≤ 18.4", "-", "≤ 1.2 MiB", "≤ 2.0", "-", "≤ 2.0 MiB"]
    assert cells[3] == ["0.94", "page", "b", "9.4", "0.50x", "601.6 KiB", "2.0", "1.00x", "2.0 MiB"]
    assert cells[5] == ["0.97", "page", "b", "not reached", "-", "-", "not reached", "-", "-"]
