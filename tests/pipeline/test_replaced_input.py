"""Inputs that are replaced by others of their size while a build reads them: nothing is published, no stage is kept."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from pyarrow import fs
from tests.support.fsspec_clients import TaggingClient
from tests.support.progress import Stages
from tests.support.s3 import FlakyServer, flaky_server

from indexmill.formats.errors import InputError
from indexmill.formats.sources.source import array_source, open_queries, open_source
from indexmill.formats.urls import retry
from indexmill.pipeline.append.run import run_append
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.mill.inputs import ObjectWatch
from indexmill.pipeline.mill.store import MARKER
from indexmill.pipeline.sets.build import run_build_or_set
from indexmill.pipeline.spec import BuildSpec, IvfParameters, LshParameters, Parameters

RNG = np.random.default_rng(3)
VECTORS, OTHERS = (RNG.standard_normal((600, 8)).astype(np.float32) for _ in range(2))
QUERIES, OTHER_QUERIES = (RNG.standard_normal((200, 8)).astype(np.float32) for _ in range(2))
Put = Callable[[Any], object]


class Acts(Stages):
    """A listener that calls `act` once when a place is reached: ``start STAGE`` or ``advance STAGE``."""

    def __init__(self, place: str, act: Callable[[], object]) -> None:
        super().__init__()
        self.place, self.act, self.acted = place, act, 0

    def start(self, stage: str, total: int, unit: str) -> None:
        super().start(stage, total, unit)
        self._reach("start")

    def advance(self, steps: int) -> None:
        self._reach("advance")

    def _reach(self, what: str) -> None:
        if f"{what} {self.at_work}" == self.place and not self.acted:
            self.acted += 1
            self.act()


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyServer]:
    with flaky_server() as running:
        yield running


def npy(vectors: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, vectors)
    return file.getvalue()


def version_of(vectors: Any) -> int:
    return int(abs(vectors[0, 0]) * 1e9)


def by_fsspec(url: str) -> Put:
    def put(vectors: Any) -> None:
        with fsspec.open(url, "wb") as file:
            file.write(npy(vectors))

    return put


def on_s3(server: FlakyServer, folder: Path) -> tuple[str, Put]:
    place, _, options = server.url.replace("/work?", "/replaced?").partition("?")
    url = f"{place}/{folder.name}.npy?{options}"
    filesystem, below = fs.FileSystem.from_uri(url)

    def put(vectors: Any) -> None:
        with filesystem.open_output_stream(below) as file:
            file.write(npy(vectors))

    return url, put


@pytest.fixture(params=["memory", "s3", "tagging", "local"])
def place(
    request: pytest.FixtureRequest, server: FlakyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Put]:
    """The address of a file, and what puts vectors there: of storage that tells a time, an ETag or a generation."""
    if request.param == "local":
        path = tmp_path / "v.npy"

        def write(vectors: Any) -> None:
            path.write_bytes(npy(vectors))
            os.utime(path, ns=(1, version_of(vectors)))

        return str(path), write
    if request.param != "s3":
        url = f"{request.param}://{tmp_path.name}/v.npy"
        put = by_fsspec(url)

        def counted(vectors: Any) -> None:
            put(vectors)
            told = {"created": None, "generation": version_of(vectors)}
            monkeypatch.setattr(TaggingClient, "told", told)

        return url, counted
    return on_s3(server, tmp_path)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "run.json"
    }


def ivf(address: str, out: Path, **more: Any) -> BuildSpec:
    parameters = IvfParameters.model_validate({"lists": 4, **more.pop("parameters", {})})
    return BuildSpec(input=[address], out=str(out), work=f"{out}.work", parameters=parameters, **more)


def refused(spec: BuildSpec, at: str, act: Callable[[], object], stage: str) -> str:
    """Build; return the error of an input that was replaced by `act`. Nothing is published, nor `stage` finished."""
    acts = Acts(at, act)
    with pytest.raises(InputError) as caught:
        run_build_or_set(spec, None, acts)
    assert acts.acted == 1
    assert not Path(spec.out).exists()
    assert not list(Path(f"{spec.out}.work").rglob(f"{stage}-*/{MARKER}"))
    return str(caught.value)


def test_an_input_that_is_replaced_between_its_hash_and_its_reading_is_refused(
    tmp_path: Path, place: tuple[str, Put]
) -> None:
    address, put = place
    put(VECTORS)
    spec = ivf(address, tmp_path / "index")
    said = refused(spec, "start ingest", lambda: put(OTHERS), "ingest")
    if "://" not in address:
        assert said.startswith(f"{address}: has changed since this build began: 19,328 bytes, changed at ")
        return
    shown = open_source(address).paths[0]
    assert said.startswith(f"{shown}: replaced while it was read: 19,328 bytes, version ")
    assert said.endswith(
        " now; nothing was published; run it again, and leave the file alone until it has ended"
    )
    assert "secret" not in said
    run_build_or_set(spec)
    run_build_or_set(ivf("array", tmp_path / "expected"), array_source(OTHERS))
    assert files(tmp_path / "index") == files(tmp_path / "expected")


@pytest.mark.parametrize(
    ("at", "stage"), [("start divide", "divide"), ("advance divide", "divide"), ("start draw", "draw")]
)
def test_a_set_of_an_input_that_is_replaced_is_refused(
    tmp_path: Path, place: tuple[str, Put], at: str, stage: str
) -> None:
    address, put = place
    put(VECTORS)
    codes = {"codec": "pq", "pq_bytes": 4}
    spec = ivf(address, tmp_path / "set", parts=2, parameters=codes)
    said = refused(spec, at, lambda: put(OTHERS), stage)
    assert "has changed since this build began" in said or "replaced while it was read" in said
    put(VECTORS)
    run_build_or_set(spec)
    run_build_or_set(ivf("array", tmp_path / "expected", parts=2, parameters=codes), array_source(VECTORS))
    assert files(tmp_path / "set") == files(tmp_path / "expected")
    assert not list(Path(f"{spec.out}.work").glob("input-*.json"))


@pytest.mark.parametrize("kind", ["graph", "ivf", "lsh"])
def test_vectors_of_an_append_that_are_replaced_are_refused(tmp_path: Path, kind: str) -> None:
    parameters = {
        "graph": Parameters.model_validate({"R": 8}),
        "ivf": IvfParameters.model_validate({"lists": 4}),
        "lsh": LshParameters(),
    }[kind]
    index = tmp_path / "index"
    run_build_or_set(BuildSpec(input=["array"], out=str(index), parameters=parameters), array_source(VECTORS))
    before = files(index)
    more = f"memory://{tmp_path.name}/more.npy"
    put = by_fsspec(more)
    put(QUERIES)
    acts = Acts("advance ingest", lambda: put(OTHER_QUERIES))
    with pytest.raises(InputError, match=f"{more}: replaced while it was read: .* nothing was published"):
        run_append(index, lambda names: open_source(more), RunOptions(), acts)
    assert acts.acted == 1
    assert files(index) == before


@pytest.mark.parametrize(
    ("parts", "at", "stage"), [(None, "start asked", "asked"), (2, "start divide", "divide")]
)
def test_a_sample_of_queries_that_is_replaced_is_refused(
    tmp_path: Path, parts: int | None, at: str, stage: str
) -> None:
    np.save(tmp_path / "v.npy", VECTORS)
    sample = f"memory://{tmp_path.name}/sample.npy"
    put = by_fsspec(sample)
    put(QUERIES)
    spec = BuildSpec(
        input=[str(tmp_path / "v.npy")], out=str(tmp_path / "index"), work=str(tmp_path / "index.work"), parts=parts,
        query_sample=sample, parameters=Parameters.model_validate({"R": 8}),
    )  # fmt: skip
    said = refused(spec, at, lambda: put(OTHER_QUERIES), stage)
    assert said.startswith(f"{sample}: replaced while it was read")


def test_a_file_without_tag_and_time_is_told_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaggingClient, "told", {"created": None})
    url = f"tagging://{tmp_path.name}/v.npy"
    put = by_fsspec(url)
    put(VECTORS)
    watch = ObjectWatch(open_source(url))
    put(OTHERS)
    watch.check()
    put(VECTORS[:300])
    with pytest.raises(
        InputError, match=f"{url}: replaced .*: 19,328 bytes before, 9,728 bytes now; nothing was"
    ):
        watch.check()
    TaggingClient.store.clear()
    with pytest.raises(InputError, match=f"{url}: replaced .*: 19,328 bytes before, absent now"):
        watch.check()


def test_a_store_that_fails_now_and_then_is_no_other_file(
    tmp_path: Path, server: FlakyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    url, put = on_s3(server, tmp_path)
    put(QUERIES)
    source = open_queries(url)
    server.failing = lambda request: request % 3 == 0
    try:
        ObjectWatch(source).check()
    finally:
        server.failing = lambda request: False
