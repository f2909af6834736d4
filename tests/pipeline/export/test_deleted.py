"""Exports of rows leave deleted vectors out, and number the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.support.indexes.export import id_map
from tests.support.indexes.ivf import build_lists, make_vectors

import indexmill
from indexmill.formats.exports.targets import TARGETS
from indexmill.formats.graph.index import IndexFiles
from indexmill.pipeline.export.opened import open_exported


def test_a_graph_has_rows_and_neighbours_that_are_left(tmp_path: Path) -> None:
    small = write_small_index(tmp_path / "ix", n=300, dim=8, metadata=True)
    gone = np.random.default_rng(2).permutation(300)[:130]
    indexmill.delete(tmp_path / "ix", gone, by="vector")
    indexmill.export(tmp_path / "ix", "parquet", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "vectors.parquet").to_pydict()
    slots = np.flatnonzero(~np.isin(small.vector_ids, gone))
    assert table["slot"] == list(range(170))
    assert table["vector_id"] == small.vector_ids[slots].tolist()
    assert table["id"] == small.user_ids.take(slots).to_pylist()
    assert table["colour"] == [f"c{v % 5}" for v in small.vector_ids[slots]]
    with IndexFiles(tmp_path / "ix") as files:
        nodes, per_page = files.graph.read_all(), files.graph.node_format.nodes_per_group
    assert table["partition"] == (slots // per_page).tolist()
    np.testing.assert_array_equal(np.array(table["vector"], np.float32), nodes.vectors[slots])
    row_of = {int(slot): row for row, slot in enumerate(slots)}
    for row, slot in enumerate(slots):
        neighbours = nodes.neighbours[slot, : nodes.degrees[slot]].tolist()
        assert table["neighbours"][row] == [row_of[v] for v in neighbours if v in row_of]
    mapped = id_map(tmp_path / "out")
    assert mapped["slot"].to_pylist() == list(range(170))
    assert mapped["vector_id"].to_pylist() == table["vector_id"]


@pytest.mark.parametrize("copies", [1, 3])
def test_lists_have_rows_that_are_left(tmp_path: Path, copies: int) -> None:
    vectors = make_vectors("float32")
    index = build_lists(tmp_path / "ix", vectors, copies=copies)
    indexmill.export(index, "parquet", tmp_path / "before")
    before = pq.read_table(tmp_path / "before" / "vectors.parquet").to_pydict()
    indexmill.delete(index, range(0, len(vectors), 3))
    indexmill.export(index, "parquet", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "vectors.parquet").to_pydict()
    kept = [row for row, vector in enumerate(before["vector_id"]) if vector % 3]
    assert table["slot"] == list(range(len(kept)))
    for column in ("vector_id", "id", "partition", "vector"):
        assert table[column] == [before[column][row] for row in kept], column


@pytest.mark.parametrize("copies", [1, 3])
def test_lists_are_described_and_counted_without_deleted_vectors(tmp_path: Path, copies: int) -> None:
    vectors = make_vectors("float32")
    index = build_lists(tmp_path / "ix", vectors, copies=copies)
    indexmill.delete(index, range(100))
    with (
        open_exported(index, TARGETS["parquet"], "user") as opened,
        opened.view(tmp_path / "scratch") as rows,
    ):
        assert opened.described().n == 2900
        assert (rows.n, rows.n_rows, rows.repeats) == (2900, 2900, False)


def test_a_dump_for_a_database_counts_what_is_left(tmp_path: Path) -> None:
    write_small_index(tmp_path / "ix", n=200, dim=8)
    indexmill.delete(tmp_path / "ix", range(150), by="vector")
    for target in ("pgvector", "bulk"):
        record = indexmill.export(tmp_path / "ix", target, tmp_path / target)
        assert (record["n_vectors"], record["index_generation"]) == (50, 2)
    lines = (tmp_path / "bulk" / "bulk-00000.ndjson").read_bytes().splitlines()
    assert len(lines) == 100
