"""Damage to the bytes of a file, at a known place or at any, and an index whose digests fit its changed files."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st

from indexmill.formats.errors import CorruptFile
from indexmill.formats.index.manifest import parse_manifest, seal_files, write_manifest
from indexmill.reader import native

#: Changes the bytes of a file.
Change = Callable[[bytearray], object]
#: Words that overwrite others in any file: the ends of the ranges of integers.
_ENDS = (2**31 - 1, 2**31, 2**32 - 1)


def put(code: str, at: int, *values: float) -> Change:
    """Write values at an offset, in the codes of `struct`."""
    return lambda data: struct.pack_into(code, data, at, *values)


def cut(size: int) -> Change:
    """Keep the first `size` bytes; below 0, leave out so many at the end."""
    return lambda data: data.__delitem__(slice(size, None))


def add(more: bytes = b"more") -> Change:
    """Write further bytes at the end."""
    return lambda data: data.extend(more)


def check_refused(
    path: Path, data: bytes, change: Change, message: str, read: Callable[[Path], None]
) -> None:
    """Check that `read` calls a damaged file corrupt, and names it; the file is written to `path`."""
    damaged = bytearray(data)
    change(damaged)
    path.write_bytes(damaged)
    with pytest.raises(CorruptFile, match=message) as refusal:
        read(path)
    assert str(path) in str(refusal.value)


class Damage(NamedTuple):
    """Words that are overwritten, and the part of the file that is kept after that; places are shares of the file."""

    kept: float
    words: list[tuple[float, int]]

    def of(self, data: bytes) -> bytes:
        """Return the damaged bytes."""
        damaged = bytearray(data)
        for place, value in self.words:
            struct.pack_into("<I", damaged, min(int(place * len(data)), len(data) - 4), value)
        return bytes(damaged[: int(self.kept * len(data))])


def damages(early: float, numbers: Sequence[int]) -> st.SearchStrategy[Damage]:
    """Return any damage: half of the places are in the `early` share of a file; words may be one of `numbers`."""
    place = st.one_of(st.floats(0, early), st.floats(0, 1))
    value = st.one_of(st.integers(0, 255), st.sampled_from([*_ENDS, *numbers]))
    kept = st.one_of(st.just(1.0), st.floats(0, 1))
    return st.builds(Damage, kept, st.lists(st.tuples(place, value), max_size=4))


def reseal(index: Path) -> None:
    """Give an index the build id and the digests of what its files are now: those it lists, and new ones of pages."""
    manifest = parse_manifest(index)
    names = {entry.name for entry in manifest.files if (index / entry.name).exists()}
    names |= {path.name for path in index.glob("*.imx")}
    build_id, files = seal_files(index, names)
    write_manifest(index, replace(manifest, build_id=build_id, files=files))


def check_unlisted(index: Path, *readers: Callable[[Path], object]) -> None:
    """Check that an index which keeps exact vectors and lists no file of them is damage to each reader, by name."""
    (index / "vectors.imx").unlink()
    reseal(index)
    for read in readers:
        with pytest.raises(
            CorruptFile,
            match=r"manifest\.json: files: expected .* vectors\.imx, as .keep_vectors. of .parameters. is true",
        ):
            read(index)
    (damage,) = native.verify(index)
    assert "vectors.imx" in damage
