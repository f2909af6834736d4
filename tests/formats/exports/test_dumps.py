"""Plain dumps: Parquet, PostgreSQL's COPY, and lines of JSON, read back one value at a time."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.files.pgcopy import read_copy, read_vector
from tests.oracles.files.small_index import write_small_index
from tests.support.cli import Data, N, brute_force, build, make_data
from tests.support.indexes.append import points
from tests.support.indexes.export import paste

import indexmill
from indexmill.formats.errors import ConfigError
from indexmill.formats.exports.json_text import json_column, json_lists, json_objects


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return make_data(tmp_path_factory.mktemp("dumps"))


@pytest.fixture(scope="module")
def index(data: Data) -> Path:
    return build(data, data.folder / "index", "--metadata-columns", "score,colour")


def order_of(folder: Path) -> list[int]:
    rows: list[int] = pq.read_table(folder / "ids.parquet")["vector_id"].to_pylist()
    return rows


def test_parquet_holds_every_vector_id_neighbour_and_metadata_value(
    data: Data, index: Path, tmp_path: Path
) -> None:
    found = indexmill.export(index, "parquet", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "vectors.parquet")
    assert table.schema.names == [
        "slot",
        "partition",
        "vector_id",
        "id",
        "vector",
        "neighbours",
        "score",
        "colour",
    ]
    assert table["slot"].to_pylist() == list(range(N))
    per_page = 4096 // (12 * 4 + 4 + 12 * 4)
    assert table["partition"].to_pylist() == [slot // per_page for slot in range(N)]
    rows = table["vector_id"].to_numpy()
    assert rows.tolist() == order_of(tmp_path / "out")
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), data.vectors[rows])
    assert table["id"].to_pylist() == [data.names[row] for row in rows]
    assert table["score"].to_pylist() == [row / 2 for row in rows]
    assert table["colour"].to_pylist() == [("red", "green", None)[row % 3] for row in rows]
    neighbours = table["neighbours"].to_pylist()
    assert all(0 < len(near) <= 12 and slot not in near for slot, near in enumerate(neighbours))
    nearest, _ = brute_force(data.vectors, data.vectors, 2)
    of_row = {row: [rows[u] for u in near] for row, near in zip(rows, neighbours, strict=True)}
    assert np.mean([nearest[row, nearest[row] != row][0] in near for row, near in of_row.items()]) > 0.9
    assert "neighbours" in paste(found["open"])


@pytest.mark.parametrize(
    ("metric", "node_dtype"), [("cosine", "same"), ("ip", "same"), ("l2", "sq8"), ("l2", "float16")]
)
def test_parquet_gives_vectors_in_the_input_s_dimensions(
    data: Data, tmp_path: Path, metric: str, node_dtype: str
) -> None:
    index = build(data, tmp_path / "index", "--metric", metric, "--node-dtype", node_dtype)
    indexmill.export(index, "parquet", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "vectors.parquet")
    expected = data.vectors[table["vector_id"].to_numpy()]
    if metric == "cosine":
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    error = {"same": 1e-6, "float16": 1e-2, "sq8": 0.1}[node_dtype]
    np.testing.assert_allclose(np.array(table["vector"].to_pylist(), np.float32), expected, atol=error)


def test_copy_holds_every_field(data: Data, index: Path, tmp_path: Path) -> None:
    indexmill.export(index, "pgvector", tmp_path / "out")
    order = order_of(tmp_path / "out")
    rows = read_copy((tmp_path / "out" / "vectors.pgcopy").read_bytes())
    assert len(rows) == N
    for slot, (row, fields) in enumerate(zip(order, rows, strict=True)):
        assert struct.unpack(">q", fields[0]) == (slot,)
        assert struct.unpack(">i", fields[1]) == (slot // 40,)
        assert fields[2].decode() == data.names[row]
        assert np.float32(read_vector(fields[3], "f")).tolist() == data.vectors[row].tolist()
        assert fields[4][:1] == b"\x01"
        assert json.loads(fields[4][1:]) == {"score": row / 2, "colour": ("red", "green", None)[row % 3]}
    sql = (tmp_path / "out" / "load.sql").read_text()
    assert "id text NOT NULL" in sql
    assert f"embedding vector({data.vectors.shape[1]})" in sql
    assert "\\copy indexmill_vectors (slot, partition, id, embedding, metadata) FROM 'vectors.pgcopy'" in sql


@pytest.mark.parametrize("id_type", ["none", "int64", "binary"])
@pytest.mark.parametrize("dtype", ["float16", "uint8", "sq8"])
def test_copy_holds_every_type(tmp_path: Path, id_type: str, dtype: str) -> None:
    small = write_small_index(tmp_path / "ix", dtype=dtype, id_type=id_type, n=50)
    indexmill.export(small.path, "pgvector", tmp_path / "out")
    rows = read_copy((tmp_path / "out" / "vectors.pgcopy").read_bytes())
    sql = (tmp_path / "out" / "load.sql").read_text()
    half = dtype == "float16"
    assert ("halfvec(16)" in sql) == half
    names = small.vector_ids if small.user_ids is None else small.user_ids.to_pylist()
    for slot, fields in enumerate(rows):
        found = fields[2] if id_type == "binary" else struct.unpack(">q", fields[2])[0]
        assert found == names[slot]
        expected = small.vectors[small.vector_ids[slot]].astype(np.float32)
        tolerance = 0.06 if dtype == "sq8" else 0
        np.testing.assert_allclose(read_vector(fields[3], "e" if half else "f"), expected, atol=tolerance)
        assert len(fields) == 4


def test_lines_hold_every_field(data: Data, index: Path, tmp_path: Path) -> None:
    indexmill.export(index, "bulk", tmp_path / "out")
    order = order_of(tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "bulk-00000.ndjson").read_bytes().splitlines()]
    assert len(lines) == 2 * N
    for slot, row in enumerate(order):
        assert lines[2 * slot] == {"index": {"_id": data.names[row]}}
        document = lines[2 * slot + 1]
        assert np.float32(document.pop("vector")).tolist() == data.vectors[row].tolist()
        assert document == {"slot": slot, "partition": slot // 40, "vector_id": row, "id": data.names[row],
                            "score": row / 2, "colour": ("red", "green", None)[row % 3]}  # fmt: skip
    opensearch, elastic = (json.loads((tmp_path / "out" / f"{name}.json").read_text())["mappings"]["properties"]
                           for name in ("opensearch", "elasticsearch"))  # fmt: skip
    assert opensearch["vector"] == {"type": "knn_vector", "dimension": 12, "space_type": "l2"}
    assert elastic["vector"] == {"type": "dense_vector", "dims": 12, "similarity": "l2_norm"}
    assert opensearch["id"] == elastic["id"] == {"type": "keyword"}
    assert opensearch["score"] == elastic["score"] == {"type": "double"}
    assert opensearch["colour"] == elastic["colour"]
    assert elastic["colour"]["type"] == "text"


def test_json_text_is_json_whatever_the_value() -> None:
    wild = ['a"b', "back\\slash", "\x00\x01\x1f\n\t\r", "ключ \U0001f511", "", None, "</script>"]
    moment = datetime(2026, 11, 21, 10, 30)
    columns: dict[str, tuple[pa.Array, list[Any]]] = {
        "s": (pa.array(wild), wild),
        'k"ey\n': (pa.array(wild).dictionary_encode(), wild),
        "f": (
            pa.array([1.5, np.nan, np.inf, -np.inf, None, 1e-30, 3e38]),
            [1.5, None, None, None, None, 1e-30, 3e38],
        ),
        "h": (pa.array(np.array([1.5] * 7, np.float16)), [1.5] * 7),
        "i": (pa.array([-(2**63), 2**63 - 1, 0, 1, 2, 3, None]), [-(2**63), 2**63 - 1, 0, 1, 2, 3, None]),
        "b": (pa.array([True, False, None] * 2 + [True]), [True, False, None] * 2 + [True]),
        "n": (pa.nulls(7), [None] * 7),
        "d": (pa.array([date(2026, 1, 2)] * 7), ["2026-01-02"] * 7),
        "t": (pa.array([moment] * 7), [str(moment) + ".000000"] * 7),
        "c": (pa.array([Decimal("1.25")] * 7), [1.25] * 7),
    }
    text = json_objects([(name, json_column(values)) for name, (values, _) in columns.items()], 7)
    for row, line in enumerate(text.to_pylist()):
        assert json.loads(line) == {name: expected[row] for name, (_, expected) in columns.items()}
    assert json_objects([], 2).to_pylist() == ["{}", "{}"]
    lists = json_lists(pa.array(np.array([1, 2, 3, 4, 0.1, -0.0], np.float32)), 2)
    assert [np.float32(json.loads(line)).tolist() for line in lists.to_pylist()] == [
        [1, 2], [3, 4], [float(np.float32(0.1)), 0]]  # fmt: skip


def test_a_float_in_text_is_the_same_float() -> None:
    values = np.frombuffer(np.random.default_rng(0).bytes(40_000), np.float32)
    values = values[np.isfinite(values)]
    (line,) = json_lists(pa.array(values), len(values)).to_pylist()
    assert (np.array(json.loads(line), np.float64).astype(np.float32) == values).all()


@pytest.mark.parametrize("target", ["pgvector", "bulk"])
def test_what_a_dump_cannot_hold_is_refused(target: str, tmp_path: Path) -> None:
    rows = points(40, 1)
    lists = pa.table({"tags": pa.array([["a"]] * 40)})
    indexmill.build(rows, tmp_path / "x", metadata=lists, pq_bytes=2)
    with pytest.raises(
        ConfigError, match=r"metadata column 'tags' of type list.* but .* holds null, boolean"
    ):
        indexmill.export(tmp_path / "x", target, tmp_path / "out")
    wrong: dict[str, list[tuple[Any, str]]] = {
        "pgvector": [
            ([f"{i}\0" for i in range(40)], "a zero byte.*give --ids slot"),
            (np.arange(40, dtype=np.uint64) + np.uint64(2**63), "holds ids from 0 to"),
        ],
        "bulk": [
            ([f"{i}".encode() for i in range(40)], "ids of type binary.*give --ids slot"),
            (["x" * 600, *(f"{i}" for i in range(39))], "ids of 1 to 600 bytes"),
        ],
    }
    for ids, message in wrong[target]:
        indexmill.build(rows, tmp_path / "x", ids=ids, pq_bytes=2, force=True)
        with pytest.raises(ConfigError, match=message):
            indexmill.export(tmp_path / "x", target, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_postgres_cannot_hold_a_zero_byte_in_metadata(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(40)]
    words[23] = "a\0b"
    indexmill.build(points(40, 1), tmp_path / "x", metadata=pa.table({"word": words}), pq_bytes=2)
    with pytest.raises(
        ConfigError, match=r"metadata column 'word' with a zero byte, of vector 23, .*text without"
    ):
        indexmill.export(tmp_path / "x", "pgvector", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    indexmill.export(tmp_path / "x", "bulk", tmp_path / "out")  # JSON has an escape for it
