"""Indexes at URLs that are searched where they are, by requests for ranges of their files.

Opening fetches what searches hold in memory: in one round the manifest, in the next small files, the beginning and the
end of large ones, and in a third the sections of these that are read when an index is opened, if they are longer. All
lies in files of the right sizes, with holes for the rest, which the reader reads from storage.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from indexmill.formats.errors import CorruptFile, InputError, StorageError
from indexmill.formats.index.manifest import FileEntry, Manifest, file_sha256
from indexmill.formats.index.names import MANIFEST_NAME, METADATA_NAME
from indexmill.formats.kinds import page_file_kind
from indexmill.formats.pagefile.frame import CRC_SECTION, PAGE_BYTES, unpack_header
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.urls.cache import cache_directory, manifest_at, read_manifest_at, told_of_cache
from indexmill.pipeline.urls.output import data_folder
from indexmill.pipeline.urls.retry import final_error, retried
from indexmill.pipeline.urls.storage import Storage

#: Kinds of page files that searches read block by block.
BLOCK_KINDS = ("GRPH", "IVFB", "VECT", "IDMP")
#: Their sections that are read when an index is opened. Blocks of graphs with codes, and ids, have their checksums read
#: with them.
_OPENED = ("scale", "directory", CRC_SECTION)
#: Files up to this size are fetched whole; of larger ones, so many bytes at either end at first.
WHOLE_BYTES = 256 << 10
#: Of one request of a section, and requests at a time.
_PIECE_BYTES, _PARALLEL = 8 << 20, 25
_HEADS = "opening-"


class Range(NamedTuple):
    """Bytes of a file."""

    name: str
    start: int
    end: int


class RemoteIndex:
    """An index that was published at a URL, and a directory with what is read when it is opened.

    Parameters
    ----------
    url : str

    Attributes
    ----------
    folder : Path
        Call `close_folder` once it was opened.

    Raises
    ------
    InputError
        If there is no index, or one that was copied there: nothing tells then that a file of it was replaced.
    FormatError
        If what is fetched is damaged.
    BudgetError
        If the disk is full.
    StorageError
        If storage refuses.
    """

    def __init__(self, url: str) -> None:
        cache = cache_directory()
        with told_when_full(partial(told_of_cache, cache)), ExitStack() as stack:
            cache.mkdir(parents=True, exist_ok=True)
            self.folder = Path(tempfile.mkdtemp(prefix=_HEADS, dir=cache))
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self._storage = Storage(url, str(self.folder))
            self.place = self._storage.place
            self._text = manifest_at(self._storage)
            (self.folder / MANIFEST_NAME).write_bytes(self._text)
            self._manifest: Manifest = read_manifest_at(self._storage)
            self._below = data_folder(self._manifest.build_id)
            self._entries = {entry.name: entry for entry in self._manifest.files}
            self._open_files: dict[str, Any] = {}
            self._opening = threading.Lock()
            self._filled: set[str] = set()
            self._filling = threading.Lock()
            self._descriptors = {
                entry.name: os.open(self.folder / entry.name, os.O_RDWR | os.O_CREAT, 0o600)
                for entry in self._manifest.files
            }
            weakref.finalize(self, _close, list(self._descriptors.values()))
            self._fetch_heads()
            self._stack = stack.pop_all()
            weakref.finalize(self, self._stack.close)

    def close_folder(self) -> None:
        """Remove the directory, whose files the reader has open by now."""
        self._stack.close()

    def read(self, name: str, offset: int, n_bytes: int) -> bytes:
        """Return a range of a file; see `indexmill.reader.stored.Remote`."""
        try:
            return self._read(name, offset, n_bytes)
        except FileNotFoundError:
            raise StorageError(f"{self.where(name)}: gone while it was read") from None
        except (OSError, EOFError, pa.ArrowException) as error:
            if (final := final_error(error, f"reading {self.where(name)}")) is not None:
                raise final from error
            raise OSError(f"reading {self.where(name)}: {error}") from error

    def is_replaced(self) -> bool:
        """Return whether another manifest is at the URL, or none."""
        try:
            return self._storage.read(MANIFEST_NAME) != self._text
        except StorageError:
            return False

    def where(self, name: str) -> str:
        """Return the URL of a file, for messages."""
        return f"{self.place}/{self._below}/{name}"

    def fill(self, name: str) -> None:
        """Fetch all of a file."""
        with self._filling, told_when_full(partial(told_of_cache, self.folder.parent)):
            if name not in self._filled:
                self._fetch([Range(name, 0, self._entries[name].bytes)])
                self._filled.add(name)

    def _fetch_heads(self) -> None:
        entries = self._manifest.files
        for entry in entries:
            os.ftruncate(self._descriptors[entry.name], entry.bytes)
        needed = [entry for entry in entries if entry.name != METADATA_NAME]
        large = [
            entry
            for entry in needed
            if entry.bytes > WHOLE_BYTES and page_file_kind(entry.name) in BLOCK_KINDS
        ]
        whole = [entry for entry in needed if entry not in large]
        ends = [Range(entry.name, *of) for entry in large for of in _ends(entry)]
        try:
            self._fetch([Range(entry.name, 0, entry.bytes) for entry in whole] + ends)
        except FileNotFoundError:
            raise InputError(
                f"{self.place}: {self._below} is missing, so this index was copied there file by file, or it was "
                'replaced just now; open it again, with engine "auto", which fetches a copied one whole'
            ) from None
        for entry in whole:
            self._check(entry)
        self._fetch([part for entry in large for part in self._sections(entry)])

    def _check(self, entry: FileEntry) -> None:
        found = file_sha256(self.folder / entry.name)
        if found != entry.sha256:
            raise CorruptFile(
                f"{self.where(entry.name)}: SHA-256: expected {entry.sha256}, got {found}; the object is damaged: copy "
                "the index there again, or rebuild it"
            )
        self._filled.add(entry.name)

    def _sections(self, entry: FileEntry) -> list[Range]:
        """Return what opening reads of a large file besides its ends."""
        page = os.pread(self._descriptors[entry.name], PAGE_BYTES, 0)
        header = unpack_header(page, self.where(entry.name), entry.bytes, page_file_kind(entry.name))
        has_own = header.kind == "IDMP" or "code_bytes" in header.fields
        fetched = _ends(entry)
        parts = []
        for section in header.sections:
            if section.name in _OPENED and not (has_own and section.name == CRC_SECTION):
                start, end = (
                    PAGE_BYTES * page for page in (section.first_page, section.first_page + section.pages)
                )
                if not any(first <= start and end <= last for first, last in fetched):
                    parts.append(Range(entry.name, start, end))
        return parts

    def _fetch(self, ranges: Iterable[Range]) -> None:
        """Fetch ranges into the directory, several at a time."""
        pieces = [
            Range(name, start, min(end, start + _PIECE_BYTES))
            for name, first, end in ranges
            for start in range(first, end, _PIECE_BYTES)
        ]
        if not pieces:
            return
        with ThreadPoolExecutor(min(len(pieces), _PARALLEL), "indexmill-open") as pool:
            for _ in pool.map(self._fetch_piece, pieces):
                pass

    def _fetch_piece(self, piece: Range) -> None:
        name, start, end = piece
        data = retried(lambda: self._read(name, start, end - start), f"reading {self.where(name)}")
        view, descriptor = memoryview(data), self._descriptors[name]
        while view:
            written = os.pwrite(descriptor, view, start)
            start, view = start + written, view[written:]

    def _read(self, name: str, offset: int, n_bytes: int) -> bytes:
        with self._opening:
            file = self._open_files.get(name)
        if file is None:
            file = self._storage.open_file(f"{self._below}/{name}")
            with self._opening:
                file = self._open_files.setdefault(name, file)
        data: bytes = file.read_at(n_bytes, offset)
        if len(data) != n_bytes:
            raise EOFError(f"{len(data):,} bytes at offset {offset:,}, expected {n_bytes:,}")
        return data


def _ends(entry: FileEntry) -> list[tuple[int, int]]:
    """Return the ranges of a large file that are fetched before its header is known."""
    return [(0, WHOLE_BYTES // 2), (entry.bytes - WHOLE_BYTES // 2, entry.bytes)]


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
