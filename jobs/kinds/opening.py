"""Opening an index for a command, and reading what its manifest says."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from indexmill.formats.errors import ConfigError, ForeignFile, FormatError, InputError, OtherKind
from indexmill.formats.index.names import IDS_NAME
from indexmill.formats.location import is_url, path_or_url
from indexmill.jobs.choices import size_of
from indexmill.jobs.kinds import graph
from indexmill.jobs.kinds.kind import Kind
from indexmill.jobs.kinds.registry import KINDS
from indexmill.reader.choices import RANGES

if TYPE_CHECKING:
    from indexmill.jobs.search.results import AnyIndex
    from indexmill.pipeline.urls.ranges import RemoteIndex
    from indexmill.reader.choices import Place
    from indexmill.reader.index import Index
    from indexmill.reader.set import IndexSet
    from indexmill.reader.stored import Stored

#: Names the most bytes of blocks that an index at a URL keeps in memory.
MEMORY_VARIABLE, DEFAULT_MEMORY = "INDEXMILL_CACHE_MEMORY", "256MiB"
#: How often an index is opened again: each attempt fails only if one of another kind took its place at that moment.
_ATTEMPTS = 100
#: Files of an opened part, about.
_FILES_OF_PART = 8
#: Keys of any manifest that commands show; `Kind.SHOWN` has those of one kind.
_SHOWN: dict[str, Mapping[str, Any]] = {
    "input": {"n_vectors": int, "dim": int, "dtype": str, "fingerprint": str}
}


def at_hand(index: str | os.PathLike[str], anew: bool = False, text: bytes | None = None) -> Path:
    """Return the directory of an index that is named by a path or a URL; one at a URL is fetched into the local cache.

    Parameters
    ----------
    anew : bool
        Whether one at a URL is fetched even if the cache has it.
    text : bytes, optional
        The manifest at the URL, if it was read just now.

    Raises
    ------
    ConfigError
        If the path names another machine.
    IndexmillError
        As `indexmill.pipeline.urls.cache.fetched`.
    """
    named = path_or_url(index, "index")
    if not is_url(named):
        return Path(named)
    from indexmill.pipeline.urls import cache as url_cache

    return url_cache.fetched(named, _cache_bytes(), anew, text)


def placed(
    index: str | os.PathLike[str], engine: str, ids: Place | None = None
) -> tuple[Path, RemoteIndex | None]:
    """Return the directory of an index that is named by a path or a URL, and where its blocks are, if not there.

    An index at a URL is fetched into the local cache if the cache has room for it, by any engine but ``ranges``. With
    that engine, and with ``auto`` if the cache has no room, it is searched by requests for ranges of its files. Then
    `ids` that are to be in memory are fetched with the rest of what opening reads.

    Raises
    ------
    ConfigError
        If the path names another machine, or the engine is ``ranges`` and it is of this one.
    IndexmillError
        As `indexmill.pipeline.urls.cache.fetched` and `indexmill.pipeline.urls.ranges.RemoteIndex`.
    """
    named = path_or_url(index, "index")
    if not is_url(named):
        if engine == RANGES:
            raise ConfigError(f"engine: {RANGES} reads an index at a URL, got {named}; use auto")
        return Path(named), None
    from indexmill.pipeline.urls import cache as url_cache

    if engine not in ("auto", RANGES):
        return at_hand(named), None
    does_fit, text = url_cache.fits(named, _cache_bytes()) if engine == "auto" else (False, None)
    if does_fit:
        return at_hand(named, text=text), None
    from indexmill.pipeline.urls.ranges import RemoteIndex

    remote = RemoteIndex(named, _cache_bytes(), text, (IDS_NAME,) if ids == "memory" else ())
    return remote.folder, remote


def _cache_bytes() -> int:
    from indexmill.pipeline.urls import cache as url_cache

    return size_of(
        os.environ.get(url_cache.BYTES_VARIABLE, url_cache.DEFAULT_BYTES), url_cache.BYTES_VARIABLE
    )


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


def open_any(
    path: Path, engine: str = "auto", remote: RemoteIndex | None = None, **places: Place | None
) -> AnyIndex | IndexSet:
    """Open the index of any kind at `path`, or the set of indexes there; arguments and errors as of both."""
    from indexmill.formats.index.checked import is_set

    return open_set(path, engine, **places) if is_set(path) else open_one(path, engine, remote, **places)


def open_one(
    path: Path, engine: str = "auto", remote: RemoteIndex | None = None, **places: Place | None
) -> AnyIndex:
    """Open the index at `path`, of any kind.

    Parameters
    ----------
    remote : RemoteIndex, optional
        Where its blocks are, if not in `path`; see `placed`.
    **places : {"memory", "storage"}, optional
        Where ``ids`` of an index, and ``vectors`` and ``tables`` of one of kind ``lsh``, are while it is open.

    Raises
    ------
    InputError, FormatError
        As `open_index`.
    ConfigError
        If a place is given for an index of another kind.
    """
    given: dict[str, Any] = {name: place for name, place in places.items() if place is not None}
    if remote is None:
        return _open_kind(path, engine, given)
    try:
        while True:
            try:
                return _open_kind(path, RANGES, given, _stored(path, remote))
            except FormatError:
                if not remote.fetch_again():
                    raise
    finally:
        remote.close_folder()


def _open_kind(path: Path, engine: str, given: Mapping[str, Any], stored: Stored | None = None) -> AnyIndex:
    """Open an index with the opener of its kind, again if one of another kind takes its place."""
    blocks = {} if stored is None else {"stored": stored}
    attempts = _ATTEMPTS
    while True:
        kind = kind_of(path)
        for name in given:
            if name not in kind.PLACES:
                raise ConfigError(f"{name}: {path} is {kind.TITLE}; leave it out")
        attempts -= 1
        try:
            return kind.open_index(path, engine, **given, **blocks)
        except OtherKind:  # an index of another kind has taken its place
            if not attempts:
                raise


def _stored(path: Path, remote: RemoteIndex) -> Stored:
    """Return how blocks of a remote index are read, if its kind can be searched so."""
    from indexmill.reader.stored import Stored

    if not kind_of(path).BY_RANGES:
        raise ConfigError(
            f"engine: {remote.place} is {kind_of(path).TITLE}, which engine {RANGES} does not search, and which is "
            "fetched whole: give the cache room for it (INDEXMILL_CACHE_BYTES is what all of it may take), and "
            'open it with engine "auto"'
        )
    most = size_of(os.environ.get(MEMORY_VARIABLE, DEFAULT_MEMORY), MEMORY_VARIABLE)
    return Stored(remote, most, blocks=remote.blocks.folder)


def open_set(path: Path, engine: str = "auto", **places: Place | None) -> IndexSet:
    """Open the set of indexes at `path`, each part as `open_one` does.

    Raises
    ------
    FormatError
        If its manifest is damaged, or naming the part that is missing, damaged or of another build.
    ConfigError
        If a place is given that the kind of its parts does not know.
    """
    from indexmill.formats.index.setmanifest import check_parts, read_set_manifest
    from indexmill.pipeline.mill.descriptors import allow_open
    from indexmill.reader.set import IndexSet

    manifest = read_set_manifest(path)
    check_parts(path, manifest)
    allow_open(_FILES_OF_PART * len(manifest.parts))
    parts = [open_one(path / part.name, engine, None, **places) for part in manifest.parts]
    check_parts(path, manifest)  # still: a part that was replaced meanwhile is another index
    return IndexSet(path, manifest, parts)


def kind_searched(path: Path) -> Kind:
    """Return the kind of the index at `path`, or of the parts of the set there; raises what `kind_of` does."""
    from indexmill.formats.index.checked import is_set
    from indexmill.formats.index.setmanifest import check_parts, read_set_manifest

    if not is_set(path):
        return kind_of(path)
    manifest = read_set_manifest(path)
    check_parts(path, manifest)
    return kind_of(path / manifest.parts[0].name)


def kind_of(path: Path) -> Kind:
    """Return the kind of the index at `path`.

    Raises
    ------
    InputError, FormatError
        As `open_index`.
    OtherKind
        If it is a set of indexes.
    """
    from indexmill.formats.index.checked import is_set
    from indexmill.reader import native

    if is_set(path):
        from indexmill.formats.index.manifest import parse_manifest

        parse_manifest(path)  # refuses it
    if not path.exists():
        check_is_index(path)
    try:
        return KINDS[native.index_kind(path)]
    except (ForeignFile, InputError):
        check_is_index(path)
        raise


def check_is_index(path: Path) -> None:
    """Tell a path that was never an index from a damaged one; one that a killed publish left aside is brought back.

    Raises
    ------
    InputError
        If `path` does not exist, or is no directory with a manifest.
    """
    if not path.exists():
        from indexmill.pipeline.mill.publish import bring_back

        bring_back(path)
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
    from indexmill.formats.index.checked import checked_json
    from indexmill.formats.index.manifest import read_manifest
    from indexmill.formats.index.names import MANIFEST_NAME
    from indexmill.formats.pagefile.frame import corrupt

    check_is_index(path)
    kind = read_manifest(path, kinds).kind
    manifest = checked_json(path / MANIFEST_NAME)
    for section, keys in {**_SHOWN, **KINDS[kind].SHOWN}.items():
        values = manifest.get(section)  # read_manifest told the keys that may be missing or null
        lengths: dict[str, int] = {}
        if values is None:
            continue
        for key, form in keys.items():
            value, where = values.get(key), f"key '{section}.{key}'"
            if not _has_form(value, form):
                raise corrupt(path / MANIFEST_NAME, where, _in_words(form), repr(value))
            if get_origin(form) is list:
                lengths[key] = len(value)
                first = next(iter(lengths))
                if lengths[key] != lengths[first]:
                    expected = f"as many values as '{first}', {lengths[first]}"
                    raise corrupt(path / MANIFEST_NAME, where, expected, lengths[key])
    return manifest


def _has_form(value: Any, form: Any) -> bool:
    """Return whether a value of a manifest is of a type, of one of several, or a non-empty list of such values."""
    if isinstance(form, UnionType):
        return any(_has_form(value, one) for one in get_args(form))
    if get_origin(form) is list:
        (item,) = get_args(form)
        return isinstance(value, list) and bool(value) and all(_has_form(each, item) for each in value)
    return isinstance(value, form)


def _in_words(form: Any) -> str:
    if isinstance(form, UnionType):
        return " or ".join(map(_in_words, get_args(form)))
    if get_origin(form) is list:
        return f"a non-empty list of {_in_words(*get_args(form))}"
    return "null" if form is NoneType else str(form.__name__)
