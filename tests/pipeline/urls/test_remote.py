"""Builds whose work folder is on object storage that fails one request in ten."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.indexes.builds import build, clustered, data_files, flip
from tests.support.progress import Stages
from tests.support.s3 import FlakyServer, flaky_server

from indexmill.formats.errors import ConfigError, StorageError
from indexmill.formats.sources.filesystem import locate
from indexmill.formats.urls import retry
from indexmill.pipeline.kinds.graph import recipe
from indexmill.pipeline.urls.lease import FOLDER
from indexmill.pipeline.urls.remote import RemoteStore
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, Storage, open_storage

VECTORS = clustered(900, 8)


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyServer]:
    with flaky_server() as running:
        running.failing = lambda request: request % 50 < 5  # several in a row
        yield running


@pytest.fixture
def url(server: FlakyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    on_machine("one", tmp_path, monkeypatch)
    return server.url.replace("/work?", f"/{uuid4().hex}?")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return data_files(build(tmp_path_factory.mktemp("local") / "ix", VECTORS, shard_vectors=400))


def on_machine(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirror storage in a place of its own, as another machine would."""
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirrors" / name))
    open_storage.cache_clear()


def names(url: str, tmp_path: Path) -> set[str]:
    return {name.split("-")[0] for name in Storage(url, str(tmp_path / "look")).list()}


def test_the_bytes_are_those_of_a_local_build(
    server: FlakyServer, url: str, tmp_path: Path, local: dict[str, bytes]
) -> None:
    before = server.failed
    index = build(tmp_path / "ix", VECTORS, shard_vectors=400, work=url)
    assert data_files(index) == local
    assert server.failed > before
    kept = names(url, tmp_path)
    assert {"link", "emit", "order"} <= kept
    assert not kept & {"assign", "build", "unite", "pack"}  # temporary stages go when they have been read


def test_another_machine_goes_on_where_the_first_one_stopped(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recipe.order, "order_task", stop)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "ix", VECTORS, work=url)
    on_machine("two", tmp_path, monkeypatch)
    stages = Stages()
    index = build(tmp_path / "ix", VECTORS, work=url, progress=stages)
    assert data_files(index) == data_files(build(tmp_path / "local", VECTORS))
    assert stages.made == ["order", "entries", "encode", "navigation", "pack", "emit", "certify", "publish"]


def test_a_machine_that_ran_tasks_of_a_build_may_run_the_next_one(url: str) -> None:
    at = open_storage(url)
    (at.mirror / "assign-1").mkdir()
    (at.mirror / "assign-1/000000.chunk").write_bytes(b"of a task")
    store = RemoteStore(at)
    assert [name.partition("/")[0] for name in at.list()] == [FOLDER]  # it holds the work folder
    assert (at.mirror / "assign-1/000000.chunk").read_bytes() == b"of a task"
    store.close()
    assert at.list() == {}


def test_two_builds_on_one_url_are_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RemoteStore(open_storage(url))
    on_machine("two", tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=r"^work: s3://bucket/.* is in use by another build, on ") as caught:
        RemoteStore(open_storage(url))
    assert "secret" not in str(caught.value)
    store.close()
    RemoteStore(open_storage(url)).close()


def test_a_stage_of_which_a_file_is_gone_is_not_finished(url: str) -> None:
    at = open_storage(url)
    store = RemoteStore(at)
    path = store.path("assign", "0" * 64)
    store.begin(path, resume=True)
    for name in "ab":
        run, *arguments = store.file_task(write_name, (), path / name)
        run(*arguments)
    assert store.files(path) == {"a", "b"}
    at.filesystem.delete_file(f"{locate(url).path}/{path.name}/a")
    shutil.rmtree(path)  # another machine wrote them
    with pytest.raises(StorageError, match=r"assign-0+/a: gone or cut"):
        store.finish(path)
    assert store.files(path) == {"b"}
    assert not store.is_done(path)
    store.close()


def write_name(out: str) -> None:
    Path(out).write_text(Path(out).name)


def test_the_space_taken_is_known_without_a_call(url: str, server: FlakyServer) -> None:
    store = RemoteStore(open_storage(url))
    path = store.path("assign", "0" * 64)
    store.begin(path, resume=True)
    run, *arguments = store.file_task(write_name, (), path / "a")
    run(*arguments)
    used = store.used_bytes()
    before = server.requests
    assert store.known_bytes() == used > 0
    assert server.requests == before
    store.close()


def test_a_chunk_file_damaged_on_storage_is_made_again(
    url: str, tmp_path: Path, local: dict[str, bytes]
) -> None:
    damaged: list[Path] = []

    def then(stage: str) -> None:
        if stage == "assign" and not damaged:
            at = open_storage(url)
            damaged.append(min(at.mirror.glob("assign-*/*.chunk")))
            flip(damaged[0])
            at.push(damaged[0].relative_to(at.mirror).as_posix())

    index = build(tmp_path / "ix", VECTORS, shard_vectors=400, work=url, progress=Stages(then))
    assert data_files(index) == local
    assert damaged
