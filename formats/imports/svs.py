"""Import of a Vamana index of Intel's Scalable Vector Search: directories ``config``, ``graph`` and ``data``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.imports.index import (
    ImportedIndex,
    ImportedVectors,
    ListBlock,
    NeighbourLists,
    as_degrees,
    check_entry,
    check_shape,
    check_width,
)
from indexmill.formats.imports.mapped import MappedFile, damaged, not_such_a_file

_CONFIG = "svs_config.toml"
_MAGIC = 0xCAD4A6B2579980FE
_HEADER_BYTES = 1024
_DTYPES = ("float32", "float16", "uint8", "int8")


def open_svs(folder: str | Path) -> ImportedIndex:
    """Open an index written by ``svs.Vamana.save``, whose three directories are in `folder`.

    Raises
    ------
    InputError
        If there is no such index.
    FormatError
        If it is damaged, or its vectors are compressed.
    """
    folder = Path(folder)
    parts = {name: folder / name / _CONFIG for name in ("config", "graph", "data")}
    for name, path in parts.items():
        if not path.is_file():
            raise InputError(
                f"{folder}: no index of SVS: no {name}/{_CONFIG}; give the directory with config, graph and data"
            )
    entry = _key(parts["config"], _table(parts["config"], "vamana_index_parameters"), "entry_point", int)
    graph, data = (
        _table(parts[name], schema)
        for name, schema in (("graph", "default_graph"), ("data", "uncompressed_data"))
    )
    dtype = _key(parts["data"], data, "eltype", str)
    if dtype not in _DTYPES:
        action = "save the index with one of them"
        raise not_such_a_file(
            parts["data"], "key 'eltype'", f"one of {', '.join(_DTYPES)}", repr(dtype), action
        )
    n, dim = (_key(parts["data"], data, key, int) for key in ("num_vectors", "dims"))
    check_shape(parts["data"], n, dim)
    vectors_path = parts["data"].parent / _file_name(parts["data"], data)
    rows = _open_rows(vectors_path, n, dim, np.dtype(dtype).newbyteorder("<"), "vectors")
    width = _key(parts["graph"], graph, "max_degree", int)
    vertices = _key(parts["graph"], graph, "num_vertices", int)
    if vertices != n:
        raise damaged(parts["graph"], "key 'num_vertices'", f"{n:,} as the vectors", f"{vertices:,}")
    check_width(parts["graph"], width, "key 'max_degree'")
    check_entry(parts["config"], "key 'entry_point'", entry, n)
    lists = SvsLists(parts["graph"].parent / _file_name(parts["graph"], graph), n, width)
    return ImportedIndex(
        kind="svs",
        files=(*parts.values(), lists.path, vectors_path),
        metric=None,
        vectors=ImportedVectors(
            str(vectors_path), n, dim, np.dtype(dtype), lambda first, last: np.array(rows[first:last])
        ),
        lists=lists,
        entry=entry,
        no_codes="SVS saves none",
    )


class SvsLists(NeighbourLists):
    """Graph with one row for each vertex: its degree and `width` neighbours.

    Attributes
    ----------
    path : Path
    width : int
    """

    def __init__(self, path: Path, n: int, width: int) -> None:
        self.path, self.width, self.n = path, width, n
        self._rows = _open_rows(path, n, width + 1, np.dtype("<u4"), "lists")

    def _lists(self, first: int, last: int) -> ListBlock:
        rows = np.array(self._rows[first:last])
        return ListBlock(first, rows[:, 1:].astype(np.uint32), as_degrees(rows[:, 0]))

    def _offset(self, vertex: int, j: int) -> int:
        return _HEADER_BYTES + 4 * (vertex * (self.width + 1) + 1 + j)


def _open_rows(path: Path, n: int, columns: int, dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """Map a binary file, shape (n, columns), after checking its header."""
    file = MappedFile(path)
    magic = file.number(0, "<u8", "header")
    if magic != _MAGIC:
        raise not_such_a_file(
            path, "byte 0", f"{_MAGIC:#x}", f"{magic:#x}", "save the index again with SVS 0.5"
        )
    found = (file.number(24, "<u8", "rows"), file.number(32, "<u8", "columns"))
    if found != (n, columns):
        raise damaged(path, "byte 24: rows and columns", f"{n:,} x {columns:,} as its TOML file", found)
    size = _HEADER_BYTES + n * columns * dtype.itemsize
    file.check_size(size, f"{_HEADER_BYTES} + {n:,} x {columns:,} x {dtype.itemsize}")
    return file.array(_HEADER_BYTES, dtype, (n, columns), what)


def _table(path: Path, schema: str) -> dict[str, Any]:
    """Return table ``object`` of a TOML file, after checking that it follows `schema`."""
    try:
        table = tomllib.loads(path.read_text("utf-8")).get("object")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise damaged(path, "text", "TOML", error) from error
    if not isinstance(table, dict):
        raise damaged(path, "table 'object'", "a table", repr(table))
    if table.get("__schema__") != schema:
        got = repr(table.get("__schema__"))
        raise not_such_a_file(
            path, "key '__schema__'", repr(schema), got, "save a Vamana index without compression"
        )
    return table


def _key(path: Path, table: dict[str, Any], name: str, kind: type) -> Any:
    value = table.get(name)
    if type(value) is not kind:
        raise damaged(path, f"key '{name}'", kind.__name__, repr(value))
    return value


def _file_name(path: Path, table: dict[str, Any]) -> str:
    """Return the name of the file in a TOML file, which must be in the same directory: the index is not trusted."""
    name = _key(path, table, "binary_file", str)
    if not name or Path(name).name != name:
        raise damaged(path, "key 'binary_file'", "the name of a file beside it", repr(name))
    return str(name)
