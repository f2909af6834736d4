"""Builds through a running service: results on object storage, a service that is killed, jobs that are removed."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.support.builds import OUT, answer_to, ids_of, put_objects, request, rows_of
from tests.support.progress import Stages
from tests.support.s3 import flaky_server
from tests.support.service import is_alive, running, wait_for

from indexmill.formats.sources.source import VectorSource
from indexmill.formats.urls import retry
from indexmill.jobs.devices.machine import REPOSITORY
from indexmill.jobs.service import builder
from indexmill.jobs.service.app import Service
from indexmill.jobs.service.request import BuildRequest
from indexmill.jobs.service.runner import Settings
from indexmill.pipeline.hnsw import run
from indexmill.pipeline.hnsw.run import build_hnsw
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.kinds.rehearsal import Rehearsal
from indexmill.pipeline.mill.peak import child_pids
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.urls.storage import Storage

#: Command of the process of a build.
BUILDER = [sys.executable, "-m", "indexmill.jobs.service.builder"]


@contextmanager
def inside(tmp_path: Path) -> Iterator[TestClient]:
    """A service in this process, whose builds have theirs."""
    settings = Settings(f"file://{tmp_path}/{{container}}", tmp_path / "work", 1 << 30, 2)
    (tmp_path / "work").mkdir(exist_ok=True)
    with TestClient(Service(settings).app) as client:
        yield client


def left(work: Path) -> list[Path]:
    """Files of builds that are in progress."""
    return list((work / "builds").rglob("*"))


def test_opensearchs_requests_are_served_from_s3(tmp_path: Path) -> None:
    with flaky_server() as server:
        storage = Storage(server.url.replace("/work?", "?"), str(tmp_path / "mirror"))
        template = server.url.replace("bucket/work?", "{container}?")
        asked = request(container_name="bucket", data_type="half_float")
        put_objects(tmp_path / "local", asked)
        for name in (asked["vector_path"], asked["doc_id_path"]):
            storage.put(tmp_path / "local" / name, name)
        with running(tmp_path / "work", template) as (client, process):
            job_id = client.post("/_build", json=asked).json()["job_id"]
            assert answer_to(client, job_id) == {
                "task_status": "COMPLETED_INDEX_BUILD", "file_name": "uuid_field_seg.faiss", "error_message": None,
            }  # fmt: skip
            wait_for(
                lambda: not any((tmp_path / "work/builds").iterdir())
            )  # the result is told before they go
            assert 'indexmill_builds_total{result="completed"} 1.0' in client.get("/metrics").text
            assert "secret" not in "".join(path.read_text() for path in (tmp_path / "work/jobs").iterdir())
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 143
        path = storage.fetch(OUT)
        found: Any = faiss.read_index(str(path))
        rows = rows_of(asked)
        assert np.array_equal(found.search(rows[:50], 1)[1][:, 0], ids_of(asked)[:50])
        assert faiss.downcast_index(found.index).hnsw.max_level > 0


@pytest.mark.kill
def test_a_service_killed_while_it_builds_goes_on_and_writes_the_same_bytes(tmp_path: Path) -> None:
    asked = request(doc_count=18_000, dimension=32)
    put_objects(tmp_path / "blobs", asked)
    storage = f"file://{tmp_path}/{{container}}"
    with running(tmp_path / "work", storage) as (client, process):
        job_id = client.post("/_build", json=asked).json()["job_id"]
        stages = tmp_path / "work/builds" / job_id / "build/stages"
        end = time.monotonic() + 200
        while not list(stages.glob("build-*")):  # the graph is begun
            assert time.monotonic() < end
            time.sleep(0.01)
        process.kill()
        process.wait()
    assert not (tmp_path / "blobs" / OUT).exists()
    kept = {path: path.stat().st_ino for path in stages.glob("ingest-*/vectors.npy")}
    assert kept
    with running(tmp_path / "work", storage) as (client, _):
        assert client.get(f"/_status/{job_id}").json()["task_status"] == "RUNNING_INDEX_BUILD"
        assert client.post("/_build", json=asked).json()["job_id"] == job_id
        while not list(stages.glob("levels-*")):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert {path: path.stat().st_ino for path in kept} == kept  # it did not begin anew
        assert answer_to(client, job_id)["task_status"] == "COMPLETED_INDEX_BUILD"
    resumed = (tmp_path / "blobs" / OUT).read_bytes()
    (tmp_path / "blobs" / OUT).unlink()
    with running(tmp_path / "other", storage) as (client, _):
        client.post("/_build", json=asked)
        assert answer_to(client, job_id)["task_status"] == "COMPLETED_INDEX_BUILD"
    assert (tmp_path / "blobs" / OUT).read_bytes() == resumed


@pytest.mark.kill
def test_a_build_whose_process_was_killed_fails_and_the_next_one_is_built(tmp_path: Path) -> None:
    asked = request()
    put_objects(tmp_path / "blobs", asked)
    with running(
        tmp_path / "work", f"file://{tmp_path}/{{container}}", INDEXMILL_FAILPOINT="levels-begun"
    ) as (client, _):
        status = answer_to(client, client.post("/_build", json=asked).json()["job_id"])
        assert status["task_status"] == "FAILED_INDEX_BUILD"
        assert "the process of the build ended by signal 9" in status["error_message"]
        other = client.post("/_build", json=request(vector_path="base/none.knnvec"))
        assert "not found" in answer_to(client, other.json()["job_id"])["error_message"]
        wait_for(lambda: 'indexmill_builds_total{result="failed"} 2.0' in client.get("/metrics").text)
    assert left(tmp_path / "work") == []
    assert not (tmp_path / "blobs" / OUT).exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [({"doc_count": 1999}, "expected 1,999 vectors"), ({"dimension": 15}, "of 15 x 4 bytes")],
)
def test_a_request_that_lies_fails_and_builds_nothing(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    put_objects(tmp_path / "blobs", request())
    with inside(tmp_path) as client:
        status = answer_to(client, client.post("/_build", json=request(**change)).json()["job_id"])
    assert (status["task_status"], status["file_name"]) == ("FAILED_INDEX_BUILD", None)
    assert said in status["error_message"]
    assert left(tmp_path / "work") == []
    assert not list((tmp_path / "blobs").rglob("*.faiss"))


def test_a_job_removed_while_it_is_built_ends_at_once(tmp_path: Path) -> None:
    asked = request(doc_count=20_000, dimension=128, doc_id_path="base/many.knndid")
    put_objects(tmp_path / "blobs", asked)
    put_objects(tmp_path / "blobs", request(vector_path="base/next.knnvec"))
    with inside(tmp_path) as client:
        job_id = client.post("/_build", json=asked).json()["job_id"]
        next_id = client.post("/_build", json=request(vector_path="base/next.knnvec")).json()["job_id"]
        end = time.monotonic() + 100
        while not list((tmp_path / "work/builds").glob(f"{job_id}/build/stages/ingest-*")):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert client.delete(f"/_build/{job_id}").status_code == 200
        assert client.get(f"/_status/{job_id}").status_code == 404
        assert answer_to(client, next_id)["task_status"] == "COMPLETED_INDEX_BUILD"
    assert left(tmp_path / "work") == []
    assert not (tmp_path / "blobs" / OUT).exists()


def test_a_job_removed_while_it_is_built_and_asked_for_again_is_built_anew(tmp_path: Path) -> None:
    asked = request(doc_count=20_000, dimension=128)
    put_objects(tmp_path / "blobs", asked)
    stages = f"{BuildRequest.model_validate(asked).job_id}/build/stages"
    with inside(tmp_path) as client:
        job_id = client.post("/_build", json=asked).json()["job_id"]
        wait_for(lambda: list((tmp_path / "work/builds").glob(f"{stages}/ingest-*")))
        assert client.delete(f"/_build/{job_id}").status_code == 200
        assert client.post("/_build", json=asked).json()["job_id"] == job_id
        assert answer_to(client, job_id)["task_status"] == "COMPLETED_INDEX_BUILD"
    assert left(tmp_path / "work") == []
    assert faiss.read_index(str(tmp_path / "blobs" / OUT)).ntotal == 20_000


def test_a_build_waits_for_the_end_of_an_earlier_process_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    monkeypatch.setattr(builder, "build_hnsw", lambda job, place: begun.set())
    task = builder.Task(
        request=BuildRequest.model_validate(request()), storage=f"file://{tmp_path}/{{container}}", work=tmp_path,
        memory=1 << 30, workers=1,
    )  # fmt: skip
    later = threading.Thread(target=builder.build, args=[task])
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        later.start()
        assert not begun.wait(0.2)
    later.join(10)
    assert begun.is_set()


def test_objects_deleted_under_a_waiting_job_fail_it(tmp_path: Path) -> None:
    put_objects(tmp_path / "blobs", request())
    (tmp_path / "blobs" / request()["doc_id_path"]).unlink()
    with inside(tmp_path) as client:
        status = answer_to(client, client.post("/_build", json=request()).json()["job_id"])
        assert "uuid_field_seg.knndid: not found" in status["error_message"]
        put_objects(tmp_path / "blobs", request())
        again = client.post("/_build", json=request()).json()["job_id"]  # a failed job may be tried again
        assert answer_to(client, again)["task_status"] == "COMPLETED_INDEX_BUILD"


def test_storage_that_is_away_is_the_error_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "TRIES", 2)
    with flaky_server() as server:
        server.failing = lambda number: True
        task = builder.Task(
            request=BuildRequest.model_validate(request(container_name="bucket")),
            storage=server.url.replace("bucket/work?", "{container}?"), work=tmp_path / "work", memory=1 << 30,
            workers=1,
        )  # fmt: skip
        answer = builder.build(task)
    error = answer.error
    assert error is not None
    assert answer.resumable
    assert "s3://bucket/base/path/uuid_field_seg.knnvec: failed 2 times" in error
    assert "secret" not in error


def test_a_job_that_storage_left_in_its_midst_resumes_when_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "TRIES", 2)
    asked = request(container_name="bucket", vector_path="midst/a.knnvec", doc_id_path="midst/a.knndid")
    put_objects(tmp_path / "local", asked)
    with flaky_server() as server:
        storage = Storage(server.url.replace("/work?", "?"), str(tmp_path / "mirror"))
        for name in (asked["vector_path"], asked["doc_id_path"]):
            storage.put(tmp_path / "local" / name, name)
        task = builder.Task(
            request=BuildRequest.model_validate(asked), storage=server.url.replace("bucket/work?", "{container}?"),
            work=tmp_path / "work", memory=1 << 30, workers=1,
        )  # fmt: skip
        stages = tmp_path / "work/build/stages"
        server.failing = lambda number: bool(list(stages.glob("levels-*")))
        answer = builder.build(task)
        assert answer.error is not None
        assert answer.resumable
        assert "midst/a.knndid: failed 2 times" in answer.error
        server.failing = lambda number: False
        made = Stages()
        monkeypatch.setattr(builder, "build_hnsw", partial(build_hnsw, progress=made))
        assert builder.build(task) == builder.Answer(error=None)
        assert made.made == ["ids", "file"]
        found = faiss.read_index(str(storage.fetch("midst/a.faiss")))
    assert found.ntotal == asked["doc_count"]


def test_a_builder_whose_service_is_gone_ends(tmp_path: Path) -> None:
    asked = request(doc_count=20_000, dimension=128)
    put_objects(tmp_path / "blobs", asked)
    task = {
        "request": asked, "storage": f"file://{tmp_path}/{{container}}", "work": str(tmp_path / "work"),
        "memory": 1 << 30, "workers": 1,
    }  # fmt: skip
    with subprocess.Popen(
        BUILDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.close()
        assert process.wait(60) == -signal.SIGKILL
    assert not (tmp_path / "blobs" / OUT).exists()


@pytest.mark.kill
@pytest.mark.parametrize("is_building", [False, True])
@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_service(tmp_path: Path, way: signal.Signals, is_building: bool) -> None:
    asked = request(doc_count=20_000, dimension=128)
    put_objects(tmp_path / "blobs", asked)
    with running(tmp_path / "work", f"file://{tmp_path}/{{container}}") as (client, process):
        wait_for(lambda: child_pids(process.pid))
        (waiting,) = child_pids(process.pid)
        if is_building:
            client.post("/_build", json=asked)
            wait_for(lambda: list((tmp_path / "work/builds").glob("*/build/stages/ingest-*")))
        assert child_pids(process.pid) == [waiting]  # it is the one that builds
        assert is_alive(waiting)
        process.send_signal(way)
        process.wait(30)
        wait_for(lambda: not is_alive(waiting))
    assert not (tmp_path / "blobs" / OUT).exists()


def test_a_builder_that_waits_ends_with_its_service() -> None:
    done = subprocess.run(
        BUILDER, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, b"", b"")


@pytest.mark.kill
def test_a_builder_that_compiles_while_it_waits_ends_with_its_service(tmp_path: Path) -> None:
    nothing_cached = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        BUILDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=nothing_cached
    ) as process:
        assert process.stdin is not None
        wait_for(lambda: child_pids(process.pid))
        (compiling,) = child_pids(process.pid)
        process.stdin.close()
        assert process.wait(60) == -signal.SIGKILL
        wait_for(lambda: not is_alive(compiling))


def rehearsed(monkeypatch: pytest.MonkeyPatch) -> list[Rehearsal]:
    """The tiny builds that are asked for from now on; none is made."""
    asked: list[Rehearsal] = []

    def ask(spec: BuildSpec, source: VectorSource, progress: Progress) -> None:
        asked.extend(kind_of(spec.parameters).size().rehearsals(spec, source))

    monkeypatch.setattr(run, "compile_kernels", ask)
    return asked


def test_a_builder_that_waits_compiles_what_large_jobs_of_floats_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = rehearsed(monkeypatch)
    builder.prepare(lambda: True)
    needed = rehearsed(monkeypatch)
    for space in ("l2", "innerproduct"):
        numbers = {"m": 24, "ef_construction": 200}
        structure = {"space_type": space, "algorithm_parameters": numbers}
        asked = request(doc_count=3_000_000, dimension=768, index_parameters=structure)
        run.compile_for(BuildRequest.model_validate(asked).job("s3://{container}"), 64 << 30, 16)
    assert len(needed) == 4
    assert needed == prepared


def test_a_builder_that_has_a_task_compiles_for_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = rehearsed(monkeypatch)
    builder.prepare(lambda: not prepared)  # one comes while kernels of the first likely job are compiled
    assert {one.parameters["metric"] for one in prepared} == {"l2"}
    before = list(prepared)
    builder.prepare(lambda: False)
    assert prepared == before


def test_what_a_builder_cannot_prepare_is_left_to_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(*_: object, **__: object) -> None:
        asked.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(builder, "compile_for", refuse)
    builder.prepare(lambda: True)
    assert asked


def test_the_example_of_the_guide_is_built(tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs/guides/serve-builds.md").read_text()
    (code,) = re.findall(r"<<'END'\n(.*?)\nEND\n", guide, re.DOTALL)
    (body,) = re.findall(r"-d '(\{.*?\})'\n", guide, re.DOTALL)
    (tmp_path / "blobs/trial").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    with running(tmp_path / "builds", f"file://{tmp_path}/blobs/{{container}}") as (client, _):
        answer = client.post("/_build", content=body, headers={"Content-Type": "application/json"})
        told = json.dumps(answer_to(client, answer.json()["job_id"]), separators=(",", ":"))
    assert f"# {told}\n" in guide
    assert f'# {{"job_id":"{answer.json()["job_id"][:4]}..."}}\n' in guide
    assert faiss.read_index(str(tmp_path / "blobs/trial/seg.faiss")).ntotal == 10_000
