"""The manifest: its text, its digest, the build id, and damage that is found."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.files.hostile import patch_manifest
from tests.oracles.files.small_index import SmallIndex, write_small_index

from indexmill.formats.errors import CorruptFile, ForeignFile, FormatError, TooNew, TooOld
from indexmill.formats.index.manifest import build_id, file_sha256, read_manifest, seal_files, write_manifest
from indexmill.formats.pagefile.reader import content_digest

KEYS = [
    "format",
    "kind",
    "build_id",
    "generation",
    "parents",
    "parameters",
    "input",
    "software",
    "layout",
    "graph",
    "drift",
    "certificate",
    "files",
    "digest",
]


@pytest.fixture
def index(tmp_path: Path) -> SmallIndex:
    return write_small_index(tmp_path / "i", n=30, dim=4, dtype="uint8", metadata=True)


def test_a_manifest_comes_back(index: SmallIndex) -> None:
    assert read_manifest(index.path) == index.manifest
    certified = dataclasses.replace(
        index.manifest, certificate={"recall": 0.9875, "note": "große Güte \u2028 \x00"}
    )
    write_manifest(index.path, certified)
    assert read_manifest(index.path) == certified


def test_the_text_is_as_specified(index: SmallIndex) -> None:
    raw = (index.path / "manifest.json").read_bytes()
    value = json.loads(raw)
    assert list(value) == KEYS
    assert value["format"] == {"name": "indexmill", "major": 1, "minor": 3}
    assert raw == (json.dumps(value, indent=2) + "\n").encode()
    assert raw[-81:-68] == b'  "digest": "'
    assert value["digest"] == hashlib.sha256(raw[:-81]).hexdigest()
    names = [entry["name"] for entry in value["files"]]
    assert names == ["codes.imx", "entries.imx", "graph.imx", "ids.imx", "metadata.parquet", "navigation.imx"]
    for entry in value["files"]:
        data = (index.path / entry["name"]).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def test_the_build_id_is_the_hash_of_the_contents_and_stands_in_every_page_file(index: SmallIndex) -> None:
    names = [entry.name for entry in index.manifest.files]
    digests = {name: content_digest(index.path / name) for name in reversed(names)}
    lines = "".join(f"{name} {digests[name]}\n" for name in names)
    assert index.manifest.build_id == build_id(digests) == hashlib.sha256(lines.encode()).hexdigest()
    for name in (name for name in names if name.endswith(".imx")):
        assert (index.path / name).read_bytes()[16:32].hex() == index.manifest.build_id[:32]


def test_sealing_again_changes_nothing(index: SmallIndex) -> None:
    before = {path.name: path.read_bytes() for path in index.path.iterdir()}
    sealed = seal_files(index.path, [entry.name for entry in index.manifest.files])
    assert sealed == (index.manifest.build_id, index.manifest.files)
    assert {path.name: path.read_bytes() for path in index.path.iterdir()} == before


def test_every_flipped_byte_of_a_manifest_is_found(index: SmallIndex) -> None:
    path = index.path / "manifest.json"
    raw = path.read_bytes()
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        with pytest.raises(FormatError):
            read_manifest(index.path)
    for length in range(0, len(raw), 7):
        path.write_bytes(raw[:length])
        with pytest.raises(FormatError):
            read_manifest(index.path)
    path.write_bytes(raw + b"\n")
    with pytest.raises(CorruptFile, match="the digest as the last key"):
        read_manifest(index.path)


def test_a_directory_without_a_manifest_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(ForeignFile, match=r"manifest\.json: .*not a finished index"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text('{"name": "an app"}\n')
    with pytest.raises(ForeignFile, match="expected a manifest of indexmill"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "../graph.imx",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "..",
        ".",
        ".hidden",
        "",
        "a\0",
        "a\n",
        "é",
        "c:x",
        "manifest.json",
        "run.json",
    ],
)
def test_a_name_that_leaves_the_directory_is_rejected(index: SmallIndex, name: str) -> None:
    def rename(value: dict[str, Any]) -> None:
        value["files"][4]["name"] = name

    patch_manifest(index.path, rename)
    with pytest.raises(CorruptFile, match=r"files\[4\]: name: expected one component of"):
        read_manifest(index.path)
    with pytest.raises(ValueError, match="file name: one component"):
        seal_files(index.path, [name])


REJECTED: dict[str, tuple[Callable[[dict[str, Any]], object], type[FormatError], str]] = {
    "too new": (
        lambda v: v["format"].update(major=5),
        TooNew,
        r"expected major 1 to 4, got 5\.3; install a newer",
    ),
    "too old": (
        lambda v: v["format"].update(major=0),
        TooOld,
        r"expected major 1 to 4, got 0\.3; build the index again",
    ),
    "foreign": (lambda v: v["format"].update(name="x"), ForeignFile, "a manifest of indexmill"),
    "no format": (lambda v: v.pop("format"), ForeignFile, "a manifest of indexmill"),
    "kind": (lambda v: v.update(kind="tree"), TooNew, "kind: expected 'graph' or 'lsh' or 'ivf', got 'tree'"),
    "build id": (lambda v: v.update(build_id="A" * 64), CorruptFile, "build_id: expected 64 hex digits"),
    "bool": (lambda v: v["format"].update(major=True), CorruptFile, "key 'major'"),
    "no files": (lambda v: v.pop("files"), CorruptFile, "key 'files'"),
    "a string": (lambda v: v["files"].append("graph.imx"), CorruptFile, r"files\[6\]: expected an object"),
    "twice": (
        lambda v: v["files"].append(v["files"][5]),
        CorruptFile,
        "files: expected different names in order",
    ),
    "unsorted": (lambda v: v["files"].reverse(), CorruptFile, "files: expected different names in order"),
    "a part missing": (lambda v: v["files"].pop(2), CorruptFile, r"none named graph\.imx"),
    "negative size": (lambda v: v["files"][0].update(bytes=-1), CorruptFile, r"files\[0\]: codes\.imx"),
    "float size": (lambda v: v["files"][0].update(bytes=1.0), CorruptFile, "key 'bytes'"),
    "digest": (lambda v: v["files"][0].update(sha256="0"), CorruptFile, r"files\[0\]: codes\.imx"),
    "size": (
        lambda v: v["files"][0].update(bytes=1),
        CorruptFile,
        r"codes\.imx: size of the file: expected 1 bytes, got",
    ),
    "certificate": (lambda v: v.update(certificate=[]), CorruptFile, "key 'certificate'"),
    "drift": (lambda v: v.update(drift=0.5), CorruptFile, "key 'drift'"),
    "generation 0": (lambda v: v.update(generation=0), CorruptFile, "key 'generation': expected at least 1"),
    "no generation": (lambda v: v.pop("generation"), CorruptFile, "key 'generation'"),
    "an ancestor": (lambda v: v.update(ancestors=[7]), CorruptFile, "key 'ancestors': expected build ids"),
    "exact vectors": (
        lambda v: v["parameters"].update(keep_vectors=True),
        CorruptFile,
        r"files: expected one named vectors\.imx, as 'keep_vectors' of 'parameters' is true, got none",
    ),
    "a word": (lambda v: v["parameters"].update(keep_vectors="yes"), CorruptFile, "key 'keep_vectors'"),
    "a parent": (lambda v: v.update(parents=["ab"]), CorruptFile, "key 'parents': expected build ids"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_a_manifest_with_a_valid_digest_but_wrong_content_is_rejected(index: SmallIndex, name: str) -> None:
    change, error, message = REJECTED[name]
    patch_manifest(index.path, change)
    with pytest.raises(error, match=message):
        read_manifest(index.path)


def test_a_higher_minor_with_a_new_key_is_read(index: SmallIndex) -> None:
    patch_manifest(index.path, lambda v: (v["format"].update(minor=9), v.update(novelty=1)))
    assert read_manifest(index.path) == index.manifest


def test_a_manifest_before_1_2_is_the_first_generation(index: SmallIndex) -> None:
    later = dataclasses.replace(
        index.manifest, generation=3, parents=("ab" * 32,), drift={"added_share": 0.5}
    )
    write_manifest(index.path, later)
    assert read_manifest(index.path) == later
    keys = ("generation", "parents", "drift")
    patch_manifest(index.path, lambda v: (v["format"].update(minor=1), *(v.pop(key) for key in keys)))
    assert read_manifest(index.path) == index.manifest


def test_a_missing_file_is_named(index: SmallIndex) -> None:
    (index.path / "ids.imx").unlink()
    with pytest.raises(CorruptFile, match=r"ids\.imx: file: expected \d+ bytes, got no such file"):
        read_manifest(index.path)


def test_nan_is_refused_because_json_cannot_say_it(index: SmallIndex) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_manifest(index.path, dataclasses.replace(index.manifest, certificate={"recall": float("nan")}))
    assert read_manifest(index.path) == index.manifest


def test_file_sha256_is_the_hash_of_all_bytes(index: SmallIndex) -> None:
    path = index.path / "graph.imx"
    assert file_sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
