"""Common parts of plain dumps: the target, and checks of metadata for JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from indexmill.formats.exports.columns import one_chunk
from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.json_text import is_json_type, json_column
from indexmill.formats.exports.lists import ExportedLists
from indexmill.formats.exports.rows import Advance, ExportedRows
from indexmill.formats.exports.target import Target, cannot_hold, kept

#: Targets that hold lists of codes alone, by codec and whether the metric is ip.
_HOLD_CODES = {
    ("pq", False): "faiss-ivf or lance",
    ("pq", True): "faiss-ivf",
    ("rabitq", False): "faiss-ivf",
    ("opq", False): "faiss-ivf",
    ("opq", True): "faiss-ivf",
}
_KEEPS = kept(
    clusters="as a column",
    order="as a column",
    pages="as a column",
    ids="numbers or text",
    metadata="as JSON",
)


def dump_target(
    name: str,
    engine: str,
    rebuilds: str,
    check: Callable[[ExportedRows], None],
    write: Callable[[ExportedRows, Path, Advance], None],
    snippet: Callable[[ExportedRows, Path], str],
    **keeps: str,
) -> Target[Any]:
    """Return the target of a plain dump; `keeps` is what it keeps otherwise than as columns, numbers, text and JSON.

    Before `check` it refuses lists that hold codes alone and not the user's vectors.
    """

    def checked(index: ExportedRows) -> None:
        codec = index.codes_alone
        if codec is not None:
            others = _HOLD_CODES.get((codec, index.metric == "ip"))
            action = "build with --keep-vectors" + (f", or export to {others}" if others else "")
            raise cannot_hold(name, "lists of", f"{codec} codes alone", "vectors", action)
        check(index)

    return Target(
        name=name,
        holds=(ExportedGraph, ExportedLists),
        engine=engine,
        keeps=_KEEPS | keeps,
        rebuilds=rebuilds,
        check=checked,
        write=write,
        snippet=snippet,
        by_row=True,
    )


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
