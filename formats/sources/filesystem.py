"""Resolution of input paths, directories, globs and URLs to a list of files.

Local paths and URIs supported by pyarrow (``s3://``, ``gs://``, ``file://`` and others) use ``pyarrow.fs``; other URLs
use fsspec. Requests to other places than this machine have time-outs, and are repeated where they fail for a moment.
"""

from __future__ import annotations

import difflib
import glob
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from indexmill.formats.errors import InputError, first_line
from indexmill.formats.location import shown_path, shown_url, without_credentials
from indexmill.formats.sources.remote import RemoteFile
from indexmill.formats.urls.client import Seen, in_time_files
from indexmill.formats.urls.retry import retried

#: Where the options of a URL begin; elsewhere ``?`` stands for any character.
_OPTIONS = re.compile(r"\?[A-Za-z_][\w.-]*=")
#: How pyarrow begins what it says of a URL whose scheme it does not know.
_UNKNOWN_SCHEME = "Unrecognized filesystem type"
#: What clients of fsspec raise where a URL lacks options that they need, such as ``reference://``.
_OF_MISSING_OPTIONS = (TypeError, AttributeError)


@dataclass(frozen=True)
class InputFile:
    """One file of an input.

    Attributes
    ----------
    address : str
        A local path, or the URL.
    path : str
        Its path inside `filesystem`.
    filesystem : pyarrow.fs.FileSystem
    """

    address: str
    path: str
    filesystem: fs.FileSystem

    @property
    def name(self) -> str:
        """Its name in errors: the address without the options and credentials of a URL."""
        return shown_path(self.address)

    @property
    def suffix(self) -> str:
        """File name extension in lower case, with the dot; ``""`` if there is none."""
        return posixpath.splitext(self.path)[1].lower()

    @property
    def is_local(self) -> bool:
        """Whether the operating system can open `path`."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def open(self) -> pa.NativeFile | RemoteFile:
        """Open the file for random access; the caller closes it, and converts errors by `reading`.

        A file of another place is asked for by its first read.
        """
        if self.is_local:
            return self.filesystem.open_input_file(self.path)
        return RemoteFile(in_time_files(self.filesystem), self.path, self.name)

    def infos(self, wanted: str | fs.FileSelector) -> Any:
        """Return what the file system knows of a path, or of the files of a selector.

        Raises
        ------
        StorageError
            If it refuses, or gave no answer `indexmill.formats.urls.retry.TRIES` times.
        """
        if self.is_local:
            return self.filesystem.get_file_info(wanted)
        files = in_time_files(self.filesystem)
        doing = "listing" if isinstance(wanted, fs.FileSelector) else "looking for"
        return retried(lambda: files.get_file_info(wanted), f"{doing} {self.name}")

    def seen(self) -> Seen | None:
        """Return what tells a file at a URL from one that replaces it; None if there is none now.

        Raises
        ------
        StorageError
            As `infos`.
        """
        files = in_time_files(self.filesystem)
        return retried(lambda: files.seen(self.path), f"looking for {self.name}")


@contextmanager
def reading(name: str, kind: str, *others: type[Exception]) -> Iterator[None]:
    """Convert errors of libraries about file `name` to `InputError`.

    Parameters
    ----------
    kind : str
        Expected kind of file, such as ``"a Parquet file"``.
    others : exception types
        Further errors of this kind's library about damaged bytes, besides those of Arrow, OSError and the like.
    """
    name = shown_path(name)
    try:
        yield
    except PermissionError as error:
        raise InputError(
            f"{name}: permission denied ({first_line(error)}); expected a readable file; "
            "change its permissions or run as a user who may read it"
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"{name}: not found; expected {kind}; check the path") from error
    except (OSError, pa.ArrowException, EOFError, UnicodeDecodeError, *others) as error:
        raise InputError(
            f"{name}: cannot be read as {kind} ({first_line(error)}); the file may be truncated, damaged or of "
            "another type than its suffix says; write it again"
        ) from error


def resolve(inputs: str | Path | Sequence[str | Path], suffixes: Iterable[str]) -> list[InputFile]:
    """Return the files named by `inputs`, in the given order, and by name in a directory or glob.

    Parameters
    ----------
    inputs : str, Path or sequence of them
        Files, directories, globs (``*``, ``?``, ``[...]``, ``**``) or URLs. A directory means its files with one of
        `suffixes`; hidden files in directories and globs are ignored. In a URL, ``?name=`` begins its options.
    suffixes : iterable of str
        Supported file name extensions, lower case with the dot.

    Raises
    ------
    InputError
        If an input is missing, unreadable, has another suffix, has no files, or is listed twice.
    """
    items = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    known = tuple(suffixes)
    files: dict[str, InputFile] = {}
    for item in items:
        for file in _resolve_one(os.path.expanduser(str(item)), known):
            if file.address in files:
                raise InputError(
                    f"{file.name}: listed twice in the input; expected each file once; remove one "
                    "mention of it"
                )
            if file.suffix not in known:
                raise InputError(
                    f"{file.name}: file type {file.suffix or 'without suffix'} is not supported; "
                    f"expected one of {', '.join(known)}; convert or rename it"
                )
            files[file.address] = file
    if not files:
        raise InputError("no input files; expected at least one path, directory or glob")
    return list(files.values())


def locate(name: str) -> InputFile:
    """Return the file at a path or URL, without checking that it exists.

    Raises
    ------
    InputError
        If no file system supports the URL.
    """
    if "://" not in name:
        return InputFile(name, name, fs.LocalFileSystem())
    filesystem, path = _connect(name)
    local = isinstance(filesystem, fs.LocalFileSystem)
    return InputFile(path if local else name, path, filesystem)


def _resolve_one(item: str, suffixes: tuple[str, ...]) -> list[InputFile]:
    pattern, options = _without_options(item)
    if glob.has_magic(pattern) and not ("://" not in item and os.path.exists(item)):
        return _expand_glob(pattern, options)
    file = locate(item)
    with reading(file.name, "an input file"):
        info = file.infos(file.path)
    if info.type == fs.FileType.NotFound:
        raise InputError(f"{file.name}: not found; expected a file or a directory; {_similar(file)}")
    if info.type != fs.FileType.Directory:
        return [file]
    found = [child for child in _children(file, recursive=False) if child.suffix in suffixes]
    if not found:
        raise InputError(
            f"{file.name}: no input files in this directory; expected files ending in "
            f"{', '.join(suffixes)}; for files in folders below it write "
            f"{file.name.rstrip('/')}/**/*.parquet"
        )
    return found


def _without_options(name: str) -> tuple[str, str]:
    """Return a path or URL, and apart from it the options of a URL with their question mark."""
    found = _OPTIONS.search(name) if "://" in name else None
    return (name, "") if found is None else (name[: found.start()], name[found.start() :])


def _expand_glob(pattern: str, options: str) -> list[InputFile]:
    parts = pattern.split("/")
    split = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    base = "/".join(parts[:split]) or ("/" if pattern.startswith("/") else ".")
    folder, wanted = locate(base + options), parts[split:]
    with reading(folder.name, "a directory"):
        info = folder.infos(folder.path)
    found: list[InputFile] = []
    if info.type == fs.FileType.Directory:
        for child in _children(folder, recursive=len(wanted) > 1):
            if _matches(_below(folder.path, child.path).split("/"), wanted):
                found.append(child)
    if not found:
        raise InputError(
            f"{shown_path(pattern)}: no file matches; expected at least one; check the pattern and the directory"
        )
    return found


def _children(folder: InputFile, recursive: bool) -> list[InputFile]:
    """Return the files in `folder` by name, except below a component that starts with a dot."""
    place, options = _without_options(folder.address)
    with reading(folder.name, "a directory"):
        paths = list(_walk(folder.path, recursive) if folder.is_local else _select(folder, recursive))
    found = []
    for path in paths:
        below = _below(folder.path, path)
        hidden = (
            any(part.startswith(".") for part in below.split("/")) or posixpath.basename(below) == "_SUCCESS"
        )
        if not hidden:
            address = below if place == "." else f"{place.rstrip('/')}/{below}{options}"
            found.append(InputFile(address, path, folder.filesystem))
    return sorted(found, key=lambda file: file.address)


def _walk(folder: str, recursive: bool) -> Iterator[str]:
    """Yield local files, including broken links, which pyarrow would silently leave out."""

    def refuse(error: OSError) -> None:
        raise error

    for parent, _, names in os.walk(folder, onerror=refuse, followlinks=True):
        yield from (os.path.join(parent, name) for name in names)
        if not recursive:
            return


def _select(folder: InputFile, recursive: bool) -> Iterator[str]:
    infos = folder.infos(fs.FileSelector(folder.path, recursive=recursive))
    return (info.path for info in infos if info.type == fs.FileType.File)


def _below(folder: str, path: str) -> str:
    return (
        posixpath.relpath(path.strip("/"), folder.strip("/") or ".")
        if folder != "."
        else posixpath.normpath(path)
    )


def _matches(parts: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _connect(url: str) -> tuple[fs.FileSystem, str]:
    try:
        return fs.FileSystem.from_uri(url)  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ImportError) as error:
        said = first_line(error)  # of an unknown scheme, or of what pyarrow does not like in the URL
        return _connect_fsspec(url, None if said.startswith(_UNKNOWN_SCHEME) else said)
    except OSError as error:
        raise InputError(
            f"{shown_url(url)}: cannot be reached ({without_credentials(first_line(error), url)}); check address and "
            "credentials"
        ) from None  # the error has the credentials


def _connect_fsspec(url: str, said: str | None) -> tuple[fs.FileSystem, str]:
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError, OSError, *_OF_MISSING_OPTIONS) as error:
        reasons = [f"pyarrow: {said}"] if said else []
        hint = "; write / in a secret as %2F" if said and "syntax error" in said else ""
        if isinstance(error, _OF_MISSING_OPTIONS):
            hint += (
                "; its client may need options that the URL does not give: set them in the configuration of fsspec, or "
                "name another place"
            )
        reasons.append(f"fsspec: {first_line(error)}" if said else first_line(error))
        raise InputError(
            f"{shown_url(url)}: no file system for this URL ({without_credentials('; '.join(reasons), url)}); expected "
            "a local path, a scheme of pyarrow.fs or an fsspec scheme whose package is installed, and options that it "
            f"knows{hint}"
        ) from None  # the error has the credentials
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def _similar(file: InputFile) -> str:
    """Return advice about a missing file: the most similar name in its directory."""
    if file.is_local:
        folder, name = os.path.split(file.path)
        try:
            near = difflib.get_close_matches(name, os.listdir(folder or "."), n=1)
        except OSError:
            return f"its directory {folder} cannot be listed either; check the path"
        if near:
            return f"did you mean {os.path.join(folder, near[0])}?"
    return "check the path"
