"""Files of ids alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.formats.errors import InputError
from indexmill.formats.sources.ids import lines_of, read_id_file

IDS = [f"id-{i}" for i in range(5)]


def arrow_file(path: Path, table: pa.Table, rows: int | None = None) -> Path:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, rows)
    return path


@settings(deadline=None)
@given(
    ids=st.lists(
        st.text(st.characters(exclude_characters="\r\n\ufeff", codec="utf-8"), min_size=1), max_size=6
    )
)
def test_lines_are_the_ids_whatever_is_in_them(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "ids.txt"
    stripped = [one.strip(" \t") for one in ids]
    for end in ("\n", "\r\n", "\n\n"):
        for mark in ("", "\ufeff"):
            path.write_bytes((mark + end.join(ids)).encode())
            assert [one for one in lines_of(path).to_pylist() if one] == [one for one in stripped if one]
            path.write_bytes((mark + "".join(f"{one}{end}" for one in ids)).encode())
            assert [one for one in lines_of(path).to_pylist() if one] == [one for one in stripped if one]


def test_separators_of_other_texts_are_part_of_an_id(tmp_path: Path) -> None:
    ids = ["a\u0085b", "a\u2028b", "a\x0bb", "a\x0cb", "a\x1cb", "a\rb", "a b"]
    (tmp_path / "ids.txt").write_bytes("\n".join(f" {one}\t" for one in ids).encode())
    assert lines_of(tmp_path / "ids.txt").to_pylist() == ids


def test_text_is_read_only_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("1\n2\n")
    with pytest.raises(
        InputError, match=r"unknown type; expected ids: \.npy, \.parquet, \.arrow or \.feather"
    ):
        read_id_file(path)
    assert read_id_file(path, more={".txt": lines_of})[0].to_pylist() == ["1", "2", ""]
    path.write_bytes(b"ok\n\xff\n")
    with pytest.raises(InputError, match=r"ids\.txt: .*utf-8"):
        read_id_file(path, more={".txt": lines_of})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("rows", [None, 2])
def test_columns_of_arrow_files_are_read(tmp_path: Path, kind: pa.DataType, rows: int | None) -> None:
    table = pa.table({"other": range(5), "name": pa.array(IDS, kind)})
    path = arrow_file(tmp_path / "ids.arrow", table, rows)
    found, id_type = read_id_file(path, "name")
    assert (found.to_pylist(), id_type) == (IDS, "string")
    assert read_id_file(arrow_file(path, table.select(["other"]).slice(0, 0)))[0].to_pylist() == []


def damaged(tmp_path: Path, name: str, table: pa.Table, new: dict[bytes, bytes]) -> Path:
    path = tmp_path / name
    if path.suffix == ".parquet":
        pq.write_table(table, path, use_dictionary=False, compression="none", write_statistics=False)
    else:
        arrow_file(path, table)
    raw = path.read_bytes()
    for old, other in new.items():
        assert raw.count(old) == 1
        raw = raw.replace(old, other)
    path.write_bytes(raw)
    return path


def offsets(*values: int) -> bytes:
    return np.array(values, np.int32).tobytes()


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("ids.arrow", {offsets(0, 4, 8, 12, 16, 20): offsets(0, 4, 8, 1 << 30, 16, 20)}),
        ("ids.arrow", {offsets(0, 4, 8, 12, 16, 20): offsets(0, 4, 8, -9, 16, 20)}),
        ("ids.arrow", {b"id-0": b"id-\xff"}),
        ("ids.arrow", {b"ARROW1\0\0": b"ARROW2\0\0"}),
        ("ids.parquet", {b"id-0": b"id-\xff"}),
    ],
)
def test_damage_is_refused(tmp_path: Path, name: str, new: dict[bytes, bytes]) -> None:
    path = damaged(tmp_path, name, pa.table({"name": IDS}), new)
    with pytest.raises(InputError, match=name):
        read_id_file(path)


def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"name": IDS}), path, use_dictionary=False)
    raw = bytearray(path.read_bytes())
    raw[4:40] = bytes(b ^ 255 for b in raw[4:40])
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"ids\.parquet: cannot be read as one id a vector"):
        read_id_file(path)


def test_a_stream_is_not_a_file(tmp_path: Path) -> None:
    table: Any = pa.table({"name": IDS})
    with pa.ipc.new_stream(tmp_path / "ids.arrow", table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(InputError, match="not a stream"):
        read_id_file(tmp_path / "ids.arrow")


@pytest.mark.parametrize("name", ["ids.arrow", "ids.parquet"])
def test_a_column_is_named_where_there_are_several(tmp_path: Path, name: str) -> None:
    twice = pa.Table.from_arrays([pa.array(IDS), pa.array(range(5)), pa.array(IDS)], ["a", "b", "a"])
    path = damaged(tmp_path, name, twice, {})
    for column, message in (
        (None, "3 columns; name the one that holds the ids with --id-column"),
        ("a", "2 columns are named 'a'; expected one"),
        ("c", "no column 'c'; columns are a, b, a"),
    ):
        with pytest.raises(InputError, match=message):
            read_id_file(path, column)
    assert read_id_file(path, "b")[1] == "int64"
