"""Indexes at URLs that are searched where they are, by requests for ranges of their files.

Opening fetches what searches hold in memory: first the manifest, then at once small files, and of large ones the
beginning and the end, as far as the manifest tells that opening reads them. What is missing then, if anything is, comes
in one more round. All lies in files of the right sizes, with holes for the rest, which the reader reads from storage.
What was fetched is kept in the cache as well (`blocks`), where it is looked for first. Requests of a round are made
side by side, and again where they hang (`beside`).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import weakref
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from indexmill.formats.errors import CorruptFile, FormatError, InputError, StorageError
from indexmill.formats.graph.codes import KIND as CODES_KIND
from indexmill.formats.graph.codes import MAX_CENTRES
from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.formats.index.names import MANIFEST_NAME, METADATA_NAME
from indexmill.formats.ivf import batch
from indexmill.formats.kinds import page_file_kind
from indexmill.formats.pagefile.atomic import NO_SPACE
from indexmill.formats.pagefile.frame import CRC_SECTION, PAGE_BYTES, Section, unpack_header
from indexmill.formats.urls.retry import final_error
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.urls.beside import Read, answers
from indexmill.pipeline.urls.blocks import Blocks, write_all
from indexmill.pipeline.urls.cache import (
    BYTES_VARIABLE,
    cache_directory,
    manifest_at,
    read_manifest_at,
    remove_leftovers,
    told_of_cache,
)
from indexmill.pipeline.urls.held import held_folder, remove_left
from indexmill.pipeline.urls.output import data_folder
from indexmill.pipeline.urls.storage import Storage

#: Kinds of page files that searches read block by block.
BLOCK_KINDS = ("GRPH", "IVFB", "VECT", "IDMP")
#: Section of a graph's codes that no search reads where nodes of the graph hold the codes.
_CODES = "codes"
#: Sections of block files that are read when an index is opened. Blocks of graphs with codes, and ids, have their
#: checksums read with them.
_OPENED = ("scale", "directory", CRC_SECTION)
#: Pages whose checksums fit a page.
_CHECKED_PAGES = PAGE_BYTES // 4
#: Files up to this size are fetched whole; of larger ones, so many bytes at either end at first.
WHOLE_BYTES = 256 << 10
#: Of one request of a section.
_PIECE_BYTES = 8 << 20
#: How names of directories of opened indexes begin, in the cache and in a directory that other programs use.
_HEADS, _HEADS_ELSEWHERE = "opening-", "indexmill-opening-"


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
    most : int
        Bytes that all of the cache may take.
    text : bytes, optional
        The manifest there, if it was read already.
    whole : collection of str
        Files that are fetched whole with what opening reads, in the same round.

    Attributes
    ----------
    folder : Path
        Call `close_folder` once it was opened.
    blocks : Blocks
        What was read of it on this machine.

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

    def __init__(self, url: str, most: int, text: bytes | None = None, whole: Collection[str] = ()) -> None:
        self._whole = whole
        cache = cache_directory()
        with told_when_full(partial(told_of_cache, cache)):
            try:
                cache.mkdir(parents=True, exist_ok=True)
                remove_left(cache, _HEADS)
                remove_leftovers(cache)
                self._open(url, cache, _HEADS, most, text)
            except OSError as error:
                if error.errno not in NO_SPACE and not isinstance(error, PermissionError):
                    raise
                self._open(url, Path(tempfile.gettempdir()), _HEADS_ELSEWHERE, most, text)
                self.blocks.refused(error)

    def _open(self, url: str, parent: Path, prefix: str, most: int, text: bytes | None) -> None:
        with ExitStack() as stack:
            self.folder = stack.enter_context(held_folder(parent, prefix))
            self._storage = Storage(url, str(self.folder))
            self.place = self._storage.place
            self._text = manifest_at(self._storage) if text is None else text
            (self.folder / MANIFEST_NAME).write_bytes(self._text)
            self._manifest: Manifest = read_manifest_at(self._storage)
            self._below = data_folder(self._manifest.build_id)
            self._entries = {entry.name: entry for entry in self._manifest.files}
            self._files = {
                name: self._storage.pieces(f"{self._below}/{name}", in_time=False) for name in self._entries
            }
            sizes = {name: entry.bytes for name, entry in self._entries.items()}
            self.blocks = Blocks(cache_directory(), self._text, sizes, most)
            self._filled: set[str] = set()
            self._filling = threading.Lock()
            #: Files of which pieces came from the disk of this machine, which is trusted until one differs.
            self._from_disk: set[str] = set()
            self._trusts_disk = True
            opened = stack.enter_context(ExitStack())
            self._descriptors: dict[str, int] = {}
            for name in self._entries:
                self._descriptors[name] = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
                opened.callback(os.close, self._descriptors[name])
            try:
                self._fetch_heads()
            except FormatError:
                if not self.fetch_again():
                    raise
            weakref.finalize(self, opened.pop_all().close)
            self._stack = stack.pop_all()
            weakref.finalize(self, self._stack.close)

    def fetch_again(self) -> bool:
        """Take note that what was fetched is damaged: fetch it once more if some of it came from the disk.

        Returns
        -------
        bool
            Whether it was fetched again; False if it came from storage.
        """
        self.blocks.forget()
        self._trusts_disk = False
        if not self._from_disk:
            return False
        self._from_disk.clear()
        try:
            self._fetch_heads()
        except FormatError:
            self.blocks.forget()
            raise
        return True

    def close_folder(self) -> None:
        """Remove the directory, whose files the reader has open by now."""
        self._stack.close()

    def read(self, name: str, offset: int, n_bytes: int) -> bytes:
        """Return a range of a file; see `indexmill.reader.stored.Remote`."""
        try:
            return self._files[name].read_once(offset, n_bytes)
        except FileNotFoundError:
            raise StorageError(f"{self.where(name)}: gone while it was read") from None
        except (OSError, EOFError, pa.ArrowException) as error:
            if (final := final_error(error, f"reading {self.where(name)}")) is not None:
                raise final from error
            raise OSError(f"reading {self.where(name)}: {error}") from error

    def keep(self, name: str, offset: int, data: bytes) -> None:
        """Keep a range that was read; see `indexmill.reader.stored.Remote`."""
        self.blocks.put(name, offset, data)

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
                try:
                    self.fetch([Range(name, 0, self._entries[name].bytes)])
                    self._check(self._entries[name])
                except FileNotFoundError:
                    raise StorageError(
                        f"{self.where(name)}: gone; "
                        + (
                            "another index has taken its place since it was opened; open it again"
                            if self.is_replaced()
                            else "copy the index there again, or rebuild it"
                        )
                    ) from None

    def _fetch_heads(self) -> None:
        entries = self._manifest.files
        for entry in entries:
            os.ftruncate(self._descriptors[entry.name], entry.bytes)
        needed = [entry for entry in entries if entry.name != METADATA_NAME]
        large = [entry for entry in needed if entry.bytes > WHOLE_BYTES and self._is_read_in_part(entry)]
        whole = [entry for entry in needed if entry not in large]
        ends = {entry.name: self._ends(entry) for entry in large}
        try:
            self.fetch(
                [Range(entry.name, 0, entry.bytes) for entry in whole]
                + [Range(name, *part) for name, parts in ends.items() for part in parts]
            )
            for entry in whole:
                self._check(entry)
        except FileNotFoundError:
            raise InputError(
                f"{self.place}: {self._below} is missing, so this index was copied there file by file, or it was "
                "replaced just now; open it again; a copied one is fetched whole: give the cache room for it "
                f'({BYTES_VARIABLE}), and open it with engine "auto"'
            ) from None
        self.fetch(
            Range(entry.name, *part)
            for entry in large
            for wanted in self._sections(entry)
            for part in _missing(wanted, ends[entry.name])
        )

    @property
    def _codes_are_on_pages(self) -> bool:
        return bool(self._manifest.parameters.get("codes_on_page"))

    def _is_read_in_part(self, entry: FileEntry) -> bool:
        kind = page_file_kind(entry.name)
        is_block_file = kind in BLOCK_KINDS or (kind == CODES_KIND and self._codes_are_on_pages)
        return is_block_file and entry.name not in self._whole

    def _ends(self, entry: FileEntry) -> list[tuple[int, int]]:
        """Return the ranges of a large file that are fetched before its header is known, in order and apart.

        What opening reads lies behind the header, and before the footer with the checksums, whose place follows from
        the size of the file.
        """
        pages = entry.bytes // PAGE_BYTES
        crc_pages = -(-(pages - 2) // (_CHECKED_PAGES + 1))
        crc_start = PAGE_BYTES * (pages - 1 - crc_pages)
        ends = [(0, max(WHOLE_BYTES // 2, PAGE_BYTES + self._opened_bytes(entry)))]
        if page_file_kind(entry.name) == CODES_KIND:  # the checksums of what it is opened with
            ends.append((crc_start, crc_start + PAGE_BYTES))
        is_apart = self._checksums_are_apart(entry)
        ends.append(
            (entry.bytes - WHOLE_BYTES // 2 if is_apart else crc_start - WHOLE_BYTES // 2, entry.bytes)
        )
        return _apart(ends, entry.bytes)

    def _opened_bytes(self, entry: FileEntry) -> int:
        """Return about how many bytes behind its header a file is opened with, as far as the manifest tells."""
        manifest, kind = self._manifest, page_file_kind(entry.name)
        if kind == batch.KIND:
            return -(-int(manifest.ivf.get("lists", 0)) * batch.ENTRY.itemsize // PAGE_BYTES) * PAGE_BYTES
        if kind == CODES_KIND:
            dim = int(manifest.input.get("dim", 0)) + 1
            columns = MAX_CENTRES + (dim if manifest.parameters.get("pq_rotation") == "opq" else 0)
            return 4 * dim * columns + 3 * PAGE_BYTES
        return 0

    def _checksums_are_apart(self, entry: FileEntry) -> bool:
        """Return whether opening needs few of a file's checksums, or none."""
        kind = page_file_kind(entry.name)
        return kind in ("IDMP", CODES_KIND) or (kind == "GRPH" and self._codes_are_on_pages)

    def _check(self, entry: FileEntry) -> None:
        """Compare a file with the manifest, and fetch it again if it differs and some of it came from the disk."""
        while (found := self._sha256(entry.name)) != entry.sha256:
            self.blocks.forget()
            self._trusts_disk = False
            if entry.name not in self._from_disk:
                raise CorruptFile(
                    f"{self.where(entry.name)}: SHA-256: expected {entry.sha256}, got {found}; the object is damaged: "
                    "copy the index there again, or rebuild it"
                )
            self._from_disk.remove(entry.name)
            self.fetch([Range(entry.name, 0, entry.bytes)])
        self._filled.add(entry.name)

    def _sha256(self, name: str) -> str:
        with open(os.dup(self._descriptors[name]), "rb") as file:  # its directory may be gone
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _sections(self, entry: FileEntry) -> list[tuple[int, int]]:
        """Return the bytes of a large file that are read when an index is opened, besides its header and its footer."""
        page = os.pread(self._descriptors[entry.name], PAGE_BYTES, 0)
        header = unpack_header(page, self.where(entry.name), entry.bytes, page_file_kind(entry.name))
        crc = header.sections[-1]
        if header.kind == CODES_KIND:
            opened = [one for one in header.sections if one.name not in (_CODES, CRC_SECTION)]
            checked = [_checksums_of(one, crc) for one in opened]
            return [_bytes_of(one) for one in opened] + checked
        has_own = header.kind == "IDMP" or "code_bytes" in header.fields
        names = [name for name in _OPENED if not (has_own and name == CRC_SECTION)]
        return [_bytes_of(one) for one in header.sections if one.name in names]

    def fetch(self, ranges: Iterable[Range]) -> None:
        """Fetch ranges into the directory, several at a time, with the rest of their pages: these are kept whole."""
        pieces = [
            Range(name, start, min(end, start + _PIECE_BYTES))
            for name, first, end in map(self._whole_pages, ranges)
            for start in range(first, end, _PIECE_BYTES)
        ]
        reads = [
            Read(partial(self._piece, piece), piece.end - piece.start, f"reading {self.where(piece.name)}")
            for piece in pieces
        ]
        for place, (data, is_from_disk) in answers(reads):
            name, start, _ = pieces[place]
            if is_from_disk:
                self._from_disk.add(name)
            else:
                self.blocks.put(name, start, data)
            write_all(self._descriptors[name], memoryview(data), start)

    def _whole_pages(self, part: Range) -> Range:
        name, start, end = part
        end = min(-(-end // PAGE_BYTES) * PAGE_BYTES, self._entries[name].bytes)
        return Range(name, start - start % PAGE_BYTES, end)

    def _piece(self, piece: Range) -> tuple[bytes, bool]:
        """Return a range, and whether it came from the disk of this machine."""
        name, start, end = piece
        data = self.blocks.get(name, start, end) if self._trusts_disk else None
        return (self._files[name].read(start, end - start), False) if data is None else (data, True)


def _bytes_of(section: Section) -> tuple[int, int]:
    return PAGE_BYTES * section.first_page, PAGE_BYTES * (section.first_page + section.pages)


def _checksums_of(section: Section, crc: Section) -> tuple[int, int]:
    """Return where the checksums of a section's pages are."""
    start = PAGE_BYTES * crc.first_page + 4 * (section.first_page - 1)
    return start, start + 4 * section.pages


def _apart(ranges: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Return ranges of a file in order without what two of them share."""
    at, apart = 0, []
    for start, end in ranges:
        start, end = max(start, at), min(end, size)
        if start < end:
            apart.append((start, end))
            at = end
    return apart


def _missing(wanted: tuple[int, int], fetched: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a range that are in none of the fetched ones, which are in order and apart."""
    (at, end), parts = wanted, []
    for first, last in fetched:
        if at < min(first, end):
            parts.append((at, min(first, end)))
        at = max(at, last)
    return [*parts, (at, end)] if at < end else parts
