"""Manifests are read up to a limit and from regular files alone, and sets of indexes are told from indexes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from indexmill.formats.errors import CorruptFile, ForeignFile
from indexmill.formats.index import checked
from indexmill.formats.index.checked import checked_json, is_set, manifest_bytes, write_checked_json


def test_a_file_of_at_most_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MOST_BYTES", 3 << 20)
    path = tmp_path / "manifest.json"
    path.write_bytes(b"x" * (3 << 20))
    assert len(manifest_bytes(path)) == 3 << 20
    with open(path, "ab") as file:
        file.write(b"x")
    with pytest.raises(ForeignFile, match="expected a manifest of indexmill, got more than 3 MiB"):
        manifest_bytes(path)


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ForeignFile, match="got no regular file"):
        checked_json(tmp_path / "manifest.json")
    assert not is_set(tmp_path)
    (tmp_path / "folder" / "manifest.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        checked_json(tmp_path / "folder" / "manifest.json")
    assert not is_set(tmp_path / "folder")
    assert not is_set(tmp_path / "missing")


def test_a_set_with_a_damaged_manifest_is_still_one(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_checked_json(path, {"format": {"name": "indexmill"}, "kind": "set", "parts": []})
    assert is_set(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"[]", b"[ ]"))
    with pytest.raises(CorruptFile, match="digest"):
        checked_json(path)
    assert is_set(tmp_path)
    write_checked_json(path, {"format": {"name": "indexmill"}, "kind": "graph"})
    assert not is_set(tmp_path)
