"""Plain dumps of inverted lists against the lists as they lie in their files, read one by one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.files.pgcopy import read_copy, read_vector
from tests.support.indexes.export import id_map, paste, record, rows_in_files
from tests.support.indexes.ivf import BATCH, DIM, LISTS, build_lists, make_vectors

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile
from indexmill.formats.exports import lists

DUMPS = ("parquet", "pgvector", "bulk")
N = 2500
#: Parameters of lists, and the most by which decoded components may differ from the vectors.
CASES: dict[str, tuple[str, dict[str, Any], float]] = {
    "float32": ("float32", {}, 0),
    "uint8": ("uint8", {}, 0),
    "sq8": ("float32", {"codec": "sq8"}, 0.3),
    "pq-exact": ("float32", {"codec": "pq", "pq_bytes": 4, "keep_vectors": True}, 0),
    "ip": ("float32", {"metric": "ip"}, 0),
    "copies": ("float32", {"copies": 3, "closure": 0.5}, 0),
    "pq-copies": ("float32", {"codec": "pq", "pq_bytes": 4, "keep_vectors": True, "copies": 3, "closure": 0.5}, 0),
}  # fmt: skip


def read_dump(target: str, folder: Path) -> dict[str, Any]:
    """Return columns of a dump of lists, value by value."""
    if target == "parquet":
        table = pq.read_table(folder / "vectors.parquet")
        assert table.schema.names == ["slot", "partition", "vector_id", "id", "vector", "colour"]
        return {name: table[name].to_pylist() for name in table.schema.names if name != "vector_id"}
    if target == "pgvector":
        rows = read_copy((folder / "vectors.pgcopy").read_bytes())
        assert "partition is the list" in (folder / "load.sql").read_text()
        return {
            "slot": [struct.unpack(">q", row[0])[0] for row in rows],
            "partition": [struct.unpack(">i", row[1])[0] for row in rows],
            "id": [row[2].decode() for row in rows],
            "vector": [read_vector(row[3], "f") for row in rows],
            "colour": [json.loads(row[4][1:])["colour"] for row in rows],
        }
    lines = [json.loads(line) for line in (folder / "bulk-00000.ndjson").read_bytes().splitlines()]
    assert [line["index"]["_id"] for line in lines[::2]] == [line["id"] for line in lines[1::2]]
    return {
        name: [line[name] for line in lines[1::2]] for name in ("slot", "partition", "id", "vector", "colour")
    }


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    return {dtype: make_vectors(dtype, N) for dtype in ("float32", "uint8")}


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory, vectors: dict[str, Any]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dumps")
    colours = pa.table({"colour": [("red", None, 'b"l')[i % 3] for i in range(N)]})
    for name, (dtype, how, _) in CASES.items():
        names = pa.array([f"item-{i}" for i in range(N)])
        indexmill.build(vectors[dtype], folder / name, kind="ivf", lists=LISTS, batch_vectors=BATCH, ids=names,
                        metadata=colours, **how)  # fmt: skip
    return {name: folder / name for name in CASES}


@pytest.mark.parametrize("target", DUMPS)
@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_files_each_vector_once(
    indexes: dict[str, Path], vectors: dict[str, Any], tmp_path: Path, name: str, target: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(
        lists, "BLOCK_BYTES", 100 * 4 * DIM
    )  # blocks of several lists, lists of several blocks
    dtype, _, tolerance = CASES[name]
    indexmill.export(indexes[name], target, tmp_path / "out")
    numbers, order = rows_in_files(indexes[name], vectors[dtype])
    assert sorted(order) == list(range(N))
    found = read_dump(target, tmp_path / "out")
    assert found["slot"] == list(range(N))
    assert found["partition"] == numbers
    assert found["id"] == [f"item-{vector}" for vector in order]
    assert found["colour"] == [("red", None, 'b"l')[vector % 3] for vector in order]
    np.testing.assert_allclose(
        np.array(found["vector"], np.float32), vectors[dtype][order], atol=tolerance, rtol=0
    )
    beside = id_map(tmp_path / "out")
    assert beside["slot"].to_pylist() == list(range(N))
    assert beside["vector_id"].to_pylist() == order
    assert beside["id"].to_pylist() == found["id"]
    assert record(tmp_path / "out")["kind"] == "ivf"


def test_vectors_keep_their_type(indexes: dict[str, Path], tmp_path: Path) -> None:
    for name, wanted in (("uint8", pa.uint8()), ("sq8", pa.float32()), ("pq-exact", pa.float32())):
        found = indexmill.export(indexes[name], "parquet", tmp_path / name)
        assert pq.read_schema(tmp_path / name / "vectors.parquet").field("vector").type == pa.list_(
            wanted, DIM
        )
    assert "partition" in paste(found["open"])


def test_slots_name_rows_where_they_are_to(indexes: dict[str, Path], tmp_path: Path) -> None:
    indexmill.export(indexes["copies"], "pgvector", tmp_path / "out", ids="slot")
    rows = read_copy((tmp_path / "out" / "vectors.pgcopy").read_bytes())
    assert [struct.unpack(">q", row[2])[0] for row in rows] == list(range(N))


def takes(target: str, index: Path, out: Path) -> bool:
    """Whether a target holds an index, also where its library is missing."""
    try:
        indexmill.export(index, target, out)
    except ConfigError as error:
        return "pip install" in str(error)
    return True


@pytest.mark.parametrize("codec", ["pq", "rabitq", "opq"])
@pytest.mark.parametrize("target", DUMPS)
@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_codes_alone_are_refused(tmp_path: Path, target: str, codec: str, metric: str) -> None:
    """The error names the other targets that take just these lists."""
    how = {"codec": codec, "pq_bytes": 4, "metric": metric}
    how |= {"codec": "pq", "pq_rotation": "opq"} if codec == "opq" else {}
    index = build_lists(tmp_path / "ix", make_vectors("float32", 300), lists=4, **how)
    with pytest.raises(ConfigError, match=rf"lists of {codec} codes alone") as refusal:
        indexmill.export(index, target, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    others = [name for name in ("faiss-ivf", "lance") if takes(name, index, tmp_path / name)]
    wanted = f", or export to {' or '.join(others)}" if others else ""
    assert str(refusal.value).endswith(f"build with --keep-vectors{wanted}")


def test_a_damaged_page_of_exact_vectors_is_named(tmp_path: Path) -> None:
    how = {"codec": "pq", "pq_bytes": 4, "keep_vectors": True}
    index = build_lists(tmp_path / "ix", make_vectors("float32", 300), lists=4, **how)
    path = index / "vectors.imx"
    data = bytearray(path.read_bytes())
    data[2 * 4096 + 17] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"vectors\.imx: page 2 \(offset 8192\): CRC32C"):
        indexmill.export(index, "parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()
