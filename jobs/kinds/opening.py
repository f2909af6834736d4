"""Opening an index for a command, and reading what its manifest says."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError, InputError
from indexmill.jobs.kinds import graph
from indexmill.jobs.kinds.kind import Kind
from indexmill.jobs.kinds.registry import KINDS

if TYPE_CHECKING:
    from indexmill.jobs.search.results import AnyIndex
    from indexmill.reader.choices import Place
    from indexmill.reader.index import Index

#: Keys of any manifest that commands show; `Kind.SHOWN` has those of one kind.
_SHOWN: dict[str, Mapping[str, Any]] = {
    "input": {"n_vectors": int, "dim": int, "dtype": str, "fingerprint": str}
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
    if (kind := kind_of(path).NAME) != graph.NAME:
        from indexmill.formats.index.manifest import other_kind

        raise other_kind(path, kind, (graph.NAME,))
    return graph.open_index(path, engine)


def open_any(path: Path, engine: str = "auto", **places: Place | None) -> AnyIndex:
    """Open the index at `path`, of any kind.

    Parameters
    ----------
    **places : {"memory", "storage"}, optional
        Where ``vectors`` and ``tables`` of an index of kind ``lsh`` are while it is open.

    Raises
    ------
    InputError, FormatError
        As `open_index`.
    ConfigError
        If a place is given for an index of another kind.
    """
    kind = kind_of(path)
    given = {name: place for name, place in places.items() if place is not None}
    for name in given:
        if name not in kind.PLACES:
            raise ConfigError(f"{name}: {path} is {kind.TITLE}; leave it out")
    return kind.open_index(path, engine, **given)


def kind_of(path: Path) -> Kind:
    """Return the kind of the index at `path`.

    Raises
    ------
    InputError, FormatError
        As `open_index`.
    """
    check_is_index(path)
    from indexmill.reader import native

    return KINDS[native.index_kind(path)]


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


def load_manifest(path: Path, kinds: Collection[str] = KINDS) -> dict[str, Any]:
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
    for section, keys in {**_SHOWN, **KINDS[kind].SHOWN}.items():
        values = manifest.get(section)  # read_manifest told the keys that may be missing or null
        for key, form in keys.items():
            if values is not None and not isinstance(values.get(key), form):
                raise corrupt(path / MANIFEST_NAME, f"key '{section}.{key}'", form, repr(values.get(key)))
    return manifest
