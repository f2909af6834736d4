"""Reading files of an index while its manifest is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.formats.errors import CorruptFile
from indexmill.formats.index.together import read_together


@pytest.mark.parametrize("error", [CorruptFile("gone"), FileNotFoundError("gone")])
def test_what_fails_over_a_manifest_that_was_replaced_begins_again(tmp_path: Path, error: Exception) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text("1")
    calls = []

    def read() -> str:
        calls.append(manifest.read_text())
        if len(calls) < 3:
            manifest.write_text(f"{len(calls) + 1}")
            raise error
        return calls[-1]

    assert read_together(tmp_path, read) == "3"
    assert calls == ["1", "2", "3"]


def test_damage_is_told_at_once(tmp_path: Path) -> None:
    calls = []

    def read() -> None:
        calls.append(1)
        raise CorruptFile("damaged")

    for content in (None, "1"):
        if content:
            (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(CorruptFile, match="damaged"):
            read_together(tmp_path, read)
    assert len(calls) == 2


def test_an_index_that_is_never_at_rest_is_given_up(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text("")

    def read() -> None:
        manifest.write_text(manifest.read_text() + "x")
        raise CorruptFile("gone")

    with pytest.raises(CorruptFile, match="gone"):
        read_together(tmp_path, read)
