"""Indexes published at URLs: data first, the manifest last, and one builder at a time."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.indexes.at_url import fetch, publish
from tests.support.indexes.builds import build, clustered
from tests.support.processes.forks import run_command
from tests.support.s3 import FlakyServer, refusing

from indexmill.formats.errors import ConfigError, InputError, OutputExistsError, StorageError
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.sources.filesystem import locate
from indexmill.formats.urls import retry
from indexmill.pipeline.urls import conditional
from indexmill.pipeline.urls import output as url_output
from indexmill.pipeline.urls.cache import CACHE_VARIABLE
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, Storage


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("local")
    return [build(folder / str(n), clustered(n, 8)) for n in (120, 130, 140)]


@pytest.fixture(params=["s3", "s3 without boto3", "memory"])
def url(
    request: pytest.FixtureRequest, server: FlakyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Return the URL of an empty place."""
    at_home(tmp_path, monkeypatch)
    if request.param == "memory":
        return f"memory://{uuid4().hex}/x"
    if request.param == "s3 without boto3":
        monkeypatch.setitem(sys.modules, "boto3", None)
    return server.url.replace("/work?", f"/{uuid4().hex}?")


@pytest.fixture
def s3_url(server: FlakyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    at_home(tmp_path, monkeypatch)
    return server.url.replace("/work?", f"/{uuid4().hex}?")


def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def files(index: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in index.iterdir() if path.name != "run.json"}


def assert_at(url: str, index: Path) -> None:
    there = fetch(url)
    assert json.loads(there.pop("run.json")) == {"seconds": {}}
    assert there == files(index)


class Killed(BaseException):
    pass


def kill_at(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failpoint(name: str) -> None:
        if name == place:
            raise Killed

    monkeypatch.setattr(url_output, "failpoint", failpoint)


def test_what_was_published_is_what_is_found(url: str, indexes: list[Path]) -> None:
    publish(indexes[0], url)
    assert_at(url, indexes[0])
    folder = url_output.data_folder(parse_manifest(indexes[0]).build_id)
    names = set(Storage(url).list())
    assert names == {"manifest.json"} | {
        f"{folder}/{name}" for name in {*files(indexes[0]), "run.json"} - {"manifest.json"}
    }


def test_the_manifest_is_put_last_and_on_a_condition(
    s3_url: str, server: FlakyServer, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[dict[str, Any]] = []
    answer = server._app

    def noting(environ: dict[str, Any], start: Any) -> Any:
        if environ["REQUEST_METHOD"] == "PUT" and "/building/" not in environ["PATH_INFO"]:
            puts.append(environ)
        return answer(environ, start)

    monkeypatch.setattr(server, "_app", noting)
    publish(indexes[0], s3_url)
    publish(indexes[1], s3_url, force=True)
    places = [put["PATH_INFO"].rpartition("/")[2] for put in puts]
    each = len(places) // 2
    assert places[each - 1] == places[-1] == "manifest.json"
    assert places.count("manifest.json") == 2
    assert puts[each - 1]["HTTP_IF_NONE_MATCH"] == "*"
    assert "HTTP_IF_MATCH" in puts[-1]
    for put in puts:  # S3 refuses a body that arrives with other bytes
        headers = " ".join(f"{name}={value}" for name, value in put.items() if name.startswith("HTTP_X_AMZ"))
        assert "checksum" in headers.lower()


def test_an_index_is_replaced_by_force_alone(url: str, indexes: list[Path]) -> None:
    publish(indexes[0], url)
    with pytest.raises(OutputExistsError, match=r"^out: \w+://.*/.* exists; add --force"):
        publish(indexes[1], url)
    assert_at(url, indexes[0])
    publish(indexes[1], url, force=True)
    assert_at(url, indexes[1])


def test_readers_of_a_replaced_index_keep_its_files_until_the_publish_after(
    url: str, indexes: list[Path]
) -> None:
    folders = [url_output.data_folder(parse_manifest(index).build_id) for index in indexes]
    for index in indexes:
        publish(index, url, force=True)
    there = {name.partition("/")[0] for name in Storage(url).list()}
    assert there == {"manifest.json", *folders[1:]}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_killed_publish_shows_nothing_and_the_next_one_cleans_up(
    url: str, indexes: list[Path], is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_first:
        publish(indexes[0], url)
    with monkeypatch.context() as patch:
        kill_at("publish-copied", patch)
        with pytest.raises(Killed):
            publish(indexes[1], url, force=True)
    left = url_output.data_folder(parse_manifest(indexes[1]).build_id)
    assert any(name.startswith(left) for name in Storage(url).list())
    if is_first:
        with pytest.raises(InputError, match=r"no manifest.json there, so it is not an index"):
            fetch(url)
    else:
        assert_at(url, indexes[0])
    publish(indexes[2], url, force=not is_first)
    assert_at(url, indexes[2])
    assert not any(name.startswith(left) for name in Storage(url).list())


@settings(max_examples=15, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["", "publish-copied", "publish-done"])), max_size=6
    )
)
def test_any_sequence_of_publishes_leaves_the_last_that_was_not_killed(
    indexes: list[Path], tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("sequence")
    url, present = f"memory://{folder.name}/x", None
    with pytest.MonkeyPatch.context() as patch:
        at_home(folder, patch)
        for number, killed in steps:
            kill_at(killed, patch)
            try:
                publish(indexes[number], url, force=True)
            except Killed:
                present = number if killed == "publish-done" else present
            else:
                present = number
            if present is None:
                with pytest.raises(InputError):
                    fetch(url)
            else:
                assert_at(url, indexes[present])


def test_two_builds_for_one_url_are_told(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with url_output.url_output(url, False):
        with pytest.raises(ConfigError, match=r"^out: another job is writing \w+://"):
            publish(tmp_path, url)
        monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "another machine"))
        with pytest.raises(ConfigError, match=r"^out: \w+://.* is in use by another build") as caught:
            publish(tmp_path, url)
        assert "--out" in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("was_there", [True, False])
def test_what_was_published_meanwhile_stays(
    url: str, indexes: list[Path], was_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease did not help: a machine slept longer than it lasts."""
    monkeypatch.setattr(url_output.Lease, "take", lambda self: None)
    monkeypatch.setattr(url_output.Lease, "check", lambda self: None)
    monkeypatch.setattr(url_output.fcntl, "flock", lambda *_: None)
    if was_there:
        publish(indexes[0], url)
    with url_output.url_output(url, force=True) as slow:
        publish(indexes[1], url, force=True)
        with pytest.raises(ConfigError, match=r"another build was published there meanwhile, and stays"):
            slow.publish(indexes[2], parse_manifest(indexes[2]), {}, lambda files: None)
    assert_at(url, indexes[1])


@pytest.mark.parametrize("is_new", [True, False])
def test_s3_itself_refuses_the_slower_of_two_puts(
    s3_url: str, server: FlakyServer, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(s3_url)
    seen = None if is_new else b"before"
    if not is_new:
        storage.conditional("manifest.json").put_if_same(None, b"before")
    answer, puts, reads = server._app, [], itertools.count()

    def put_another(environ: dict[str, Any], start: Any) -> Any:
        """Answer, and let another process put its manifest between our first read and our put."""
        found = answer(environ, start)
        if environ["REQUEST_METHOD"] == "PUT":
            puts.append(environ.get("HTTP_IF_MATCH") or environ.get("HTTP_IF_NONE_MATCH"))
        elif environ["REQUEST_METHOD"] == "GET" and next(reads) == 0:
            with storage.filesystem.open_output_stream(f"{locate(s3_url).path}/manifest.json") as out:
                out.write(b"of another")
        return found

    monkeypatch.setattr(server, "_app", put_another)
    with pytest.raises(conditional.Replaced):
        storage.conditional("manifest.json").put_if_same(seen, b"ours")
    assert len(puts) == 2
    assert puts[0] is None
    assert puts[1] is not None
    assert storage.read("manifest.json") == b"of another"


def test_a_server_that_knows_no_conditions_gets_the_manifest_without(
    s3_url: str, server: FlakyServer, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = server._app

    def refuse_conditions(environ: dict[str, Any], start: Any) -> Any:
        if "HTTP_IF_NONE_MATCH" not in environ:
            return answer(environ, start)
        environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        body = b"<?xml version='1.0'?><Error><Code>NotImplemented</Code><Message>no</Message></Error>"
        start(
            "501 Not Implemented", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
        )
        return [body]

    monkeypatch.setattr(server, "_app", refuse_conditions)
    publish(indexes[0], s3_url)
    assert_at(s3_url, indexes[0])


def test_a_manifest_that_is_refused_without_its_condition_too_is_told(
    s3_url: str, server: FlakyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, answer = Storage(s3_url).conditional("manifest.json"), server._app

    def refuse(environ: dict[str, Any], start: Any) -> Any:
        if environ["REQUEST_METHOD"] != "PUT":
            return answer(environ, start)
        knows = "HTTP_IF_NONE_MATCH" not in environ
        refused = refusing("AccessDenied") if knows else refusing("NotImplemented", "501 Not Implemented")
        return refused(environ, start)

    monkeypatch.setattr(server, "_app", refuse)
    with pytest.raises(StorageError, match=r"^writing s3://bucket/.*AccessDenied.*; allow listing, reading,"):
        manifest.put_if_same(None, b"ours")


def test_a_bucket_that_is_gone_when_the_manifest_is_put_is_told(s3_url: str) -> None:
    manifest = Storage(s3_url.replace("@bucket/", "@nobucket/")).conditional("manifest.json")
    with pytest.raises(StorageError, match=r"^writing s3://nobucket/.*NoSuchBucket.*; create the bucket, or"):
        manifest.put_if_same(None, b"ours")


def test_an_answer_that_stops_halfway_is_told(
    s3_url: str, server: FlakyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditional, "READ_SECONDS", 0.1)
    monkeypatch.setattr(retry, "TRIES", 2)
    manifest, requests = Storage(s3_url).conditional("manifest.json"), []

    def stop(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        requests.append(environ["REQUEST_METHOD"])
        start("200 OK", [("Content-Length", "5"), ("ETag", '"x"')])
        yield b"be"
        time.sleep(0.3)

    monkeypatch.setattr(server, "_app", stop)
    with pytest.raises(StorageError, match=r"^reading s3://bucket/.*: failed 2 times \(.*[Rr]ead timeout"):
        manifest.read()
    assert requests == ["GET", "GET"]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        (
            "AWS_EC2_METADATA_DISABLED",
            "true",
            r"\(Unable to locate credentials\); give credentials that are valid",
        ),
        (
            "AWS_PROFILE",
            "nowhere",
            r"\(The config profile \(nowhere\) could not be found\); correct .* AWS_PROFILE",
        ),
    ],
)
def test_what_boto3_lacks_is_told_before_the_build(
    s3_url: str, variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv(variable, value)
    url = s3_url.replace("key:secret@", "") if variable != "AWS_PROFILE" else s3_url
    with (
        pytest.raises(StorageError, match=rf"s3://bucket/.*{words}"),
        url_output.url_output(url, False),
    ):
        pytest.fail("the build begins")
    assert Storage(s3_url).list() == {}


def test_a_put_whose_answer_was_lost_has_arrived(url: str) -> None:
    storage = Storage(url)
    storage.conditional("manifest.json").put_if_same(None, b"ours")
    storage.conditional("manifest.json").put_if_same(None, b"ours")
    assert storage.read("manifest.json") == b"ours"


@pytest.mark.parametrize("name", ["photos/cat.jpg", "building/plan.pdf", "manifest.json"])
def test_objects_of_others_are_left_alone(url: str, indexes: list[Path], name: str) -> None:
    storage = Storage(url)
    storage.put(indexes[0] / "run.json", name)
    with pytest.raises(OutputExistsError, match=rf"holds other objects \({name}\)"):
        publish(indexes[0], url, force=True)
    assert set(storage.list()) == {name}


def test_files_that_are_there_as_they_are_to_be_are_not_put_again(
    url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(indexes[0], url)
    folder = next(name.partition("/")[0] for name in Storage(url).list() if name.startswith("data-"))
    Storage(url).put(indexes[1] / "manifest.json", f"{folder}/graph.imx")
    put, names = Storage.put, []

    def counted(self: Storage, local: Path, name: str) -> None:
        names.append(name)
        put(self, local, name)

    monkeypatch.setattr(Storage, "put", counted)
    publish(indexes[0], url, force=True)
    assert names == [f"{folder}/graph.imx", f"{folder}/run.json"]
    assert_at(url, indexes[0])


def test_a_file_that_arrived_short_is_found_before_the_manifest_is_put(
    url: str, indexes: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put = Storage.put

    def shortened(self: Storage, local: Path, name: str) -> None:
        short = tmp_path / "short"
        short.write_bytes(local.read_bytes()[: -1 if name.endswith("graph.imx") else None])
        put(self, short, name)

    monkeypatch.setattr(Storage, "put", shortened)
    with pytest.raises(
        StorageError, match=r"graph.imx: expected [\d,]+ bytes, got \d+; nothing was published"
    ):
        publish(indexes[0], url)
    assert "manifest.json" not in Storage(url).list()


def test_storage_that_fails_one_request_in_ten_delays_a_publish(
    s3_url: str, server: FlakyServer, indexes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "failing", lambda request: request % 10 == 0)
    before = server.failed
    publish(indexes[0], s3_url)
    assert_at(s3_url, indexes[0])
    assert server.failed > before


def test_a_missing_bucket_is_named_before_the_build(s3_url: str) -> None:
    url = s3_url.replace("@bucket/", "@nobucket/")
    with (
        pytest.raises(
            StorageError, match=r"s3://nobucket/.*(NO_SUCH_BUCKET|NoSuchBucket).*; create the bucket, or"
        ) as caught,
        url_output.url_output(url, False),
    ):
        pytest.fail("the build begins")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("AccessDenied", "allow listing, reading, writing and deleting there, or give credentials"),
        ("InvalidAccessKeyId", "give credentials that are valid there, by AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", "give credentials that are valid there, by AWS_ACCESS_KEY_ID"),
    ],
)
def test_missing_rights_say_what_to_do(
    s3_url: str, server: FlakyServer, code: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_app", refusing(code))
    with pytest.raises(StorageError, match=r"s3://bucket/") as caught:
        publish(Path("x"), s3_url)
    assert words in str(caught.value)


def test_a_build_for_a_url_works_in_the_current_directory(
    url: str, indexes: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    build(url, clustered(120, 8))
    there = fetch(url)
    assert json.loads(there.pop("run.json"))["workers"] == 1
    assert there == files(indexes[0])
    assert list(Path().iterdir()) == []
    assert not fsspec.filesystem("memory").exists("/s3:")


@pytest.mark.kill
def test_a_build_killed_before_its_manifest_shows_nothing_and_goes_on(
    s3_url: str, indexes: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.save("v.npy", clustered(120, 8))
    words = ("build", "--input", "v.npy", "--out", s3_url, "-R", 12, "-L", 30, "--pq-bytes", 8)
    killed = run_command(*words, failpoint="publish-copied")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with pytest.raises(InputError):
        fetch(s3_url)
    with monkeypatch.context() as patch:
        patch.setenv(MIRROR_VARIABLE, str(tmp_path / "another machine"))
        with pytest.raises(ConfigError, match=r"is in use by another build"):
            publish(indexes[1], s3_url)
    done = run_command(*words)
    assert done.returncode == 0, done.stderr
    there = fetch(s3_url)
    del there["run.json"]
    assert there == files(indexes[0])
    assert sorted(path.name for path in Path().iterdir()) == ["v.npy"]
