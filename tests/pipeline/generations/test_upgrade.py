"""Upgrades of the committed indexes of older formats keep what they say, and are left whole when they are killed."""

from __future__ import annotations

import json
import shutil
import signal
import struct
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.golden import graph as golden
from tests.support.cli import run, run_json
from tests.support.indexes.builds import data_files
from tests.support.processes.forks import run_forked

import indexmill
from indexmill.formats.errors import CorruptFile
from indexmill.formats.graph.index import IndexFiles
from indexmill.formats.index.manifest import read_manifest
from indexmill.reader import _native
from indexmill.reader.index import Index

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(params=["v1_0", "v1_1", "v1_2"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN / request.param, tmp_path / "ix")


def versions(index: Path) -> set[tuple[int, int]]:
    """Return the formats of all page files."""
    return {struct.unpack_from("<HH", path.read_bytes(), 12) for path in index.glob("*.imx")}


def found_in(index: Path) -> list[int]:
    found = Index(index).search(np.ones((1, golden.DIM), np.float32), golden.N, L=golden.N).vector_ids[0]
    return [i for i in found.tolist() if i >= 0]


def test_an_index_of_an_older_format_gets_the_present_one(index: Path) -> None:
    before, found = read_manifest(index), found_in(index)
    (index / "run.json").write_text("not even JSON")
    old = min(versions(index))
    report = run_json("upgrade", index)
    assert (report["from"], report["to"]) == (f"{old[0]}.{old[1]}", "1.3")
    assert report["generation"] == before.generation + 1
    after = read_manifest(index)
    assert (after.generation, after.parents) == (report["generation"], (before.build_id,))
    assert before.lineage < after.lineage
    assert (after.input, after.certificate, after.layout) == (before.input, before.certificate, before.layout)
    assert json.loads((index / "manifest.json").read_text())["format"]["minor"] == 3
    assert versions(index) == {(1, 3)}
    if old > (1, 0):  # which has no navigation graph; all others have the same content
        assert after.build_id == read_manifest(GOLDEN / "v1_3").build_id
    assert (_native.verify(str(index)), found_in(index)) == ([], found)
    with IndexFiles(index) as files:
        assert files.user_ids == golden.USER_IDS
    assert (index / "run.json").read_text() == "not even JSON"


def test_an_index_of_the_present_format_stays_as_it_is(index: Path) -> None:
    indexmill.upgrade(index)
    before = data_files(index)
    report = indexmill.upgrade(index)
    assert (report["from"], report["to"]) == ("1.3", "1.3")
    assert "of format 1.3, the newest; nothing to do" in run("upgrade", index).stdout
    assert data_files(index) == before


def test_deletions_are_kept(index: Path) -> None:
    indexmill.delete(index, [0, 2], by="vector")
    before, found = read_manifest(index), found_in(index)
    assert len(found) == golden.N - 2
    report = indexmill.upgrade(index)
    after = read_manifest(index)
    assert report["generation"] == after.generation == before.generation + 1
    assert (after.n_deleted, found_in(index), _native.verify(str(index))) == (2, found, [])
    assert {path.name for path in index.glob("deleted-*")} == {after.deleted["file"] if after.deleted else ""}
    assert versions(index) == {(1, 3)}


def test_a_damaged_file_is_not_sealed_again(index: Path) -> None:
    data = bytearray((index / "graph.imx").read_bytes())
    data[5000] ^= 1
    (index / "graph.imx").write_bytes(data)
    before = data_files(index)
    with pytest.raises(CorruptFile, match=r"graph\.imx: SHA-256"):
        indexmill.upgrade(index)
    assert data_files(index) == before
    assert [path.name for path in index.parent.iterdir()] == ["ix"]


@pytest.mark.kill
@pytest.mark.parametrize("place", ["publish-copied", "publish-sealed", "publish-aside", "publish-done"])
def test_killed_it_leaves_the_old_index_or_the_new_one(index: Path, place: str) -> None:
    before = data_files(index)
    killed = run_forked("import sys, indexmill\nindexmill.upgrade(sys.argv[1])", index, failpoint=place)
    assert killed.returncode == -signal.SIGKILL
    is_new = place in ("publish-aside", "publish-done")
    assert (data_files(index) != before) == is_new
    assert versions(index) == {(1, 3)} if is_new else (1, 3) not in versions(index)
    assert _native.verify(str(index)) == []
    indexmill.gc(index)
    assert [path.name for path in index.parent.iterdir()] == ["ix"]
    indexmill.upgrade(index)
    assert versions(index) == {(1, 3)}
