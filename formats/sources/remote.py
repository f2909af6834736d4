"""A file at a URL, for the readers of input files: every read is a request with a time-out, and is repeated."""

from __future__ import annotations

import gc
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import fs

from indexmill.formats.urls.client import ClientFiles, TimedFiles
from indexmill.formats.urls.pieces import Pieces
from indexmill.formats.urls.retry import retried

#: Bytes that a short read fetches at least: the parts of headers, and of the trees of HDF5 files, lie side by side.
WINDOW_BYTES = 1 << 20
#: Guards the number of reads that let garbage wait, and whether it was collected before the first of them.
_LOCK = threading.Lock()
_WAITING = {"reads": 0, "is_enabled": True}


class RemoteFile(io.RawIOBase):
    """What readers use of `pyarrow.NativeFile`, of a file at a URL. One thread reads it at a time.

    Nothing is asked before the first read. Memory: `WINDOW_BYTES`.

    Parameters
    ----------
    files : ClientFiles or TimedFiles
        Its file system.
    path : str
        In that file system.
    name : str
        Its name in errors.

    Raises
    ------
    FileNotFoundError
        From every read, if there is no such file.
    StorageError
        From every read, if the storage refuses, or gave no answer `indexmill.formats.urls.retry.TRIES` times.
    """

    def __init__(self, files: ClientFiles | TimedFiles, path: str, name: str) -> None:
        super().__init__()
        self._files, self._path, self._name = files, path, name
        self._pieces = Pieces(lambda: files.open_input_file(path), name)
        self._bytes: int | None = None
        self._at = 0
        self._window_at, self._window = 0, b""

    def size(self) -> int:
        """Return the bytes of the file."""
        if self._bytes is None:
            info = retried(lambda: self._files.get_file_info(self._path), f"looking for {self._name}")
            if info.type == fs.FileType.NotFound:
                raise FileNotFoundError(self._name)
            if info.size is None:
                raise OSError("the storage does not say its size")
            self._bytes = int(info.size)
        return self._bytes

    def read_at(self, n_bytes: int, offset: int) -> bytes:
        """Return up to `n_bytes` bytes at `offset`, fewer at the end of the file, by one request."""
        length = min(n_bytes, self.size() - offset)
        if length <= 0:
            return b""
        doing = f"reading {length:,} bytes at offset {offset:,} of {self._name}"
        return retried(lambda: self._pieces.read_once(offset, length), doing)

    def read(self, n_bytes: int | None = -1) -> bytes:
        """Return the next bytes, all that are left by default."""
        left = max(0, self.size() - self._at)
        length = left if n_bytes is None or n_bytes < 0 else min(n_bytes, left)
        data = self._near(self._at, length)
        self._at += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read the next bytes into `buffer`; return their number.

        h5py calls this with its lock held, which its objects take when they are freed. So no garbage is collected
        meanwhile: the thread of a request would wait for the lock, and the holder of the lock for the request.
        """
        with _garbage_waits():
            data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to an offset; return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        with _garbage_waits():  # see `readinto`
            self._at = max(0, (self.size() if start is None else start) + offset)
        return self._at

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._at

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def _near(self, offset: int, length: int) -> bytes:
        """Return bytes that are there; short reads are parts of a window."""
        if length >= WINDOW_BYTES:
            return self.read_at(length, offset)
        begin = offset - self._window_at
        if not 0 <= begin <= len(self._window) - length:
            self._window_at, self._window, begin = offset, self.read_at(WINDOW_BYTES, offset), 0
        return self._window[begin : begin + length]


@contextmanager
def _garbage_waits() -> Iterator[None]:
    """Collect no garbage inside the block, in any thread."""
    with _LOCK:
        if not _WAITING["reads"]:
            _WAITING["is_enabled"] = gc.isenabled()
            gc.disable()
        _WAITING["reads"] += 1
    try:
        yield
    finally:
        with _LOCK:
            _WAITING["reads"] -= 1
            if not _WAITING["reads"] and _WAITING["is_enabled"]:
                gc.enable()
