"""Files that a client of fsspec reaches, so that a failure of the client is a failure, and not a file that is missing.

pyarrow reaches them, too, but asks ``isfile`` and ``exists`` first, which answer False where the client fails; and it
reads a file through one buffer of several megabytes, one request after the other. Here every range is a request of its
own, a file is missing only where a look finds none, and errors of a client that are no OSError become one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from indexmill.formats.errors import IndexmillError

T = TypeVar("T")

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
#: What tells a file from one that replaces it, by the names that clients use: a number or tag of gcsfs, s3fs, HTTP and
#: adlfs, else when it was written. When it was read, which some clients tell, too, says nothing.
_VERSIONS = (
    "generation", "ETag", "etag", "mtime", "LastModified", "Last-Modified", "last_modified", "modificationTime",
    "created",
)  # fmt: skip


def reached(filesystem: Any) -> Any:
    """Return a file system of pyarrow as it is, and `ClientFiles` for one that stands before a client of fsspec."""
    if isinstance(filesystem, fs.PyFileSystem) and isinstance(filesystem.handler, fs.FSSpecHandler):
        return ClientFiles(filesystem.handler.fs)
    return filesystem


class ClientFiles:
    """What `indexmill.pipeline.urls` uses of `pyarrow.fs.FileSystem`, by a client of fsspec.

    Parameters
    ----------
    client : fsspec.AbstractFileSystem

    Raises
    ------
    FileNotFoundError
        From every method, if a look finds no such file.
    OSError
        From every method, if the client fails.
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    @property
    def type_name(self) -> str:
        """As of pyarrow."""
        protocol = self.client.protocol
        return f"fsspec+{protocol if isinstance(protocol, str) else protocol[0]}"

    def get_file_info(self, wanted: str | fs.FileSelector) -> Any:
        """Return what there is at a path, or the files below the directory of a selector."""
        if isinstance(wanted, fs.FileSelector):
            return self._below(wanted.base_dir)
        try:
            return _info_of(wanted, self._look(wanted))
        except FileNotFoundError:
            return fs.FileInfo(wanted, fs.FileType.NotFound)

    def version(self, path: str) -> str | None:
        """Return what tells a file from one that replaces it; None where the client tells nothing of the kind."""
        found = self._look(path)
        return next((str(found[name]) for name in _VERSIONS if found.get(name) is not None), None)

    def open_input_file(self, path: str) -> _Ranges:
        """Return a file for reads at any place, from several threads."""
        return _Ranges(self, path)

    def open_input_stream(self, path: str) -> io.BytesIO:
        """Return the bytes of a small file."""
        return io.BytesIO(self.read(path))

    def open_output_stream(self, path: str) -> _Output:
        """Open a file to write, in place of what is there."""
        with told_by_client():
            return _Output(self.client.open(path, "wb"))

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._sure(path, lambda: self.client.rm(path))

    def delete_dir(self, path: str) -> None:
        """Delete all files below a directory."""
        self._sure(path, lambda: self.client.rm(path, recursive=True))
        if left := self._below(path):
            raise OSError(f"{left[0].path}: still there after it was deleted")

    def read(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return a range of a file, or all of it, by one request."""
        return self._sure(path, lambda: self._cat(path, start, end))

    def create(self, path: str, data: bytes) -> None:
        """Put a file unless there is one, where the client can; a client that cannot puts it in any case."""
        with told_by_client():
            try:
                self.client.pipe_file(path, data, mode="create")
            except FileExistsError:  # another process was first, or an earlier try whose answer was lost
                return
            except (TypeError, NotImplementedError):
                self.client.pipe_file(path, data)

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
        with told_by_client():
            self.client.invalidate_cache(path)
            found: dict[str, Any] = self.client.info(path)
            return found

    def _sure(self, path: str, call: Callable[[], T]) -> T:
        """Return ``call()``, which finds no file only where a look finds none."""
        try:
            with told_by_client():
                return call()
        except FileNotFoundError as error:
            self._look(path)
            raise OSError(f"{path}: found by a look, but not by a call ({error})") from error

    def _below(self, folder: str) -> list[Any]:
        """Return the files below a directory; none if there is no such directory."""
        try:
            entries = self._sure(folder, lambda: self._listed(folder))
        except FileNotFoundError:
            return []
        files: list[Any] = []
        for entry in entries:
            name = entry["name"]
            if name.strip("/") == folder.strip("/"):  # an object that stands for the directory
                continue
            files += self._below(name) if entry["type"] == "directory" else [_info_of(name, entry)]
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
    """A file that is written, whose errors are those of `ClientFiles`."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *error: object) -> None:
        with told_by_client():
            self._file.close()

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        with told_by_client():
            self._file.write(data)


@contextmanager
def told_by_client() -> Iterator[None]:
    """Convert what a client raises to an OSError, of the kind that its answer means."""
    try:
        yield
    except _PLAIN:
        raise
    except Exception as error:
        answers = (getattr(error, name, None) for name in _STATUS_NAMES)
        meaning = next((_MEANINGS[answer] for answer in answers if answer in _MEANINGS), OSError)
        raise meaning(f"{type(error).__name__}: {error}") from error


def _info_of(path: str, found: dict[str, Any]) -> Any:
    kinds = {"file": fs.FileType.File, "directory": fs.FileType.Directory}
    kind = kinds.get(found["type"], fs.FileType.Unknown)
    size = found["size"] if kind == fs.FileType.File else None
    return fs.FileInfo(path, kind, size=size, mtime=found.get("mtime"))
