"""Import of JVector's on-disk graph, version 3, with vectors in the nodes, and of its codes; big-endian."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
from indexmill.formats.imports.jvector_pq import open_codes
from indexmill.formats.imports.mapped import MappedFile, damaged, not_such_a_file
from indexmill.formats.sources.file import Vectors

_MAGIC, _VERSION, _INLINE_VECTORS = 0xFFFF0D61, 3, 1
_HEADER_BYTES = 7 * 4


def open_jvector(path: str | Path, with_codes: bool = True) -> ImportedIndex:
    """Open a file written by ``OnDiskGraphIndexWriter`` of JVector 3, or by `indexmill export --to jvector`.

    Parameters
    ----------
    with_codes : bool
        Whether to read the codes in the file next to the graph.

    Raises
    ------
    InputError
        If there is no such file.
    FormatError
        If it is damaged, or has another version or other features.
    """
    nodes = JvectorNodes(Path(path))
    codes, reason = None, "others were asked for"
    if with_codes:
        codes, reason = open_codes(nodes.path, nodes.n, nodes.dim)
    return ImportedIndex(
        kind="jvector",
        files=(nodes.path, *((codes.path,) if codes else ())),
        metric=None,
        vectors=ImportedVectors(str(path), nodes.n, nodes.dim, np.dtype(np.float32), nodes.vectors),
        lists=nodes,
        entry=nodes.entry,
        codes=codes,
        no_codes=reason,
    )


class JvectorNodes(NeighbourLists):
    """Nodes of the file.

    Attributes
    ----------
    path : Path
    n, dim, entry, width : int
        Number of vectors, their components, vertex where searches start, and most neighbours of a node.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        file = MappedFile(path)
        names = ("magic", "version", "vectors", "dimension", "entry vertex", "R", "features")
        found = [file.number(4 * i, ">u4", name) for i, name in enumerate(names)]
        for i, expected in ((0, _MAGIC), (1, _VERSION), (6, _INLINE_VECTORS)):
            if found[i] != expected:
                where, action = (
                    f"byte {4 * i}: {names[i]}",
                    "write the graph with JVector 3 and inline vectors",
                )
                raise not_such_a_file(path, where, f"{expected:#x}", f"{found[i]:#x}", action)
        _, _, self.n, self.dim, self.entry, self.width, _ = found
        check_shape(path, self.n, self.dim)
        check_width(path, self.width, "byte 20: R")
        check_entry(path, "byte 16: entry vertex", self.entry, self.n)
        node = np.dtype(
            [
                ("ordinal", ">u4"),
                ("vector", ">f4", (self.dim,)),
                ("degree", ">u4"),
                ("list", ">u4", (self.width,)),
            ]
        )
        self._node_bytes = node.itemsize
        file.check_size(
            _HEADER_BYTES + self.n * node.itemsize, f"{_HEADER_BYTES} + {self.n:,} x {node.itemsize}"
        )
        self._nodes = file.array(_HEADER_BYTES, node, self.n, "nodes")

    def vectors(self, first: int, last: int) -> Vectors:
        """Return the vectors of vertices [first, last), shape (last - first, dim)."""
        return self._nodes["vector"][first:last].astype(np.float32)

    def _lists(self, first: int, last: int) -> ListBlock:
        nodes = self._nodes[first:last]
        wrong = np.flatnonzero(nodes["ordinal"] != np.arange(first, last))
        if len(wrong):
            v = first + int(wrong[0])
            got = f"{int(nodes['ordinal'][wrong[0]]):,}"
            where = f"vertex {v:,}, at byte {_HEADER_BYTES + v * self._node_bytes:,}: ordinal"
            raise damaged(self.path, where, f"{v:,}: deleted vectors are not read", got)
        return ListBlock(first, nodes["list"].astype(np.uint32), as_degrees(nodes["degree"]))

    def _offset(self, vertex: int, j: int) -> int:
        return _HEADER_BYTES + (vertex + 1) * self._node_bytes - 4 * self.width + 4 * j
