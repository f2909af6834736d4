"""A store in this process whose answers take as long as those of object storage, and which notes its requests.

``throttled:///folder`` is a folder of this machine, through a client of fsspec. All that opens such a URL goes through
`Throttled.line`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import fsspec
from fsspec.spec import AbstractFileSystem

from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.pipeline.urls.output import data_folder

#: Seconds until the first byte of an answer, and bytes a second that all answers share.
FIRST_BYTE_S, BYTES_PER_S = 0.03, 1e9


class Request(NamedTuple):
    """A request, by the clock of `time.perf_counter`."""

    path: str
    offset: int
    n_bytes: int
    began_s: float
    ended_s: float


class Line:
    """What lies between this process and the store.

    Parameters
    ----------
    first_byte_s, bytes_per_s : float

    Attributes
    ----------
    requests : list of Request
        Those that were answered since the last `take`.
    """

    def __init__(self, first_byte_s: float = FIRST_BYTE_S, bytes_per_s: float = BYTES_PER_S) -> None:
        self.first_byte_s, self.bytes_per_s = first_byte_s, bytes_per_s
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._free_s = 0.0

    def carry(self, path: str, offset: int, data: bytes, began_s: float) -> bytes:
        """Return an answer when its last byte would have arrived; answers follow one another on the line."""
        with self._lock:
            self._free_s = max(began_s + self.first_byte_s, self._free_s) + len(data) / self.bytes_per_s
            arrives_s = self._free_s
        time.sleep(max(0.0, arrives_s - time.perf_counter()))
        with self._lock:
            self.requests.append(Request(path, offset, len(data), began_s, time.perf_counter()))
        return data

    def take(self) -> list[Request]:
        """Return the requests that were answered, and forget them."""
        with self._lock:
            taken, self.requests = self.requests, []
        return taken


class Throttled(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files below folders of this machine, which can be read."""

    protocol = "throttled"
    cachable = False
    line: ClassVar[Line] = Line()

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return os.path.abspath(str(path).removeprefix("throttled://"))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Say what there is at a path."""
        began_s = time.perf_counter()
        found = _said_of(self._strip_protocol(path))
        self.line.carry(path, 0, b"", began_s)
        if found is None:
            raise FileNotFoundError(path)
        return found

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """List a folder."""
        began_s, folder = time.perf_counter(), self._strip_protocol(path)
        found = [_said_of(os.path.join(folder, name)) for name in sorted(os.listdir(folder))]
        self.line.carry(path, 0, b"", began_s)
        return [one if detail else one["name"] for one in found if one is not None]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return a range of a file, or all of it."""
        began_s = time.perf_counter()
        try:
            with open(self._strip_protocol(path), "rb") as file:
                first = start or 0
                file.seek(first)
                data = file.read(-1 if end is None else end - first)
        except FileNotFoundError:
            self.line.carry(path, 0, b"", began_s)
            raise
        return self.line.carry(path, first, data, began_s)


def _said_of(path: str) -> dict[str, Any] | None:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    kind = "directory" if os.path.isdir(path) else "file"
    return {"name": path, "size": stat.st_size, "type": kind, "mtime": stat.st_mtime}


def place(index: Path, folder: Path) -> str:
    """Link the files of an index into a folder as they lie at a URL; return that."""
    manifest = parse_manifest(index)
    below = folder / data_folder(manifest.build_id)
    below.mkdir(parents=True, exist_ok=True)
    for source, target in [
        *((index / entry.name, below / entry.name) for entry in manifest.files),
        (index / MANIFEST_NAME, folder / MANIFEST_NAME),
    ]:
        target.unlink(missing_ok=True)
        os.link(source, target)
    return f"throttled://{folder.absolute()}"


def rounds(requests: Iterable[Request]) -> int:
    """Return how many requests followed one another at most, each of which began after the one before had ended."""
    moments = [(time_s, is_begin, i) for i, one in enumerate(requests)
               for time_s, is_begin in ((one.began_s, True), (one.ended_s, False))]  # fmt: skip
    depths: dict[int, int] = {}
    deepest = 0
    for _, is_begin, i in sorted(moments):
        if is_begin:
            depths[i] = deepest + 1
        else:
            deepest = max(deepest, depths[i])
    return deepest


fsspec.register_implementation(Throttled.protocol, Throttled, clobber=True)
