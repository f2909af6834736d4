"""Calls to storage in time, and files of clients of fsspec, whose failures are failures and not missing files.

pyarrow reaches files of such clients, too, but asks ``isfile`` and ``exists`` first, which answer False where the
client fails; and it reads a file through one buffer of several megabytes, one request after the other. Here every range
is a request of its own, a file is missing only where a look finds none, and errors of a client that are no OSError
become one.

Clients may have no time-outs, as some of pyarrow's own file systems, so a call that takes too long is left behind. One
that reads counts as failed and is made again. Of one that writes or deletes no other try is made: it could still take
effect after that.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyarrow import fs

from indexmill.formats.errors import IndexmillError, StorageError
from indexmill.formats.urls.retry import Unanswered

T = TypeVar("T")

#: Seconds in which a client answers a call, beside those of the bytes that the call moves at the least rate.
ANSWER_SECONDS, LEAST_BYTES_PER_SECOND = 60.0, 64 << 10
#: Most calls of a client that are left behind; while so many have not ended, all others fail at once.
MOST_LEFT = 512
#: Threads of calls that were left behind, by client, and by type of pyarrow's own file systems; the lists change under
#: the lock.
_LEFT: WeakKeyDictionary[Any, list[threading.Thread]] = WeakKeyDictionary()
_LEFT_OF_TYPES: dict[str, list[threading.Thread]] = {}
#: Those that others than `in_time` started.
_LEFT_BY_OTHERS: list[threading.Thread] = []
_LOCK = threading.Lock()
#: Bytes for which a file that is read whole gets time: a manifest, whose size is not known before.
_WHOLE_BYTES = 4 << 20
#: Bytes for which a listing gets time: storage answers with about a thousand names at a time.
_LISTED_BYTES = 256 << 20
#: Bytes that a write to one of pyarrow's own file systems may have to send of those before it: some parts of an upload.
_PARTS_BYTES = 64 << 20
#: Most bytes of a file that may come where a range of it was asked for.
MOST_UNASKED_BYTES = 4 << 20
#: Errors of our own calls, and those that say already what they are.
_PLAIN = (
    OSError,
    EOFError,
    pa.ArrowException,
    IndexmillError,
    TypeError,
    AttributeError,
    NotImplementedError,
)
#: What answers over HTTP mean, by the names under which clients keep them.
_STATUS_NAMES = ("status", "status_code", "code")
_MEANINGS = {401: PermissionError, 403: PermissionError, 404: FileNotFoundError}
#: What tells a file from one that replaces it, by the names that clients use: a number or tag of gcsfs, s3fs, HTTP,
#: adlfs and pyarrow, else when it was written. When it was read, which some clients tell, too, says nothing.
_VERSIONS = (
    "generation", "ETag", "etag", "mtime", "LastModified", "Last-Modified", "last_modified", "modificationTime",
    "created",
)  # fmt: skip


class Seen(NamedTuple):
    """What a file system knows of a file now; both may be None, where it does not tell.

    Attributes
    ----------
    bytes : int or None
    version : str or None
        Tells the file from one that replaces it: a number, a tag, or when it was written.
    """

    bytes: int | None
    version: str | None


def reached(filesystem: Any) -> Any:
    """Return a file system of pyarrow as it is, and `ClientFiles` for one that stands before a client of fsspec."""
    if isinstance(filesystem, fs.PyFileSystem) and isinstance(filesystem.handler, fs.FSSpecHandler):
        return ClientFiles(filesystem.handler.fs)
    return filesystem


def in_time_files(filesystem: Any) -> ClientFiles | TimedFiles:
    """Return the files of a file system of pyarrow, or of a client of fsspec behind it, each call in time."""
    files = reached(filesystem)
    return files if isinstance(files, (ClientFiles, TimedFiles)) else TimedFiles(files)


def answer_seconds(n_bytes: int) -> float:
    """Return in how many seconds a call that reads so many bytes is answered, or counts as failed."""
    return ANSWER_SECONDS + n_bytes / LEAST_BYTES_PER_SECOND


def in_time(
    left: list[threading.Thread], call: Callable[[], T], n_bytes: int = 0, late: type[OSError] = TimeoutError
) -> T:
    """Return ``call()``, which moves so many bytes, and is made by a thread of its own.

    Parameters
    ----------
    left : list of Thread
        Calls of the same client that were left behind, which changes.
    late : type
        The error of a call that takes too long, and is left behind.

    Raises
    ------
    late
        If it takes too long.
    TimeoutError
        If too many calls before have not ended; it is not made.
    OSError
        In place of an error of the client's own, of the kind that its answer means.
    """
    with _LOCK:
        left[:] = [thread for thread in left if thread.is_alive()]
        if len(left) >= MOST_LEFT:
            raise TimeoutError(f"{len(left)} calls before have no answer yet")
    answer: Future[T] = Future()
    thread = threading.Thread(target=_make, args=(call, answer), name="indexmill-client", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(f"no thread for a call: {error}") from None
    seconds = answer_seconds(n_bytes)
    thread.join(seconds)
    if thread.is_alive():
        with _LOCK:
            left.append(thread)
        raise late(no_answer(seconds))
    return _told(answer.result)


def leave(threads: Iterable[threading.Thread]) -> None:
    """Note threads whose calls of storage are waited for no more."""
    with _LOCK:
        _LEFT_BY_OTHERS[:] = [thread for thread in (*_LEFT_BY_OTHERS, *threads) if thread.is_alive()]


def calls_hang() -> bool:
    """Return whether calls of pyarrow's own file systems, or calls of `leave`, were left behind and have not ended."""
    with _LOCK:
        return any(
            thread.is_alive() for left in (*_LEFT_OF_TYPES.values(), _LEFT_BY_OTHERS) for thread in left
        )


def no_answer(seconds: float) -> str:
    """Return the reason of a failure, for messages."""
    return f"no answer in {seconds:.0f} s"


class _InTime:
    """What has calls left behind."""

    def __init__(self, left: list[threading.Thread]) -> None:
        self._left = left

    def changed(self, call: Callable[[], T], n_bytes: int = 0) -> T:
        """Return ``call()``, which writes so many bytes, or deletes.

        Raises
        ------
        Unanswered
            If it takes too long.
        OSError
            As `in_time`.
        """
        return in_time(self._left, call, n_bytes, Unanswered)


class TimedFiles(_InTime):
    """What reads of inputs and `indexmill.pipeline.urls` use of a file system of pyarrow's own, each call in time.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    OSError
        From every method, if the file system fails, or does not answer in time.
    """

    def __init__(self, filesystem: Any) -> None:
        super().__init__(_LEFT_OF_TYPES.setdefault(filesystem.type_name, []))
        self._filesystem = filesystem

    @property
    def type_name(self) -> str:
        """As of pyarrow."""
        return str(self._filesystem.type_name)

    def get_file_info(self, wanted: str | fs.FileSelector) -> Any:
        """Return what there is at a path, or the files below the directory of a selector."""
        n_bytes = _LISTED_BYTES if isinstance(wanted, fs.FileSelector) else 0
        return in_time(self._left, lambda: self._filesystem.get_file_info(wanted), n_bytes)

    def seen(self, path: str) -> Seen | None:
        """Return what there is at a path now; None if there is no file."""
        info = self.get_file_info(path)
        if info.type != fs.FileType.File:
            return None
        try:
            told = in_time(self._left, lambda: self._told(path))
        except FileNotFoundError:  # deleted just now
            return None
        return Seen(info.size, _version(told | {"mtime": info.mtime_ns}))

    def _told(self, path: str) -> dict[str, Any]:
        """Return what the storage tells of a file when it is opened: its tag, on object storage."""
        with self._filesystem.open_input_file(path) as file:
            return {name: value.decode(errors="replace") for name, value in file.metadata().items()}

    def open_input_file(self, path: str) -> _TimedFile:
        """Open a file for reads at any place, from several threads."""
        opened = in_time(self._left, lambda: self._filesystem.open_input_file(path))
        return _TimedFile(self._left, opened)

    def open_input_stream(self, path: str) -> io.BytesIO:
        """Return the bytes of a small file."""

        def read() -> bytes:
            with self._filesystem.open_input_stream(path) as file:
                return bytes(file.read())

        return io.BytesIO(in_time(self._left, read, _WHOLE_BYTES))

    def open_output_stream(self, path: str) -> _Output:
        """Open a file to write, in place of what is there."""
        opened = self.changed(lambda: self._filesystem.open_output_stream(path))
        return _Output(self, opened, _PARTS_BYTES, sys.maxsize)

    def create_dir(self, path: str, *, recursive: bool) -> None:
        """Make a directory, unless it is there."""
        self.changed(lambda: self._filesystem.create_dir(path, recursive=recursive))

    def move(self, source: str, target: str) -> None:
        """Give a file another name."""
        self.changed(lambda: self._filesystem.move(source, target))

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self.changed(lambda: self._filesystem.delete_file(path))

    def delete_dir(self, path: str) -> None:
        """Delete all files below a directory."""
        self.changed(lambda: self._filesystem.delete_dir(path), _LISTED_BYTES)


class _TimedFile:
    """An opened file of pyarrow, every read of which is in time."""

    def __init__(self, left: list[threading.Thread], file: pa.NativeFile) -> None:
        self._left, self._file = left, file

    def read_at(self, n_bytes: int, offset: int) -> bytes:
        """Return up to `n_bytes` bytes at `offset`."""
        return bytes(in_time(self._left, lambda: self._file.read_at(n_bytes, offset), n_bytes))


class ClientFiles(_InTime):
    """What `indexmill.pipeline.urls` uses of `pyarrow.fs.FileSystem`, by a client of fsspec.

    Parameters
    ----------
    client : fsspec.AbstractFileSystem

    Raises
    ------
    FileNotFoundError
        From every method, if a look finds no such file.
    OSError
        From every method, if the client fails, or does not answer in time.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(_LEFT.setdefault(client, []))
        self.client = client

    @property
    def type_name(self) -> str:
        """As of pyarrow."""
        protocol = self.client.protocol
        return f"fsspec+{protocol if isinstance(protocol, str) else protocol[0]}"

    def get_file_info(self, wanted: str | fs.FileSelector) -> Any:
        """Return what there is at a path, or the files below the directory of a selector."""
        if isinstance(wanted, fs.FileSelector):
            return self._below(wanted.base_dir, wanted.recursive)
        try:
            return _info_of(wanted, self._look(wanted))
        except FileNotFoundError:
            return fs.FileInfo(wanted, fs.FileType.NotFound)

    def seen(self, path: str) -> Seen | None:
        """Return what there is at a path now; None if there is no file."""
        try:
            found = self._look(path)
        except FileNotFoundError:
            return None
        return Seen(found.get("size"), _version(found)) if found["type"] == "file" else None

    def open_input_file(self, path: str) -> _Ranges:
        """Return a file for reads at any place, from several threads."""
        return _Ranges(self, path)

    def open_input_stream(self, path: str) -> io.BytesIO:
        """Return the bytes of a small file."""
        return io.BytesIO(self.read(path))

    def open_output_stream(self, path: str) -> _Output:
        """Open a file to write, in place of what is there."""
        opened = self.changed(lambda: self.client.open(path, "wb"))
        block = getattr(opened, "blocksize", None)
        buffered = sys.maxsize if block is None else block
        return _Output(self, opened, buffered, buffered)

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._sure(path, lambda: self.changed(lambda: self.client.rm(path)))

    def delete_dir(self, path: str) -> None:
        """Delete all files below a directory."""
        self._sure(path, lambda: self.changed(lambda: self.client.rm(path, recursive=True), _LISTED_BYTES))
        if left := self._below(path):
            raise OSError(f"{left[0].path}: still there after it was deleted")

    def read(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return a range of a file, or all of it, by one request."""
        is_range = start is not None and end is not None
        n_bytes = end - start if start is not None and end is not None else _WHOLE_BYTES
        data = self._sure(path, lambda: in_time(self._left, lambda: self._cat(path, start, end), n_bytes))
        if not is_range or len(data) <= n_bytes:
            return data
        if len(data) > MOST_UNASKED_BYTES:
            raise StorageError(
                f"{path}: {len(data):,} bytes came for a range of {n_bytes:,}, so the server knows no ranges; copy the "
                "file to a disk, and name the copy"
            )
        return data[start:end]  # of a small file, all of which came

    def create(self, path: str, data: bytes) -> None:
        """Put a file unless there is one, where the client can; a client that cannot puts it in any case."""

        def pipe() -> None:
            try:
                self.client.pipe_file(path, data, mode="create")
            except FileExistsError:  # another process was first, or an earlier try whose answer was lost
                return
            except (TypeError, NotImplementedError):
                self.client.pipe_file(path, data)

        self.changed(pipe, len(data))

    def _cat(self, path: str, start: int | None, end: int | None) -> bytes:
        from fsspec.spec import AbstractFileSystem

        read = self.client.cat_file
        if getattr(read, "__func__", None) is AbstractFileSystem.cat_file:  # opens the file, and reads ahead
            block = {} if start is None or end is None else {"block_size": max(1, end - start)}
            try:
                return bytes(read(path, start, end, cache_type="none", **block))
            except TypeError:
                return bytes(read(path, start, end))
        return bytes(read(path, start=start, end=end))

    def _look(self, path: str) -> dict[str, Any]:
        """Return what the client knows of a path now."""

        def look() -> dict[str, Any]:
            self.client.invalidate_cache(path)
            return dict(self.client.info(path))

        return in_time(self._left, look)

    def _sure(self, path: str, call: Callable[[], T]) -> T:
        """Return ``call()``, which finds no file only where a look finds none."""
        try:
            return call()
        except FileNotFoundError as error:
            self._look(path)
            raise OSError(f"{path}: found by a look, but not by a call ({error})") from error

    def _below(self, folder: str, recursive: bool = True) -> list[Any]:
        """Return the files below a directory, or in it alone; none if there is no such directory."""
        try:
            entries = self._sure(folder, lambda: in_time(self._left, lambda: self._listed(folder)))
        except FileNotFoundError:
            return []
        files: list[Any] = []
        for entry in entries:
            name = entry["name"]
            if name.strip("/") == folder.strip("/"):  # an object that stands for the directory
                continue
            if entry["type"] != "directory":
                files.append(_info_of(name, entry))
            elif recursive:
                files += self._below(name)
        return files

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        self.client.invalidate_cache(folder)
        return list(self.client.ls(folder, detail=True))


class _Ranges:
    """A file of which every read is a request of its own."""

    def __init__(self, files: ClientFiles, path: str) -> None:
        self._files, self._path = files, path

    def __enter__(self) -> _Ranges:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open."""

    def read_at(self, n_bytes: int, offset: int) -> bytes:
        """Return up to `n_bytes` bytes at `offset`."""
        return self._files.read(self._path, offset, offset + n_bytes)


class _Output:
    """A file that is written, whose errors are those of the file system.

    Parameters
    ----------
    files : TimedFiles or ClientFiles
    file : file of pyarrow or fsspec
    write_bytes, close_bytes : int
        Bytes written before that a write, and the end, may have to send.
    """

    def __init__(self, files: _InTime, file: Any, write_bytes: int, close_bytes: int) -> None:
        self._files, self._file = files, file
        self._write_bytes, self._close_bytes = write_bytes, close_bytes
        self._written = 0

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Send the rest; nothing where a call was left behind, whose thread is still at work on the file."""
        if self._file is not None:
            self._send(self._file.close, min(self._written, self._close_bytes))  # some send nothing before

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        self._written += len(data)
        self._send(partial(self._file.write, data), min(self._written, self._write_bytes + len(data)))

    def _send(self, call: Callable[[], Any], n_bytes: int) -> None:
        try:
            self._files.changed(call, n_bytes)
        except (Unanswered, KeyboardInterrupt):
            self._file = None  # closed where it is let go of: by that thread, which waits already
            raise


def _told(call: Callable[[], T]) -> T:
    """Return ``call()``; an error of the client's own becomes an OSError of the kind that its answer means."""
    try:
        return call()
    except _PLAIN:
        raise
    except Exception as error:
        answers = (getattr(error, name, None) for name in _STATUS_NAMES)
        meaning = next((_MEANINGS[answer] for answer in answers if answer in _MEANINGS), OSError)
        raise meaning(f"{type(error).__name__}: {error}") from error


def _make(call: Callable[[], T], answer: Future[T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)


def _version(told: dict[str, Any]) -> str | None:
    """Return what tells a file from one that replaces it; None where nothing of the kind is told."""
    return next((str(told[name]) for name in _VERSIONS if told.get(name) is not None), None)


def _info_of(path: str, found: dict[str, Any]) -> Any:
    kinds = {"file": fs.FileType.File, "directory": fs.FileType.Directory}
    kind = kinds.get(found["type"], fs.FileType.Unknown)
    size = found["size"] if kind == fs.FileType.File else None
    return fs.FileInfo(path, kind, size=size, mtime=found.get("mtime"))
