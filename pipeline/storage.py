"""A work folder on storage that all nodes see, and each node's mirror of what its tasks used.

Tasks work on local files. With a work folder at a URL, a file has one name, such as ``assign-0123/000007.arrow``, and
two places: the object ``<url>/<name>`` and, on any node that wrote or read it, ``<mirror>/<name>``. Before a task,
what its arguments name is fetched unless a file of that size is there; after it, what it wrote is pushed. Names of
stages contain the hash of all that decides their bytes, so a name never comes to mean other bytes.

An object appears whole or not at all, so a file of a stage is complete when its object exists, and a stage when
its marker does, which is pushed last. A mirror holds nothing that storage does not, and may be deleted between builds.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import posixpath
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pyarrow import fs

from indexmill.formats.atomic import atomic_write
from indexmill.formats.errors import FormatError, StorageError
from indexmill.formats.filesystem import locate
from indexmill.pipeline.arguments import KEEP, replaced
from indexmill.pipeline.retry import retried

#: Names a node's directory for mirrors: its largest fast disk. Nodes may differ in it.
MIRROR_VARIABLE = "INDEXMILL_MIRROR"
#: One read or write, and what is repeated when a read fails.
_PIECE_BYTES = 16 << 20
#: File systems that show a file while it is written.
_IN_PLACE = ("local", "hdfs")
_LOCKS = ".locks"


class Stored(NamedTuple):
    """Stands in a task's arguments for the local path of ``<mirror>/<name>``, which differs between nodes."""

    name: str


class Storage:
    """Files below one URL, with a mirror on this node.

    Parameters
    ----------
    url : str
        Anything `indexmill.formats.filesystem.locate` opens, such as
        ``s3://bucket/work?region=eu-west-1&endpoint_override=host:9000&scheme=http``.
    mirror : str, optional
        Directory of this node; by default one for `url` below ``INDEXMILL_MIRROR`` or the system's temporary directory.

    Raises
    ------
    InputError
        If no file system is known for the URL.
    StorageError
        From every method, if storage refuses or fails `indexmill.pipeline.retry.TRIES` times.
    """

    def __init__(self, url: str, mirror: str | None = None) -> None:
        place = locate(url)
        self.url = url
        self.filesystem: Any = place.filesystem
        self._root = place.path.rstrip("/")
        self._scheme = urlsplit(url).scheme or "file"
        parent = os.environ.get(MIRROR_VARIABLE) or os.path.join(tempfile.gettempdir(), "indexmill-mirror")
        self.mirror = Path(
            mirror or os.path.join(parent, hashlib.sha256(url.encode()).hexdigest()[:16])
        ).absolute()
        self.mirror.mkdir(parents=True, exist_ok=True)

    def local(self, name: str) -> Path:
        """Return where the mirror has, or would have, `name`."""
        path = self.mirror / name
        if posixpath.isabs(name) or ".." in path.parts:
            raise ValueError(f"{name!r} is no name below the work folder")
        return path

    def exists(self, name: str) -> bool:
        """Whether storage has a file, or a directory with files, called `name`."""
        return bool(self._info(name).type != fs.FileType.NotFound)

    def list(self, name: str = "") -> dict[str, int]:
        """Return the files below directory `name` with their bytes, by name; none if there is no such directory."""
        selector = fs.FileSelector(self._path(name), recursive=True, allow_not_found=True)
        infos = self._try(lambda: self.filesystem.get_file_info(selector), "listing", name)
        found = {i.path[len(self._root) + 1 :]: i.size for i in infos if i.type == fs.FileType.File}
        return dict(sorted(found.items()))

    def fetch(self, name: str) -> Path:
        """Return the local path of a file, or of a directory with all its files, fetched unless it is there.

        Raises
        ------
        StorageError
            If there is no such thing.
        """
        info = self._info(name)
        if info.type == fs.FileType.NotFound:
            raise StorageError(
                f"{self._name(name)}: not found; expected what an earlier task wrote; if somebody deleted it, "
                "delete its whole stage and run again"
            )
        sizes = {name: info.size} if info.type == fs.FileType.File else self.list(name)
        for file, size in sizes.items():
            self._fetch_file(file, size)
        return self.local(name)

    def push(self, name: str) -> None:
        """Write the mirror's file `name`, or all files below directory `name`, to storage; each appears whole."""
        local = self.local(name)
        for path in sorted(p for p in local.rglob("*") if p.is_file()) if local.is_dir() else [local]:
            file = path.relative_to(self.mirror).as_posix()
            self._try(partial(self._push_file, path, file, secrets.token_hex(8)), "writing", file)

    def delete(self, name: str) -> None:
        """Delete a file or directory from storage and from this node's mirror, if it is there."""
        kind = self._info(name).type
        if kind != fs.FileType.NotFound:
            delete = self.filesystem.delete_file if kind == fs.FileType.File else self.filesystem.delete_dir
            with suppress(FileNotFoundError):  # a call before this one did it, and failed to say so
                self._try(lambda: delete(self._path(name)), "deleting", name)
        local = self.local(name)
        if local.is_dir():
            shutil.rmtree(local)
        else:
            local.unlink(missing_ok=True)

    def pack(self, arguments: Any) -> Any:
        """Return `arguments` with `Stored` in place of each path below the mirror, for `run_localised`."""

        def replace(part: Any) -> Any:
            if not isinstance(part, (str, Path)):
                return KEEP
            path = Path(part)
            return (
                Stored(path.relative_to(self.mirror).as_posix()) if path.is_relative_to(self.mirror) else KEEP
            )

        return replaced(arguments, replace)

    def unpack(self, packed: Any) -> Any:
        """Fetch what `packed` names, and return it with local paths: those of this node."""
        return replaced(packed, lambda part: str(self.fetch(part.name)) if isinstance(part, Stored) else KEEP)

    def _path(self, name: str) -> str:
        self.local(name)
        return f"{self._root}/{name}" if name else self._root

    def _name(self, name: str) -> str:
        """Return what errors call a file: its URL without options and credentials."""
        return f"{self._scheme}://{self._path(name)}"

    def _try(self, call: Callable[[], Any], doing: str, name: str) -> Any:
        return retried(call, f"{doing} {self._name(name)}")

    def _info(self, name: str) -> Any:
        return self._try(lambda: self.filesystem.get_file_info(self._path(name)), "looking for", name)

    def _fetch_file(self, name: str, size: int) -> None:
        local = self.local(name)
        if _has(local, size):
            return
        local.parent.mkdir(parents=True, exist_ok=True)
        with self._lock(name):
            if _has(local, size):  # another worker of this node was first
                return
            with atomic_write(local) as file:
                for offset in range(0, size, _PIECE_BYTES):
                    length = min(_PIECE_BYTES, size - offset)
                    file.write(self._try(partial(self._read, name, offset, length), "reading", name))

    def _read(self, name: str, offset: int, length: int) -> bytes:
        with self.filesystem.open_input_file(self._path(name)) as file:
            data: bytes = file.read_at(length, offset)
        if len(data) != length:
            raise EOFError(f"{len(data):,} bytes at offset {offset:,}, expected {length:,}")
        return data

    def _push_file(self, local: Path, name: str, token: str) -> None:
        path = self._path(name)
        in_place = self.filesystem.type_name in _IN_PLACE
        target = f"{path}.{token}.tmp" if in_place else path
        if in_place:
            self.filesystem.create_dir(posixpath.dirname(path), recursive=True)
        with open(local, "rb") as source, self.filesystem.open_output_stream(target) as out:
            while piece := source.read(_PIECE_BYTES):
                out.write(piece)
        if in_place:
            self.filesystem.move(target, path)
        size, expected = self.filesystem.get_file_info(path).size, local.stat().st_size
        if size != expected:  # a stream that failed and was closed may have left what it had
            raise OSError(f"{size} bytes arrived, expected {expected:,}")

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Hold this node's lock on `name`, so that its workers fetch a file once."""
        directory = self.mirror / _LOCKS
        directory.mkdir(exist_ok=True)
        with open(directory / hashlib.sha256(name.encode()).hexdigest()[:16], "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


@cache
def open_storage(url: str) -> Storage:
    """Return this process's storage at `url`, with the mirror of this node."""
    return Storage(url)


def run_localised(
    url: str, task: Callable[..., Any], packed: Any, target: str, directory: bool = False, **keywords: Any
) -> Any:
    """Run ``task(*arguments, target)`` on whichever node this is, between fetch and push.

    Parameters
    ----------
    url : str
        Of the work folder.
    task : callable
        Takes local paths.
    packed : tuple
        From `Storage.pack`.
    target : str
        Name of what the task writes, as its last argument.
    directory : bool
        Whether that is a directory, which the task finds empty, rather than a file.
    keywords
        For the task, such as its threads.
    """
    storage = open_storage(url)
    arguments = storage.unpack(packed)
    local = storage.local(target)
    partial_path = local.with_name(f"{local.name}.{secrets.token_hex(8)}.partial")
    local.parent.mkdir(parents=True, exist_ok=True)
    try:
        if directory:
            partial_path.mkdir()
        with _damage_forgotten(storage):
            result = task(*arguments, str(partial_path), **keywords)
        if local.is_dir():
            shutil.rmtree(local)
        os.replace(partial_path, local)
    finally:
        if directory:
            shutil.rmtree(partial_path, ignore_errors=True)
        else:
            partial_path.unlink(missing_ok=True)
    storage.push(target)
    return result


def run_localised_directory(
    url: str, task: Callable[..., Any], packed: Any, target: str, **keywords: Any
) -> Any:
    """See `run_localised`; the task writes a directory."""
    return run_localised(url, task, packed, target, directory=True, **keywords)


@contextmanager
def _damage_forgotten(storage: Storage) -> Iterator[None]:
    """Delete a damaged file from this node's mirror, so that the next task fetches it again."""
    try:
        yield
    except FormatError as error:
        if error.path is not None and Path(error.path).is_relative_to(storage.mirror):
            Path(error.path).unlink(missing_ok=True)
        raise
