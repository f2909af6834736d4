"""Indexes that tests publish at URLs, and a store that fails when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.indexes.by_ranges import IDS, KINDS, VECTORS
from tests.support.s3 import FlakyServer, flaky_server

import indexmill
from indexmill.formats.urls import retry
from indexmill.pipeline.urls import ranges as url_ranges
from indexmill.pipeline.urls.cache import BYTES_VARIABLE, CACHE_VARIABLE
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("local")
    for name, options in KINDS.items():
        indexmill.build(VECTORS, folder / name, ids=IDS, **options)
    return {name: folder / name for name in KINDS}


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyServer]:
    with flaky_server() as running:
        yield running


@pytest.fixture
def url(server: FlakyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of an empty place on S3; large files are those of more than four pages."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    monkeypatch.setattr(url_ranges, "WHOLE_BYTES", 4 * 4096)
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(BYTES_VARIABLE, "128MiB")
    yield server.url.replace("/work?", f"/{uuid4().hex}?")
    server.failing = lambda request: False
