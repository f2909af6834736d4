"""Opening an index for a command."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from indexmill.formats.errors import ConfigError, InputError

if TYPE_CHECKING:
    from indexmill.reader.choices import Place
    from indexmill.reader.index import Index
    from indexmill.reader.ivf import IvfIndex
    from indexmill.reader.lsh import LshIndex

#: Keys of a manifest that commands show or decide by; the format module checks only the sections they stand in.
_SHOWN: dict[str, dict[str, Any]] = {
    "input": {"n_vectors": int, "dim": int, "dtype": str, "fingerprint": str},
}
#: And those of one kind of index.
_SHOWN_BY_KIND: dict[str, dict[str, dict[str, Any]]] = {
    "graph": {
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
    },
    "lsh": {
        "parameters": {
            "ratio": int | float,
            "width": int | float,
            "n_functions": int,
            "n_tables": int,
            "candidates": int,
            "hash_bits": int,
            "block_bytes": int,
        },
        "lsh": {
            "radii": list,
            "p1": int | float,
            "p2": int | float,
            "rho": int | float,
            "success": int | float,
            "n_buckets": int,
            "n_blocks": int,
            "longest_chain": list,
            "bitmap_bytes": int,
        },
    },
    "ivf": {
        "ivf": {"lists": int, "codec": str, "row_bytes": int, "batches": list},
        "certificate": {"k": int, "nprobe": list, "recall": list},
    },
}


def open_index(path: Path, engine: str = "auto") -> Index:
    """Open the graph index at `path`.

    Raises
    ------
    InputError
        If there is no index at `path`.
    FormatError
        If there is one that cannot be used.
    ConfigError, OtherKind
        If it is of another kind.
    """
    from indexmill.reader.index import Index

    if kind_of(path) == "ivf":
        from indexmill.formats.index.manifest import other_kind

        raise other_kind(path, "ivf", ("graph",))
    return Index(path, engine)


def open_any(
    path: Path, engine: str = "auto", vectors: Place | None = None, tables: Place | None = None
) -> Index | LshIndex | IvfIndex:
    """Open the index at `path`, of any kind.

    Parameters
    ----------
    vectors, tables : {"memory", "storage"}, optional
        Where vectors and pointers of an index of kind ``lsh`` are while it is open.

    Raises
    ------
    InputError, FormatError
        As `open_index`.
    ConfigError
        If `vectors` or `tables` is given for an index of another kind.
    """
    kind = kind_of(path)
    if kind == "lsh":
        from indexmill.reader.choices import DEFAULT_TABLES, DEFAULT_VECTORS
        from indexmill.reader.lsh import LshIndex

        return LshIndex(path, engine, vectors or DEFAULT_VECTORS, tables or DEFAULT_TABLES)
    what = {
        "graph": "a graph, which is read page by page",
        "ivf": "of kind ivf, whose lists are read as probed",
    }[kind]
    for name, place in (("vectors", vectors), ("tables", tables)):
        if place is not None:
            raise ConfigError(f"{name}: {path} is {what}; leave it out")
    if kind == "ivf":
        from indexmill.reader.ivf import IvfIndex

        return IvfIndex(path, engine)
    return open_index(path, engine)


def kind_of(path: Path) -> Literal["graph", "lsh", "ivf"]:
    """Return what the index at `path` is made of.

    Raises
    ------
    InputError, FormatError
        As `open_index`.
    """
    check_is_index(path)
    from indexmill.reader import _native

    return _native.index_kind(path)


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
    from indexmill.formats.index.manifest import read_manifest
    from indexmill.formats.index.names import MANIFEST_NAME
    from indexmill.formats.pagefile.frame import corrupt

    check_is_index(path)
    kind = read_manifest(path, kinds).kind
    manifest: dict[str, Any] = json.loads((path / MANIFEST_NAME).read_text(encoding="utf-8"))
    for section, keys in (_SHOWN | _SHOWN_BY_KIND[kind]).items():
        values = manifest.get(section)  # read_manifest told the keys that may be missing or null
        for key, form in keys.items():
            if values is not None and not isinstance(values.get(key), form):
                raise corrupt(path / MANIFEST_NAME, f"key '{section}.{key}'", form, repr(values.get(key)))
    return manifest
