"""A work folder on storage that all nodes see, and each node's mirror of what its tasks used.

Tasks work on local files. With a work folder at a URL, a file has one name, such as ``assign-0123/000007.arrow``, and
two places: the object ``<url>/<name>`` and, on any node that wrote or read it, ``<mirror>/<name>``. Before a task,
what its arguments name is fetched unless a file of that size is there; after it, what it wrote is pushed. Names of
stages contain the hash of all that decides their bytes, so a name never comes to mean other bytes. Where that does not
hold, as of notes on segments of Lance, `RemoteStore.drop_copies` comes first.

A task's file is complete when storage has it with the bytes that `Storage.confirm` noted after it was pushed: an
interrupted upload may leave the beginning of a file under its name. A stage is complete when its marker is there,
which is pushed last. A mirror holds nothing that storage does not, and may be deleted between builds.
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

import pyarrow as pa
from pyarrow import fs

from indexmill.formats.errors import InputError, StorageError
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.sources.filesystem import locate
from indexmill.formats.urls.client import Seen, in_time_files, reached
from indexmill.formats.urls.pieces import Pieces
from indexmill.formats.urls.retry import retried
from indexmill.pipeline.execution.arguments import KEEP, replaced
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.execution.schedule import PIECE_BYTES, PIECES_AT_ONCE
from indexmill.pipeline.urls.beside import Read, answers
from indexmill.pipeline.urls.conditional import Conditional, conditional, read_if_there

#: Names a node's directory for mirrors: its largest fast disk. Nodes may differ in it.
MIRROR_VARIABLE = "INDEXMILL_MIRROR"
#: File systems that show a file while it is written.
_IN_PLACE, _IN_PLACE_SCHEMES = ("local", "hdfs"), ("file", "hdfs", "viewfs")
#: Longest name of a file there, and random bytes in the name of one that is being written.
_MOST_NAME_BYTES, _TOKEN_BYTES = 255, 8
_LOCKS = ".locks"
#: Ends the name of an empty object that notes how many bytes of a file were pushed: ``<name>.<bytes>.pushed``.
_PUSHED = ".pushed"


class Stored(NamedTuple):
    """Stands in a task's arguments for the local path of ``<mirror>/<name>``, which differs between nodes."""

    name: str


class Storage:
    """Files below one URL, with a mirror on this node.

    Parameters
    ----------
    url : str
        Anything `indexmill.formats.sources.filesystem.locate` opens, such as
        ``s3://bucket/work?region=eu-west-1&endpoint_override=host:9000&scheme=http``.
    mirror : str, optional
        Directory of this node; by default one for `url` below ``INDEXMILL_MIRROR`` or the system's temporary directory.

    Raises
    ------
    InputError
        If no file system is known for the URL.
    StorageError
        From every method, if storage refuses or fails `indexmill.formats.urls.retry.TRIES` times.
    """

    #: Of one read or write, and what is repeated when a read fails.
    piece_bytes = PIECE_BYTES
    #: Of a file, that are fetched at once: several connections to a store may bring more than one.
    fetched_bytes = PIECES_AT_ONCE * PIECE_BYTES

    def __init__(self, url: str, mirror: str | None = None) -> None:
        place = locate(url)
        self.url = url
        self._untimed = reached(place.filesystem)
        self.filesystem: Any = place.filesystem if place.is_local else in_time_files(place.filesystem)
        self._root = place.path.rstrip("/")
        self._scheme = urlsplit(url).scheme or "file"
        self._in_place = self.filesystem.type_name in _IN_PLACE
        self.mirror = Path(mirror or mirror_of(url)).absolute()
        self.mirror.mkdir(parents=True, exist_ok=True)

    @property
    def place(self) -> str:
        """The URL without options and credentials, for messages."""
        return self._name("")

    def local(self, name: str) -> Path:
        """Return where the mirror has, or would have, `name`."""
        path = self.mirror / name
        if posixpath.isabs(name) or ".." in path.parts:
            raise ValueError(f"{name!r} is no name below the work folder")
        return path

    def exists(self, name: str) -> bool:
        """Whether storage has a file, or a directory with files, called `name`."""
        return bool(self._info(name).type != fs.FileType.NotFound)

    def seen(self, name: str) -> Seen | None:
        """Return what storage knows of a file; None if there is none, or it is a directory."""
        path, files = self._path(name), in_time_files(self.filesystem)
        found: Seen | None = self._try(lambda: files.seen(path), "looking for", name)
        return found

    def list(self, name: str = "") -> dict[str, int]:
        """Return the files below directory `name` with their bytes, by name; none if there is no such directory."""
        return {n: i.size for n, i in self._infos(name).items() if not n.endswith(_PUSHED)}

    def times(self, name: str) -> dict[str, int | None]:
        """Return when the files below directory `name` were written: ns on storage's clock, None if it does not say."""
        return {n: i.mtime_ns for n, i in self._infos(name).items()}

    def confirmed(self, name: str) -> dict[str, bool]:
        """Return the files below directory `name` that `confirm` noted; and whether they have a size that was noted."""
        infos = self._infos(name)
        found: dict[str, bool] = {}
        for note in (n.removesuffix(_PUSHED) for n in infos if n.endswith(_PUSHED)):
            file, _, size = note.rpartition(".")
            found[file] = found.get(file, False) or (file in infos and infos[file].size == int(size))
        return found

    def confirm(self, name: str) -> None:
        """Note on storage that file `name` was pushed whole."""
        self.touch(f"{name}.{self.local(name).stat().st_size}{_PUSHED}")

    def touch(self, name: str) -> None:
        """Write an empty file to storage alone; one that is there becomes as young as a new one."""

        def write() -> None:
            path = self._path(name)
            if self._in_place:
                self.filesystem.create_dir(posixpath.dirname(path), recursive=True)
            with self.filesystem.open_output_stream(path):
                pass

        self._try(write, "writing", name)

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
                f"{self._name(name)}: not found; expected what an earlier task wrote; if it was deleted, "
                "delete its whole stage and run again"
            )
        sizes = {name: info.size} if info.type == fs.FileType.File else self.list(name)
        for file, size in sizes.items():
            self._fetch_file(file, size)
        return self.local(name)

    def push(self, name: str) -> None:
        """Write the mirror's file `name`, or all files below directory `name`, to storage."""
        local = self.local(name)
        for path in sorted(p for p in local.rglob("*") if p.is_file()) if local.is_dir() else [local]:
            self.put(path, path.relative_to(self.mirror).as_posix())

    @property
    def shows_unfinished(self) -> bool:
        """Whether a put that is killed leaves a file, which `remove_unfinished` deletes."""
        return self._in_place

    def put(self, local: Path, name: str, token: str | None = None) -> None:
        """Write a local file, which may lie outside of the mirror, to storage as `name`.

        Parameters
        ----------
        token : str, optional
            Names this put for `remove_unfinished`; by default a random one.
        """
        self._try(partial(self._push_file, local, name, token or new_token()), "writing", name)

    def remove_unfinished(self, name: str, token: str) -> None:
        """Delete what a put of `name` left that was killed, if it was named by `token`."""
        self.delete(_unfinished(name, token))

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file on storage, or None if there is none; the mirror is left alone."""
        found: bytes | None = self._try(
            lambda: read_if_there(self.filesystem, self._path(name)), "reading", name
        )
        return found

    def pieces(self, name: str, in_time: bool = True) -> Pieces:
        """Return a file on storage for reads at any place, from several threads; it is opened by the first read.

        Parameters
        ----------
        in_time : bool
            Whether a read that takes too long fails; the caller of others has a time-out of its own.
        """
        path, files = self._path(name), self.filesystem if in_time else self._untimed
        return Pieces(lambda: files.open_input_file(path), self._name(name))

    def conditional(self, name: str) -> Conditional:
        """See `indexmill.pipeline.urls.conditional.conditional`."""
        return conditional(self.url, self.filesystem, self._path(name))

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
        """Return what errors call a file."""
        return f"{self._scheme}://{self._path(name)}"

    def _try(self, call: Callable[[], Any], doing: str, name: str) -> Any:
        return retried(call, f"{doing} {self._name(name)}")

    def _infos(self, name: str) -> dict[str, Any]:
        """Return what storage knows of the files below directory `name`, by name, in order."""
        selector = fs.FileSelector(self._path(name), recursive=True, allow_not_found=True)
        infos = self._try(lambda: self.filesystem.get_file_info(selector), "listing", name)
        files = ((i.path[len(self._root) + 1 :], i) for i in infos if i.type == fs.FileType.File)
        return dict(sorted(files, key=lambda file: file[0]))

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
            pieces, what = self.pieces(name), f"reading {self._name(name)}"
            cuts = [(at, min(self.piece_bytes, size - at)) for at in range(0, size, self.piece_bytes)]
            reads = [Read(partial(pieces.read, at, length), length, what) for at, length in cuts]
            with atomic_write(local) as file:
                for place, piece in answers(reads, self.fetched_bytes, again=False):
                    file.seek(cuts[place][0])
                    file.write(piece)

    def _push_file(self, local: Path, name: str, token: str) -> None:
        path = self._path(name)
        target = _unfinished(path, token) if self._in_place else path
        if self._in_place:
            self.filesystem.create_dir(posixpath.dirname(path), recursive=True)
        try:
            with open(local, "rb") as source, self.filesystem.open_output_stream(target) as out:
                while piece := source.read(self.piece_bytes):
                    out.write(piece)
        except BaseException:  # closing the stream keeps what was written so far, and it cannot be left open
            with suppress(OSError, pa.ArrowException):
                self.filesystem.delete_file(target)
            raise
        if self._in_place:
            failpoint("put-written")
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


def new_token() -> str:
    """Return a name for a put, see `Storage.put`."""
    return secrets.token_hex(_TOKEN_BYTES)


def _unfinished(name: str, token: str) -> str:
    """Return the name under which a file is written where others would see it before it is whole."""
    return f"{name}.{token}.tmp"


def check_name(url: str, name: str) -> None:
    """Refuse the name of a file that could not be put below `url`; nothing is reached.

    Raises
    ------
    InputError
        If a file system would be given a name that is too long while the file is written.
    """
    size = len(posixpath.basename(_unfinished(name, new_token())).encode())
    if (urlsplit(url).scheme or "file") in _IN_PLACE_SCHEMES and size > _MOST_NAME_BYTES:
        raise InputError(
            f"{name}: its last part has {size} bytes while it is written; expected at most {_MOST_NAME_BYTES}; take a "
            f"name that is {size - _MOST_NAME_BYTES} bytes shorter"
        )


def mirror_of(url: str) -> Path:
    """Return where this node mirrors storage at `url`; options and credentials in the URL count."""
    parent = os.environ.get(MIRROR_VARIABLE) or os.path.join(tempfile.gettempdir(), "indexmill-mirror")
    return Path(parent, hashlib.sha256(url.encode()).hexdigest()[:16]).absolute()


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


@cache
def open_storage(url: str) -> Storage:
    """Return this process's storage at `url`, with the mirror of this node."""
    return Storage(url)
