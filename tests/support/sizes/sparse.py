"""Page files of many gigabytes that take little disk: their zeros are holes.

Writers write as ever. Zeros that reach the file are left out, and their checksums, which are those of every page of
zeros, are not computed; only the checksums themselves, 4 bytes a page, lie on disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from indexmill.formats.index.manifest import FileEntry, Manifest, write_manifest
from indexmill.formats.pagefile.atomic import atomic_write
from indexmill.formats.pagefile.frame import PAGE_BYTES, page_checksums
from indexmill.formats.pagefile.reader import PageFile
from indexmill.formats.pagefile.writer import PageFileWriter, SectionWriter

WRITER = "indexmill.formats.pagefile.writer"
#: Bytes and pages that 32 and 24 bits count.
BYTES_32, PAGES_24 = 1 << 32, 1 << 24
#: The zeros of the largest holes: memory that is never touched takes none.
_ZEROS = np.zeros(256 << 20, np.uint8)
#: Bytes on disk from which a file of 1 GiB has no hole.
_NO_HOLE = 64 << 20


def need_holes(folder: Path) -> None:
    """Skip the test if files in `folder` have no holes."""
    path = folder / "hole"
    with open(path, "wb") as file:
        file.truncate(1 << 30)
    taken = 512 * path.stat().st_blocks
    path.unlink()
    if taken > _NO_HOLE:
        pytest.skip(f"the file system of {folder} has no holes")


def on_disk(path: Path) -> int:
    """Return the bytes that a file, or the files of a directory, take on disk."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(512 * file.stat().st_blocks for file in files)


def zeros(n_bytes: int) -> Iterator[NDArray[np.uint8]]:
    """Yield so many zeros in pieces, which become holes at once."""
    for first in range(0, n_bytes, len(_ZEROS)):
        yield _ZEROS[: n_bytes - first]


def zero_rows(n: int, row_bytes: int) -> Iterator[NDArray[np.uint8]]:
    """Yield so many rows of zeros, uint8 (m, row_bytes), in pieces, which become holes at once."""
    most = len(_ZEROS) // row_bytes
    for first in range(0, n, most):
        count = min(most, n - first)
        yield _ZEROS[: count * row_bytes].reshape(count, row_bytes)


@contextmanager
def holes() -> Iterator[None]:
    """Leave out zeros of all page files that are written inside the block."""
    with patch(f"{WRITER}.atomic_write", _sparse_write), patch(f"{WRITER}.page_checksums", _checksums):
        yield


def stretched(
    source: Path,
    target: Path,
    section: str,
    hole_bytes: int,
    fields: Mapping[str, int],
    data: bytes | None = None,
) -> None:
    """Write a page file anew, with a hole before the payload of one section, and other values of some fields.

    Parameters
    ----------
    hole_bytes : int
        A multiple of the page.
    data : bytes, optional
        What follows the hole, in place of the section's payload.
    """
    with ExitStack() as stack:
        file = stack.enter_context(PageFile(source, None))
        stack.enter_context(holes())
        values = {**file.header.fields, **fields}
        made = stack.enter_context(PageFileWriter(target, file.header.kind, values))
        for entry in file.header.sections[:-1]:
            with made.section(entry.name) as writer:
                if entry.name == section:
                    write_zeros(writer, hole_bytes)
                writer.write(data if entry.name == section and data is not None else file.section(entry.name))


def write_zeros(section: SectionWriter, n_bytes: int) -> None:
    """Write so many zeros into a section inside `holes`."""
    for piece in zeros(n_bytes):
        section.write(piece)


def damage(path: Path, offset: int) -> None:
    """Change the byte at an offset."""
    with open(path, "r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def list_unsealed(
    directory: Path, kind: str, n: int, dim: int, parameters: Mapping[str, Any] | None = None, **keys: Any
) -> None:
    """Write a manifest of files whose digests and build ids are zero: searches look at neither.

    To seal files is to read all of them twice.
    """
    files = tuple(FileEntry(p.name, p.stat().st_size, "0" * 64) for p in sorted(directory.iterdir()))
    facts = {"n_vectors": n, "dim": dim, "dtype": "float32", "fingerprint": "0" * 64}
    empty: Any = {"software": {}, "certificate": None}
    made = Manifest(kind, "0" * 64, parameters=parameters or {}, input=facts, files=files, **empty, **keys)
    write_manifest(directory, made)


@contextmanager
def _sparse_write(path: Path) -> Iterator[Any]:
    with atomic_write(path) as file:
        yield _SparseFile(file)


class _SparseFile:
    """A file to write, which steps over zeros that end where something else is written later."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: Any) -> None:
        if _is_zero(data):
            self._file.seek(memoryview(data).nbytes, os.SEEK_CUR)
        else:
            self._file.write(data)

    def seek(self, offset: int) -> None:
        self._file.seek(offset)


def _is_zero(data: Any) -> bool:
    rows = np.frombuffer(data, np.uint8)
    return np.may_share_memory(rows, _ZEROS) or not rows.any()


def _checksums(pages: memoryview) -> NDArray[np.uint32]:
    """Return what `page_checksums` does."""
    return (
        np.full(len(pages) // PAGE_BYTES, _zero_page(), "<u4") if _is_zero(pages) else page_checksums(pages)
    )


@cache
def _zero_page() -> int:
    return int(page_checksums(memoryview(bytes(PAGE_BYTES)))[0])
