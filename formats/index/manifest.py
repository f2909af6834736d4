"""manifest.json: the kind, origin and files of an index (docs/formats/manifest.md)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ForeignFile, OtherKind, TooNew
from indexmill.formats.index.checked import FORMAT_NAME, SET_KIND, checked_json, foreign, write_checked_json
from indexmill.formats.index.names import MANIFEST_NAME, RUN_NAME, is_deleted_name
from indexmill.formats.index.together import read_together
from indexmill.formats.index.vectors import VECTORS_NAME
from indexmill.formats.kinds import KINDS, has_added_tables
from indexmill.formats.pagefile.atomic import fsync_dir
from indexmill.formats.pagefile.frame import BUILD_ID_BYTES, VERSION, check_version, corrupt
from indexmill.formats.pagefile.reader import PageFile, content_digest
from indexmill.formats.pagefile.writer import stamp_build_id

#: Version of an index that readers of `VERSION` would misread.
_SECOND = (2, 0)
#: Version of an index with deletions, which readers of `_SECOND` would return, or with files that were taken over from
#: an earlier index, which they would call damaged.
_THIRD = (3, 0)
#: Version of an index with added tables, which readers of `_THIRD` would not search; the newest whose manifest is read.
NEWEST = (4, 0)
_HEX = re.compile(r"[0-9a-f]{64}")
_SHORT_HEX = re.compile(r"[0-9a-f]{32}")
#: Names of files.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class FileEntry:
    """One file of an index.

    Attributes
    ----------
    name : str
        In the directory.
    bytes : int
    sha256 : str
        64 hex digits, of its bytes.
    build_id : str or None
        32 hex digits: the build id in the header of a page file that was taken over from an earlier index.
    """

    name: str
    bytes: int
    sha256: str
    build_id: str | None = None


@dataclass(frozen=True)
class Manifest:
    """Content of manifest.json: its keys in order, without ``format`` and ``digest``.

    Attributes
    ----------
    kind : str
        ``graph``, ``lsh`` or ``ivf``.
    build_id : str
        64 hex digits; every page file has the first 32.
    generation : int
        1 for a build; one more than the parents' for every append or merge.
    parents : tuple of str
        Build ids of the indexes it was made from; empty for a build.
    ancestors : tuple of str
        Sorted build ids of the indexes that its parents descend from.
    deleted : mapping or None
        Deletions since the build: the ``file`` of their slots, the number of ``vectors``, and the ``previous``
        generation; None if there were none.
    parameters, input, software : mapping
    layout, graph : mapping
        Keys of graph indexes; empty for other kinds.
    drift : mapping or None
        Key of graph indexes: the difference that appended vectors make to a build; None for a build.
    lsh : mapping
        Key of LSH indexes; empty for other kinds.
    ivf : mapping
        Key of IVF indexes; empty for other kinds.
    certificate : mapping or None
    files : tuple of FileEntry
        Sorted by name.
    """

    kind: str
    build_id: str
    generation: int = field(default=1, kw_only=True)
    parents: tuple[str, ...] = field(default=(), kw_only=True)
    ancestors: tuple[str, ...] = field(default=(), kw_only=True)
    deleted: Mapping[str, Any] | None = field(default=None, kw_only=True)
    parameters: Mapping[str, Any]
    input: Mapping[str, Any]
    software: Mapping[str, Any]
    layout: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    graph: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    drift: Mapping[str, Any] | None = field(default=None, kw_only=True)
    lsh: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    ivf: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    certificate: Mapping[str, Any] | None
    files: tuple[FileEntry, ...]

    @property
    def lineage(self) -> frozenset[str]:
        """Build ids of the index and of all indexes it descends from, whose vectors it contains."""
        return frozenset({self.build_id, *self.parents, *self.ancestors})

    @property
    def n_deleted(self) -> int:
        """Number of vectors that were deleted since the build."""
        return 0 if self.deleted is None else int(self.deleted["vectors"])

    @property
    def built_files(self) -> tuple[FileEntry, ...]:
        """The files that the build id covers: all but that of deletions, which came later."""
        later = None if self.deleted is None else self.deleted["file"]
        return tuple(entry for entry in self.files if entry.name != later)

    @property
    def state(self) -> str:
        """64 hex digits that differ where searches may: the build id, mixed with the deletions since then."""
        if self.deleted is None:
            return self.build_id
        digest = next(entry.sha256 for entry in self.files if entry.name == self.deleted["file"])
        return hashlib.sha256(f"{self.build_id} {digest}\n".encode()).hexdigest()

    @property
    def page_file_build_id(self) -> bytes:
        """The 16 bytes of the build id in every page file of this index that was not taken over from another."""
        return bytes.fromhex(self.build_id)[:BUILD_ID_BYTES]

    def header_build_id(self, entry: FileEntry) -> bytes:
        """The 16 bytes of the build id in the header of one page file."""
        return self.page_file_build_id if entry.build_id is None else bytes.fromhex(entry.build_id)


def build_id(digests: Mapping[str, str]) -> str:
    """Return the build id (64 hex digits) of files whose content digests, by name, are `digests`."""
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal_files(
    directory: str | Path, names: Iterable[str], taken_over: Sequence[FileEntry] = ()
) -> tuple[str, tuple[FileEntry, ...]]:
    """Compute the build id of finished files, write it into the page files, and list all files for the manifest.

    Every file is read twice, because its SHA-256 covers the build id. Repeating this changes nothing.

    Parameters
    ----------
    directory : str or Path
    names : iterable of str
        All other files of the index except manifest.json and run.json.
    taken_over : sequence of FileEntry
        Page files of an earlier index, each with the build id in its header. They are neither read nor changed.

    Returns
    -------
    build_id : str
        64 hex digits.
    files : tuple of FileEntry
    """
    directory, names = Path(directory), sorted(names)
    for name in names:
        if not is_file_name(name):
            raise ValueError(f"file name: one component of [A-Za-z0-9._-] with no dot in front, not {name!r}")
    digests = {name: content_digest(directory / name) for name in names}
    identity = build_id(digests | {entry.name: entry.sha256 for entry in taken_over})
    entries = list(taken_over)
    for name in names:
        path = directory / name
        if path.suffix == ".imx":
            stamp_build_id(path, bytes.fromhex(identity)[:BUILD_ID_BYTES])
        entries.append(FileEntry(name, path.stat().st_size, file_sha256(path)))
    fsync_dir(directory)
    return identity, tuple(sorted(entries, key=lambda entry: entry.name))


def check_size(directory: str | Path, entry: FileEntry) -> None:
    """Raise `CorruptFile` unless the file of `entry` exists with the stated size."""
    path = Path(directory) / entry.name
    if not path.is_file():
        raise corrupt(path, "file", f"{entry.bytes} bytes", "no such file")
    if path.stat().st_size != entry.bytes:
        raise corrupt(path, "size of the file", f"{entry.bytes} bytes", f"{path.stat().st_size} bytes")


def check_digest(directory: str | Path, entry: FileEntry) -> None:
    """Raise `CorruptFile` unless the bytes of the file of `entry` have the stated SHA-256."""
    path = Path(directory) / entry.name
    with open(path, "rb") as file:
        check_digest_of(file, path, entry)


def check_digest_of(file: BufferedIOBase, path: Path, entry: FileEntry) -> None:
    """Raise `CorruptFile` unless the bytes of `file`, opened at `path`, have the SHA-256 that `entry` states."""
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != entry.sha256:
        raise corrupt(path, "SHA-256", entry.sha256, digest)


def check_copied(directory: str | Path, manifest: Manifest, entry: FileEntry) -> None:
    """Raise `FormatError` unless `directory` has the file of `entry`, which was copied or linked by its name.

    Another generation, with files of the same names, may have taken the place of the index meanwhile. A page file is
    known by the build id in its header, any other file by its digest.
    """
    check_size(directory, entry)
    if not entry.name.endswith(".imx"):
        check_digest(directory, entry)
        return
    PageFile(Path(directory) / entry.name, None, manifest.header_build_id(entry)).close()


def is_file_name(name: str) -> bool:
    """Return whether a file of an index may have this name."""
    return _NAME.fullmatch(name) is not None and name not in (MANIFEST_NAME, RUN_NAME)


def write_manifest(directory: str | Path, manifest: Manifest) -> None:
    """Write manifest.json atomically and durably; with it the directory becomes an index.

    Raises
    ------
    ValueError
        If a value is NaN or infinite, which JSON cannot represent.
    """
    major, minor = _version(manifest)
    value = {"format": {"name": FORMAT_NAME, "major": major, "minor": minor}}
    value |= {key.name: getattr(manifest, key.name) for key in fields(manifest)}
    for optional in ("ancestors", "deleted"):
        if not value[optional]:
            del value[optional]
    for name, kind in KINDS.items():
        for key in kind.keys if name != manifest.kind else ():
            del value[key]
    value["files"] = [  # type: ignore[assignment]
        {key: got for key, got in vars(entry).items() if got is not None} for entry in manifest.files
    ]
    write_checked_json(Path(directory) / MANIFEST_NAME, value)


def _version(manifest: Manifest) -> tuple[int, int]:
    """Return the oldest version whose readers answer as the index does.

    Readers of 1.3 find damage in nodes with codes of neighbours, and answer by codes where exact vectors lie apart.
    Readers of 2.0 return deleted vectors, and know no files that were taken over. Readers of 3.0 know no added tables.
    """
    names = {entry.name for entry in manifest.files}
    if has_added_tables(names):
        return NEWEST
    if manifest.deleted is not None or any(entry.build_id is not None for entry in manifest.files):
        return _THIRD
    apart = {"graph.imx", VECTORS_NAME} <= names
    return _SECOND if apart or manifest.parameters.get("codes_on_page") else VERSION


def read_manifest(directory: str | Path, kinds: Collection[str] = ("graph",)) -> Manifest:
    """Read and check manifest.json, and check that every file it names has the stated size.

    Parameters
    ----------
    kinds : collection of str
        Kinds of index that the caller supports.

    Raises
    ------
    ForeignFile
        If there is no manifest, or it was not written by indexmill.
    TooNew, TooOld
        If this version does not support the format version or the kind.
    OtherKind
        If the kind of the index is not among `kinds`, or it is a set of indexes.
    CorruptFile
        If the digest differs, a key is missing or malformed, or a file is missing or has another size.
    """

    def read() -> Manifest:
        manifest = parse_manifest(directory, kinds)
        for entry in manifest.files:
            check_size(directory, entry)
        return manifest

    return read_together(directory, read)


def parse_manifest(
    directory: str | Path, kinds: Collection[str] = KINDS, name: str = MANIFEST_NAME
) -> Manifest:
    """Read and check only a manifest, by default the present one, of any kind; raises errors as `read_manifest`."""
    path = Path(directory) / name
    if not path.is_file():
        raise ForeignFile(
            f"{path}: expected a manifest, got no such file; the directory is not a finished index"
        )
    value = checked_json(path)
    form = value["format"] if isinstance(value.get("format"), dict) else {}
    if form.get("name") != FORMAT_NAME:
        raise foreign(path)
    major, minor = (_typed(form, key, int, path) for key in ("major", "minor"))
    check_version(major, minor, path, NEWEST[0])
    kind = value.get("kind")
    if kind == SET_KIND:
        raise OtherKind(
            f"{directory}: expected one index, got a set of indexes; open, search, inspect and verify take sets, "
            "anything else one part of a set, such as part-000 in that directory"
        )
    if not isinstance(kind, str) or kind not in KINDS:
        what = f"{path}: kind: expected {' or '.join(map(repr, KINDS))}, got {kind!r}"
        raise TooNew(f"{what}; install a newer indexmill to read it")
    if kind not in kinds:
        raise other_kind(directory, kind, kinds)
    identity = _typed(value, "build_id", str, path)
    if not _HEX.fullmatch(identity):
        raise corrupt(path, "build_id", "64 hex digits", repr(identity))
    parts = {key: _typed(value, key, dict, path) for key in ("parameters", "input", "software")}
    for key, optional in {**KINDS[kind].keys, "certificate": True}.items():
        absent = optional and value.get(key) is None
        parts[key] = None if absent else _typed(value, key, dict, path)
    generation, parents, ancestors = _descent(value, path)
    files = _file_entries(_typed(value, "files", list, path), KINDS[kind].required, path)
    deleted = None if value.get("deleted") is None else _deletions(value, generation, files, path)
    _check_exact_vectors(parts["parameters"], files, path)
    return Manifest(
        kind=kind,
        build_id=identity,
        generation=generation,
        parents=parents,
        ancestors=ancestors,
        deleted=deleted,
        files=files,
        **parts,
    )


def other_kind(directory: str | Path, kind: str, wanted: Collection[str]) -> OtherKind:
    """Return the error for an index whose kind, `kind`, is not one of the `wanted` ones."""
    return OtherKind(
        f"{directory}: expected an index of kind {' or '.join(wanted)}, got one of kind {kind}; search it with "
        f"`indexmill {KINDS[kind].searched_by}`, or name another index"
    )


def _descent(value: dict[str, Any], path: Path) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Return generation, parents and further ancestors; indexes before version 1.2 have none, and are builds."""
    if "generation" not in value and "parents" not in value:
        return 1, (), ()
    generation = _typed(value, "generation", int, path)
    if generation < 1:
        raise corrupt(path, "key 'generation'", "at least 1", generation)
    parents = _build_ids(value, "parents", path)
    return generation, parents, _build_ids(value, "ancestors", path) if "ancestors" in value else ()


def _deletions(
    value: dict[str, Any], generation: int, files: tuple[FileEntry, ...], path: Path
) -> Mapping[str, Any]:
    deleted: Mapping[str, Any] = _typed(value, "deleted", dict, path)
    n_vectors = _typed(value["input"], "n_vectors", int, path)
    name = _typed(deleted, "file", str, path)
    if not is_deleted_name(name):
        raise corrupt(path, "key 'deleted': file", "'deleted-' and at least six digits", repr(name))
    if all(entry.name != name for entry in files):
        raise corrupt(path, "files", f"one named {name}, as in 'deleted'", "none")
    for key, most in (("vectors", n_vectors), ("previous", generation - 1)):
        if not 1 <= _typed(deleted, key, int, path) <= most:
            raise corrupt(path, f"key 'deleted': {key}", f"1..{most}", deleted[key])
    return deleted


def _check_exact_vectors(parameters: Mapping[str, Any], files: tuple[FileEntry, ...], path: Path) -> None:
    """Raise `CorruptFile` if a build kept exact vectors and their file is not listed: searches would use codes."""
    if "keep_vectors" not in parameters or not _typed(parameters, "keep_vectors", bool, path):
        return
    if all(entry.name != VECTORS_NAME for entry in files):
        expected = f"one named {VECTORS_NAME}, as 'keep_vectors' of 'parameters' is true"
        raise corrupt(path, "files", expected, "none")


def _build_ids(value: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    ids = _typed(value, key, list, path)
    if not all(isinstance(each, str) and _HEX.fullmatch(each) for each in ids):
        raise corrupt(path, f"key {key!r}", "build ids of 64 hex digits", ids)
    return tuple(ids)


def _typed(value: Mapping[str, Any], key: str, kind: type, path: Path) -> Any:
    got = value.get(key)
    if type(got) is not kind:
        raise corrupt(path, f"key {key!r}", f"a value of type {kind.__name__}", repr(got))
    return got


def _file_entries(values: list[Any], required: Collection[str], path: Path) -> tuple[FileEntry, ...]:
    entries: list[FileEntry] = []
    for i, value in enumerate(values):
        where = f"files[{i}]"
        if not isinstance(value, dict):
            raise corrupt(path, where, "an object", repr(value))
        entry = FileEntry(
            _typed(value, "name", str, path),
            _typed(value, "bytes", int, path),
            _typed(value, "sha256", str, path),
            None if value.get("build_id") is None else _typed(value, "build_id", str, path),
        )
        if not is_file_name(entry.name):
            expected = "one component of [A-Za-z0-9._-] with no dot in front"
            raise corrupt(path, f"{where}: name", expected, repr(entry.name))
        if entry.bytes < 0 or not _HEX.fullmatch(entry.sha256):
            raise corrupt(path, f"{where}: {entry.name}", "a size and 64 hex digits", repr(value))
        if entry.build_id is not None and not _SHORT_HEX.fullmatch(entry.build_id):
            raise corrupt(path, f"{where}: build_id", "32 hex digits", repr(entry.build_id))
        entries.append(entry)
    names = [entry.name for entry in entries]
    if names != sorted(set(names)):
        raise corrupt(path, "files", "different names in order", names)
    missing = set(required).difference(names)
    if missing:
        raise corrupt(
            path, "files", f"all of {', '.join(required)}", f"none named {', '.join(sorted(missing))}"
        )
    return tuple(entries)
