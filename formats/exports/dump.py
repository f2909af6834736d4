"""What the plain dumps share: columns by block, and the metadata types that JSON holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.columns import one_chunk
from indexmill.formats.exports.json_text import is_json_type, json_column
from indexmill.formats.exports.target import ExportedIndex, cannot_hold

KEEPS = {
    "graph": "no",
    "codes": "no",
    "clusters": "no",
    "order": "as a column",
    "pages": "as a column",
    "entries": "no",
    "ids": "yes",
    "metadata": "yes, as JSON",
}


def check_metadata(target: str, index: ExportedIndex) -> None:
    """Refuse metadata columns of types that have no JSON."""
    for field in index.metadata(0, 1).schema:
        if not is_json_type(field.type):
            action = "drop or convert the column where the index is built"
            holds = "null, boolean, numbers, strings, dates and times"
            raise cannot_hold(target, f"metadata column {field.name!r} of type", field.type, holds, action)


def partitions(index: ExportedIndex, first: int, last: int) -> NDArray[np.int64]:
    """Return the page of slots [first, last): its vectors are near each other."""
    slots: NDArray[np.int64] = np.arange(first, last, dtype=np.int64)
    return slots // index.graph.node_format.nodes_per_group


def json_metadata(index: ExportedIndex, first: int, last: int) -> list[tuple[str, Any]]:
    """Return name and JSON text of each metadata column."""
    table = index.metadata(first, last)
    return [(name, json_column(one_chunk(table[name]))) for name in table.column_names]
