"""``PREFIX_disk.index`` of DiskANN: a header sector, then nodes with a vector and a neighbour list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.nodes import group_dtype
from indexmill.formats.imports.index import (
    BLOCK_VERTICES,
    ListBlock,
    NeighbourLists,
    as_degrees,
    check_entry,
    check_shape,
    check_width,
)
from indexmill.formats.imports.mapped import MappedFile, damaged, not_such_a_file

SECTOR_BYTES = 4096
#: First number of the header: 9 fields in C++, 12 with reordered vectors, 96 bytes in Rust.
_CPP_FIELDS, _CPP_REORDERED, _RUST_FIELDS = 9, 12, 96
#: Bytes of nodes read at a time.
_BLOCK_BYTES = 4 << 20


class DiskNodes(NeighbourLists):
    """Nodes of a disk index. A node lies within a sector, or starts a sector if it is larger than one.

    Attributes
    ----------
    path : Path
    n, dim : int
        Number of vectors, and of stored components.
    medoid : int
        Vertex where searches start.
    width : int
        Most neighbours of a node.

    Raises
    ------
    CorruptFile
        If the header, the size of the file and `dtype` disagree.
    ForeignFile
        If it is not a disk index, or of an unsupported kind.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.path = path
        self.file = file = MappedFile(path)
        _check_kind(file)
        names = ("vectors", "dimension", "medoid", "bytes of a node", "nodes a sector", "frozen vertices")
        fields = [file.number(8 + 8 * i, "<u8", name) for i, name in enumerate(names)]
        self.n, self.dim, self.medoid, self.node_bytes, per_sector, frozen = fields
        check_shape(path, self.n, self.dim)
        if frozen:
            what = "an index that was built once, without frozen vertices"
            raise not_such_a_file(
                path, "byte 48: frozen vertices", what, f"{frozen:,}", "build one with build_disk_index"
            )
        vector_bytes = self.dim * dtype.itemsize
        self.width, rest = divmod(self.node_bytes - vector_bytes - 4, 4)
        if rest or self.width < 1:
            expected = f"{self.dim} x {dtype.itemsize} bytes of a {dtype} vector, 4, and 4 a neighbour"
            raise damaged(path, "byte 32: bytes of a node (is the dtype right?)", expected, self.node_bytes)
        check_width(path, self.width, "neighbours that a node has room for (is the dtype right?)")
        if per_sector != SECTOR_BYTES // self.node_bytes:
            expected_nodes = f"{SECTOR_BYTES} / {self.node_bytes} = {SECTOR_BYTES // self.node_bytes}"
            raise damaged(path, "byte 40: nodes a sector", expected_nodes, per_sector)
        check_entry(path, "byte 24: medoid", self.medoid, self.n)
        self.block_vertices = int(np.clip(_BLOCK_BYTES // self.node_bytes, 1, BLOCK_VERTICES))
        self._group = max(1, per_sector)
        self._group_bytes = -(-self.node_bytes // SECTOR_BYTES) * SECTOR_BYTES
        groups = -(-self.n // self._group)
        expected_bytes = SECTOR_BYTES + groups * self._group_bytes
        file.check_size(expected_bytes, f"{SECTOR_BYTES} + {groups:,} x {self._group_bytes:,}")
        kind = group_dtype(dtype, self.dim, vector_bytes, self.width)
        self._nodes = file.array(SECTOR_BYTES, kind, groups, "nodes")["nodes"]

    def _read(self, name: str, first: int, last: int) -> NDArray[Any]:
        """Return a copy of a field of the nodes [first, last)."""
        group = first // self._group
        found = np.array(self._nodes[group : -(-last // self._group)][name])
        flat = found.reshape(-1, *found.shape[2:])
        return flat[first - group * self._group : last - group * self._group]

    def vectors(self, first: int, last: int) -> NDArray[Any]:
        """Return the vectors of vertices [first, last), shape (last - first, dim)."""
        return self._read("vector", first, last)

    def _lists(self, first: int, last: int) -> ListBlock:
        degrees = as_degrees(self._read("degree", first, last))
        return ListBlock(first, self._read("neighbours", first, last), degrees)

    def _offset(self, vertex: int, j: int) -> int:
        group, place = divmod(vertex, self._group)
        node = SECTOR_BYTES + group * self._group_bytes + place * self.node_bytes
        return node + self.node_bytes - 4 * self.width + 4 * j


def _check_kind(file: MappedFile) -> None:
    """Refuse files that are not disk indexes of DiskANN, and unsupported variants."""
    if file.size < 2 * SECTOR_BYTES:
        raise damaged(file.path, "size of the file", "two sectors at least", f"{file.size:,} bytes")
    count, columns = file.number(0, "<u4", "header"), file.number(4, "<u4", "header")
    known = {_CPP_FIELDS, _CPP_REORDERED, _RUST_FIELDS}
    if count not in known or columns != 1:
        expected = f"{_CPP_FIELDS} or {_RUST_FIELDS}, and 1, as in a disk index of DiskANN since 0.3"
        raise not_such_a_file(
            file.path,
            "header",
            expected,
            f"{count} and {columns}",
            "check the prefix; older indexes need a build",
        )
    reordered = file.number(64, "<u8", "flag of reordered vectors")
    if count == _CPP_REORDERED or reordered:
        raise not_such_a_file(
            file.path, "byte 64: flag of reordered vectors", 0, reordered, "build one without disk PQ"
        )
    if count == _RUST_FIELDS:
        for at, what, expected_value in ((80, "associated data", 0), (88, "bytes of a block", SECTOR_BYTES)):
            got = file.number(at, "<u8", what)
            if got != expected_value:
                action = "only indexes of vectors and neighbours in 4096-byte blocks are read"
                raise not_such_a_file(file.path, f"byte {at}: {what}", expected_value, got, action)
    size = file.number(72, "<u8", "size of the file")
    file.check_size(size, "what the header says")
