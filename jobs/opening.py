"""Opening an index for a command."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import InputError, TooNew

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: Keys of a manifest that commands show or decide by; the format module checks only the sections they stand in.
_SHOWN: dict[str, dict[str, Any]] = {
    "input": {"n_vectors": int, "dim": int, "dtype": str, "fingerprint": str},
}
_SHOWN_OF_GRAPH: dict[str, dict[str, Any]] = {
    "parameters": {"max_degree": int, "node_dtype": str, "pq_bytes": int},
    "graph": {"mean_degree": int | float, "least_degree": int, "greatest_degree": int},
    "drift": {"added_share": int | float, "rebuild": bool, "advice": str},
    "certificate": {
        "k": int,
        "search_list_size": int,
        "recall": int | float,
        "recall_low": int | float,
        "recall_high": int | float,
        "pages_read_mean": int | float,
        "pages_read_p99": int | float,
    },
}
_SHOWN_OF: dict[str, dict[str, dict[str, Any]]] = {
    "graph": _SHOWN_OF_GRAPH,
    "ivf": {
        "ivf": {"lists": int, "codec": str, "row_bytes": int, "batches": list},
        "certificate": {"k": int, "nprobe": list, "recall": list},
    },
}


def open_index(path: Path, engine: str = "auto") -> Index:
    """Open the index at `path`.

    Raises
    ------
    InputError
        If there is no index at `path`.
    OtherKind
        If it is no graph.
    FormatError
        If there is one that cannot be used.
    """
    check_is_index(path)
    from indexmill.reader.index import Index

    try:
        return Index(path, engine)
    except TooNew:
        check_is_graph(path)
        raise


def check_is_graph(path: Path) -> None:
    """Tell an index of another kind from one that is too new for the native reader.

    Raises
    ------
    OtherKind
        If it is of another kind, naming the command that searches it.
    FormatError
        If its manifest cannot be used.
    """
    from indexmill.formats.manifest import parse_manifest

    parse_manifest(path, ("graph",))


def check_is_index(path: Path) -> None:
    """Tell a path that was never an index from a damaged one.

    Raises
    ------
    InputError
        If `path` does not exist, or is no directory with a manifest.
    """
    if not path.exists():
        raise InputError(f"{path}: no such index; build one with: indexmill build --out {path}")
    if not path.is_dir():
        raise InputError(f"{path}: not an index; an index is a directory with a manifest.json")
    if not (path / "manifest.json").exists():
        raise InputError(
            f"{path}: no manifest.json in this directory, so it is not an index; a build that was cut off"
            " leaves none: run it again"
        )


def load_manifest(path: Path, kinds: Collection[str] = ("graph",)) -> dict[str, Any]:
    """Check the manifest of the index at `path` and return its JSON; `kinds` are those that the caller can show.

    Raises
    ------
    InputError, FormatError
        As `open_index`.
    """
    from indexmill.formats.frame import corrupt
    from indexmill.formats.manifest import MANIFEST_NAME, read_manifest

    check_is_index(path)
    read_manifest(path, kinds)
    manifest: dict[str, Any] = json.loads((path / MANIFEST_NAME).read_text(encoding="utf-8"))
    for section, keys in (_SHOWN | _SHOWN_OF[manifest["kind"]]).items():
        values = manifest.get(section)  # read_manifest told the keys that may be missing or null
        for key, kind in keys.items():
            if values is not None and not isinstance(values.get(key), kind):
                raise corrupt(path / MANIFEST_NAME, f"key '{section}.{key}'", kind, repr(values.get(key)))
    return manifest
