"""Fit the manifest of an index to files that a test changed, removed or added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from indexmill.formats.errors import CorruptFile
from indexmill.formats.index.manifest import parse_manifest, seal_files, write_manifest
from indexmill.reader import native


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
