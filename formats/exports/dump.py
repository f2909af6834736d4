"""Common parts of plain dumps: rows of graphs and of lists by block, and checks of metadata for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.columns import one_chunk
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.json_text import is_json_type, json_column
from indexmill.formats.exports.list_rows import ListRows, in_list_order
from indexmill.formats.exports.lists import ExportedLists
from indexmill.formats.exports.rows import Advance, ExportedRows
from indexmill.formats.exports.target import Target, cannot_hold, kept
from indexmill.formats.graph.nodes import NodeBlock

_KEEPS = kept(
    clusters="as a column",
    order="as a column",
    pages="as a column",
    ids="numbers or text",
    metadata="as JSON",
)

#: Index that a dump checks; slots of lists are vector ids.
Checked = ExportedGraph | ExportedLists
#: Index that a dump writes; slot s is row s.
Dumped = ExportedGraph | ListRows


def dump_target(
    name: str,
    engine: str,
    rebuilds: str,
    check: Callable[[Checked], None],
    write: Callable[[Dumped, Path, Advance], None],
    snippet: Callable[[Dumped, Path], str],
    **keeps: str,
) -> Target[Any]:
    """Return the target of a plain dump; `keeps` is what it keeps otherwise than as columns, numbers, text and JSON."""
    return Target(
        name=name,
        kinds=("graph", "ivf"),
        engine=engine,
        keeps=_KEEPS | keeps,
        rebuilds=rebuilds,
        check=check,
        write=write,
        snippet=snippet,
        arrange=in_list_order,
    )


class DumpBlock(NamedTuple):
    """Consecutive rows.

    Attributes
    ----------
    first : int
        Slot of the first row.
    partitions : int64 array, shape (m,)
        Page of a graph, or list, of each row: vectors of one partition are near each other.
    vectors : array, shape (m, dim)
        The user's vectors.
    nodes : NodeBlock or None
        Nodes of a graph.
    """

    first: int
    partitions: NDArray[np.int64]
    vectors: NDArray[Any]
    nodes: NodeBlock | None

    @property
    def last(self) -> int:
        """The slot after the last row."""
        return self.first + len(self.vectors)

    def cut(self, rows: int) -> Iterator[DumpBlock]:
        """Yield the block in parts of at most `rows` rows."""
        for skip in range(0, len(self.vectors), rows):
            part = slice(skip, skip + rows)
            nodes = None if self.nodes is None else self.nodes[part]
            yield DumpBlock(self.first + skip, self.partitions[part], self.vectors[part], nodes)


def blocks(index: Dumped) -> Iterator[DumpBlock]:
    """Yield all rows in slot order, a few MiB at a time."""
    if isinstance(index, ExportedGraph):
        per_page = index.graph.node_format.nodes_per_group
        for first, nodes in index.blocks():
            slots = np.arange(first, first + len(nodes), dtype=np.int64)
            yield DumpBlock(first, slots // per_page, index.vectors(nodes), nodes)
        return
    first = 0
    for block in index.blocks():
        yield DumpBlock(first, block.lists.astype(np.int64), block.vectors, None)
        first += len(block.ids)


def check_vectors(target: str, index: Checked) -> None:
    """Refuse lists with only PQ codes, which do not contain the user's vectors."""
    if isinstance(index, ExportedLists) and index.shared.codec == "pq" and index.exact is None:
        action = "build with --keep-vectors, or export to faiss-ivf or lance"
        raise cannot_hold(target, "lists of", "pq codes alone", "vectors", action)


def check_metadata(target: str, index: ExportedRows) -> None:
    """Refuse metadata columns of types that JSON cannot represent."""
    for field in index.metadata(0, 1).schema:
        if not is_json_type(field.type):
            action = "drop or convert the column where the index is built"
            holds = "null, boolean, numbers, strings, dates and times"
            raise cannot_hold(target, f"metadata column {field.name!r} of type", field.type, holds, action)


def json_metadata(index: ExportedRows, first: int, last: int) -> list[tuple[str, Any]]:
    """Return the name and the JSON text of each metadata column for slots [first, last)."""
    table = index.metadata(first, last)
    return [(name, json_column(one_chunk(table[name]))) for name in table.column_names]
