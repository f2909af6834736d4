"""Commands on indexes at URLs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from tests.support.cli import run, run_json
from tests.support.indexes.at_url import publish
from tests.support.indexes.builds import build, clustered, flip

import indexmill
from indexmill.formats.errors import InputError, StorageError
from indexmill.pipeline.urls.cache import CACHE_VARIABLE
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, Storage


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.save("v.npy", clustered(120, 8))
    return f"memory://{uuid4().hex}/x"


SMALL = ("-R", 12, "-L", 30, "--pq-bytes", 8)


def test_an_index_is_built_inspected_verified_and_searched_at_a_url(url: str) -> None:
    built = run("build", "--input", "v.npy", "--out", url, *SMALL)
    assert built.exit_code == 0, built.stderr
    assert built.stdout.startswith(url)
    assert re.search(r"peak memory +[\d.]+ [MG]iB", built.stdout)
    manifest = run_json("inspect", url)
    assert manifest["index"] == url
    assert manifest["manifest"]["input"]["n_vectors"] == 120
    assert manifest["run"]["executor"] == "local"
    assert run_json("verify", url) | {"bytes": 0} == {
        "index": url, "sound": True, "files": len(manifest["manifest"]["files"]), "bytes": 0, "damages": [],
    }  # fmt: skip
    found = run_json("search", url, "--queries", "v.npy", "-k", 1)
    assert [row["vector_id"] for row in found] == list(range(120))
    assert sorted(path.name for path in Path().iterdir()) == ["v.npy"]


def test_a_build_that_was_published_needs_no_more_of_its_storage(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Storage, name: str) -> bytes:
        raise StorageError(f"reading {name}: failed")

    monkeypatch.setattr(Storage, "read", fail)
    built = run("build", "--input", "v.npy", "--out", url, *SMALL)
    assert built.exit_code == 0, built.stderr
    assert re.search(r"peak memory +[\d.]+ [MG]iB", built.stdout)


@pytest.mark.usefixtures("url")
def test_a_url_whose_client_cannot_be_made_is_named() -> None:
    place = "reference://bucket/x"
    said = rf"{place}: no file system for this URL \(.*'fo'\); expected .*; its client may need options that the URL"
    for command in (
        ("build", "--input", "v.npy", "--out", place, *SMALL),
        ("build", "--input", "v.npy", "--out", "x", "--work", place, *SMALL),
        ("search", place, "--queries", "v.npy"),
        ("inspect", place),
        ("verify", place),
    ):
        refused = run(*command)
        assert refused.exit_code == 3, refused.stderr
        assert re.search(said, refused.stderr)
    with pytest.raises(InputError, match=said):
        indexmill.open(place)
    with pytest.raises(InputError, match=said):
        indexmill.build(np.load("v.npy"), place)


def test_an_index_at_a_url_is_not_overwritten(url: str) -> None:
    assert run("build", "--input", "v.npy", "--out", url, *SMALL).exit_code == 0
    again = run("build", "--input", "v.npy", "--out", url, *SMALL)
    assert again.exit_code == 5
    assert again.stderr.startswith(f"error: --out: {Storage(url).place} exists; add --force")
    assert run("build", "--input", "v.npy", "--out", url, *SMALL, "--force").exit_code == 0


def test_the_work_folder_is_not_the_output(url: str) -> None:
    result = run("build", "--input", "v.npy", "--out", url, "--work", f"{url}/", *SMALL)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --work: is also the output; name another URL")


@pytest.mark.parametrize(
    ("out", "work"),
    [
        ("{url}", "{url}/a/work"),
        ("file://{here}/ix", "{here}/ix/work"),
        ("ix", "file://{here}/ix/work"),
        ("ix", "link"),
    ],
)
def test_a_work_folder_inside_the_output_is_refused_before_any_work(url: str, out: str, work: str) -> None:
    Path("link").symlink_to("ix/a")
    given = [name.format(url=url, here=Path.cwd()) for name in (out, work)]
    result = run("build", "--input", "v.npy", "--out", given[0], "--work", given[1], *SMALL)
    assert result.exit_code == 2
    assert re.match(r"error: --work: \S+ lies inside the output \S+; name a \w+ outside it", result.stderr)
    assert Storage(url).list() == {}
    assert sorted(path.name for path in Path().iterdir()) == ["link", "v.npy"]


def test_verify_checks_the_url_and_not_the_cache(url: str, tmp_path: Path) -> None:
    index = build(tmp_path / "local", clustered(120, 8))
    publish(index, url)
    assert run("verify", url).exit_code == 0
    folder = next(name for name in Storage(url).list() if name.endswith("/graph.imx"))
    flip(index / "graph.imx")
    Storage(url).put(index / "graph.imx", folder)
    damaged = run("verify", url)
    assert damaged.exit_code == 6
    assert "graph.imx" in damaged.stderr


def test_python_builds_and_opens_at_a_url(url: str) -> None:
    vectors = clustered(120, 8)
    index = indexmill.build(vectors, url, R=12, L=30, pq_bytes=8)
    assert len(index) == len(indexmill.open(url)) == 120
    assert json.loads(Storage(url).read("manifest.json") or b"")["input"]["n_vectors"] == 120


def test_a_file_url_is_a_local_path_everywhere(url: str, tmp_path: Path) -> None:
    place = (tmp_path / "an index").as_uri()
    built = run("build", "--input", "v.npy", "--out", place, *SMALL)
    assert built.exit_code == 0, built.stderr
    assert (tmp_path / "an index" / "manifest.json").is_file()
    for command in (("inspect", place), ("verify", place), ("search", place, "--queries", "v.npy")):
        result = run(*command)
        assert result.exit_code == 0, result.stderr
    assert len(indexmill.open(place)) == 120
    assert run("append", place, "v.npy", "--out", (tmp_path / "more").as_uri()).exit_code == 0
    assert (tmp_path / "more" / "manifest.json").is_file()
