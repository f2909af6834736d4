"""Indexes at URLs: published without a build, and fetched again."""

from __future__ import annotations

from pathlib import Path

from indexmill.formats.index.manifest import parse_manifest
from indexmill.pipeline.urls.cache import fetched
from indexmill.pipeline.urls.output import url_output

#: More than the indexes of tests take.
ROOM = 1 << 30


def publish(index: Path, url: str, force: bool = False) -> None:
    """Publish a finished index of this machine at a URL, as the build of it would."""
    with url_output(url, force) as output:
        output.publish(index, parse_manifest(index), {"seconds": {}}, lambda files: None)


def fetch(url: str, most: int = ROOM, anew: bool = False) -> dict[str, bytes]:
    """Return the files of the index at a URL, by name."""
    return {path.name: path.read_bytes() for path in fetched(url, most, anew).iterdir()}
