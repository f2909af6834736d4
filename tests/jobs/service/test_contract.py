"""The contract of remote index builds: its documented requests, answers and error codes, one by one.

Builds themselves are in test_builds.py: here nothing waits for one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from tests.support.builds import REQUEST, put_objects, request
from tests.support.service import wait_for

from indexmill.jobs.devices.machine import REPOSITORY
from indexmill.jobs.service import app
from indexmill.jobs.service.app import MOST_BODY_BYTES, MOST_JUDGED, Service
from indexmill.jobs.service.queue import Limits
from indexmill.jobs.service.runner import Settings

TOKEN = "a token of some length"
RUNNING = {"task_status": "RUNNING_INDEX_BUILD", "file_name": None, "error_message": None}


def service(tmp_path: Path, token: str | None = None, **limits: Any) -> Service:
    settings = Settings(f"file://{tmp_path}/{{container}}", tmp_path / "work", 1 << 30, 1)
    return Service(settings, token, Limits(**limits))


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A service that answers and has no runner: its jobs stay as they are."""
    (tmp_path / "work").mkdir()
    return TestClient(service(tmp_path).app, raise_server_exceptions=False)


def waiting(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "work/jobs").glob("*.json"))


def posted(to: Service, bodies: list[dict[str, Any]], clients: int) -> list[httpx2.Response]:
    """Answers to builds that clients ask for side by side, each its share one after the other."""
    answers: list[httpx2.Response] = [httpx2.Response(0)] * len(bodies)

    async def ask(client: httpx2.AsyncClient, first: int) -> None:
        for place in range(first, len(bodies), clients):
            answers[place] = await client.post("/_build", json=bodies[place])

    async def ask_all() -> None:
        transport = httpx2.ASGITransport(app=to.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
            await asyncio.gather(*(ask(client, first) for first in range(clients)))

    asyncio.run(ask_all())
    return answers


def test_a_build_is_accepted_under_the_id_that_the_contracts_own_service_derives(client: TestClient) -> None:
    answer = client.post("/_build", json=REQUEST)
    named = f"{REQUEST['vector_path']}-{REQUEST['tenant_id']}"
    assert (answer.status_code, answer.json()) == (
        200,
        {"job_id": hashlib.sha256(named.encode()).hexdigest()},
    )
    status = client.get(f"/_status/{answer.json()['job_id']}")
    assert (status.status_code, status.json()) == (200, RUNNING)


#: The request on upstream's page API.md, which that service's own code refuses, too.
DOCUMENTED: dict[str, Any] = {
    "repository_type": "s3", "container_name": "VectorBucketName", "vector_path": "VectorBlobPath",
    "doc_id_path": "DocIdPath", "tenant_id": "UniqueClusterID", "dimension": 768, "doc_count": 1_000_000,
    "data_type": "fp32", "engine": "faiss",
    "index_parameters": {
        "space_type": "l2", "algorithm": "hnsw", "algorithm_parameters": {"ef_construction": 100, "m": 16},
    },
}  # fmt: skip


def test_the_request_of_upstreams_page_is_refused_by_the_fields_that_its_code_has_otherwise(
    client: TestClient,
) -> None:
    answer = client.post("/_build", json=DOCUMENTED)
    fields = [problem["field"] for problem in answer.json()["errors"]]
    assert (answer.status_code, fields) == (422, ["vector_path", "doc_id_path", "data_type"])
    as_in_the_code = {"vector_path": "a.knnvec", "doc_id_path": "a.knndid", "data_type": "float"}
    assert client.post("/_build", json=DOCUMENTED | as_in_the_code).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("data_type", value) for value in ("fp32", "fp16")),
        *(("engine", value) for value in ("nmslib", "lucene")),
        *(("index_parameters.space_type", value) for value in ("cosinesimil", "l1", "linf")),
        ("index_parameters.algorithm", "ivf"),
    ],
)
def test_values_of_upstreams_page_that_are_not_built_are_refused_and_stand_in_the_guide(
    client: TestClient, field: str, value: str
) -> None:
    first, _, inner = field.partition(".")
    answer = client.post("/_build", json=request(**{first: {inner: value} if inner else value}))
    assert (answer.status_code, [problem["field"] for problem in answer.json()["errors"]]) == (422, [field])
    guide = (REPOSITORY / "docs/guides/serve-builds.md").read_text()
    assert f"`{value}`" in guide.partition("## Requests")[2]


def test_what_the_contract_leaves_out_has_its_defaults(client: TestClient) -> None:
    required = ("container_name", "vector_path", "doc_id_path", "dimension", "doc_count")
    least = {name: REQUEST[name] for name in required}
    first = client.post("/_build", json=least)
    numbers = {"ef_construction": 100, "ef_search": 100, "m": 16}
    defaults = {
        "repository_type": "s3", "tenant_id": "", "data_type": "float", "engine": "faiss",
        "index_parameters": {"space_type": "l2", "algorithm": "hnsw", "algorithm_parameters": numbers},
        "skip_stored_vectors": False,
    }  # fmt: skip
    again = client.post("/_build", json=least | defaults)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()


@pytest.mark.parametrize("data_type", ["float", "half_float", "byte"])
@pytest.mark.parametrize("space", ["l2", "innerproduct"])
def test_every_type_and_space_is_accepted(client: TestClient, data_type: str, space: str) -> None:
    structure = {
        "space_type": space,
        "algorithm": "hnsw",
        "algorithm_parameters": {"m": 16, "later": [1, "a"]},
    }
    for skipped in (True, False):
        asked = request(
            data_type=data_type,
            index_parameters=structure,
            skip_stored_vectors=skipped,
            tenant_id=str(skipped),
        )
        assert client.post("/_build", json=asked).status_code == 200


def test_the_same_request_has_one_job_and_another_of_its_name_is_a_conflict(
    client: TestClient, tmp_path: Path
) -> None:
    ids = {client.post("/_build", json=REQUEST).json()["job_id"] for _ in range(3)}
    assert len(ids) == len(waiting(tmp_path)) == 1
    other = client.post("/_build", json=request(dimension=8))
    assert other.status_code == 409
    assert "asks for something else" in other.json()["detail"]
    assert client.post("/_build", json=request(dimension=8, tenant_id="other")).status_code == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"doc_count": 4}, "doc_count"),
        ({"doc_count": -1}, "doc_count"),
        ({"doc_count": 2**31}, "doc_count"),
        ({"doc_count": 10**400}, "doc_count"),
        ({"doc_count": 7.5}, "doc_count"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 16_001}, "dimension"),
        ({"data_type": "double"}, "data_type"),
        ({"engine": "lucene"}, "engine"),
        ({"repository_type": "azure"}, "repository_type"),
        ({"index_parameters": {"algorithm": "ivf"}}, "index_parameters.algorithm"),
        ({"index_parameters": {"space_type": "cosinesimil"}}, "index_parameters.space_type"),
        ({"index_parameters": {"algorithm_parameters": {"m": 1}}}, "index_parameters.algorithm_parameters.m"),
        (
            {"index_parameters": {"algorithm_parameters": {"m": 257}}},
            "index_parameters.algorithm_parameters.m",
        ),
        (
            {"index_parameters": {"algorithm_parameters": {"ef_search": 0}}},
            "index_parameters.algorithm_parameters.ef_search",
        ),
        ({"vector_path": "a.vec"}, "vector_path"),
        ({"vector_path": ".knnvec"}, "vector_path"),
        ({"vector_path": "../other/a.knnvec"}, "vector_path"),
        ({"vector_path": "a/../../b.knnvec"}, "vector_path"),
        ({"vector_path": "/etc/a.knnvec"}, "vector_path"),
        ({"vector_path": "a//b.knnvec"}, "vector_path"),
        ({"vector_path": "a\\..\\b.knnvec"}, "vector_path"),
        ({"vector_path": "a\x00.knnvec"}, "vector_path"),
        ({"vector_path": "a" * 1020 + ".knnvec"}, "vector_path"),
        ({"doc_id_path": "../ids.knndid"}, "doc_id_path"),
        ({"doc_id_path": ""}, "doc_id_path"),
        ({"doc_id_path": ".knndid"}, "doc_id_path"),
        ({"doc_id_path": "base/passwords"}, "doc_id_path"),
        ({"doc_id_path": "base/path/uuid_field_seg.knndid\n"}, "doc_id_path"),
        ({"doc_id_path": REQUEST["vector_path"]}, "doc_id_path"),
        ({"doc_id_path": "base/path/uuid_field_seg.faiss"}, "doc_id_path"),
        ({"container_name": "../blobs"}, "container_name"),
        ({"container_name": "blobs/../other"}, "container_name"),
        ({"container_name": "blobs?endpoint_override=elsewhere"}, "container_name"),
        ({"container_name": "key:secret@blobs"}, "container_name"),
        ({"container_name": ""}, "container_name"),
        ({"surprise": 1}, "surprise"),
        ({"data_type": "binary"}, ""),
        ({"index_parameters": {"space_type": "hamming"}}, ""),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_refused_with_its_field(
    client: TestClient, tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    answer = client.post("/_build", json=request(**change))
    assert answer.status_code == 422
    assert answer.json()["detail"] == "Validation Error"
    assert [problem["field"] for problem in answer.json()["errors"]] == [field]
    assert all(problem["message"] and problem["type"] for problem in answer.json()["errors"])
    assert waiting(tmp_path) == []


def test_a_name_that_a_directory_cannot_hold_while_it_is_written_is_refused(
    client: TestClient, tmp_path: Path
) -> None:
    longest = "a" * (255 - len(".faiss.0123456789abcdef.tmp"))
    assert client.post("/_build", json=request(vector_path=f"base/{longest}.knnvec")).status_code == 200
    answer = client.post("/_build", json=request(vector_path=f"base/{longest}é.knnvec"))
    assert answer.status_code == 422
    assert "has 257 bytes while it is written; expected at most 255; take a name" in answer.json()["detail"]
    settings = Settings("s3://{container}?region=a", tmp_path / "work", 1 << 30, 1)
    on_s3 = TestClient(Service(settings).app)
    assert on_s3.post("/_build", json=request(vector_path=f"base/{longest}é.knnvec")).status_code == 200


@pytest.mark.parametrize(
    "missing", ["container_name", "vector_path", "doc_id_path", "dimension", "doc_count"]
)
def test_a_field_that_is_missing_is_named(client: TestClient, missing: str) -> None:
    answer = client.post("/_build", json={name: value for name, value in REQUEST.items() if name != missing})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, missing)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 5000, json.dumps(REQUEST).encode()[:-1]])
def test_a_body_that_is_no_json_is_a_bad_request(client: TestClient, body: bytes) -> None:
    answer = client.post("/_build", content=body)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("body: ")


@pytest.mark.parametrize("body", [b"[]", b"null", b"7", b'"text"'])
def test_json_that_is_no_object_is_refused(client: TestClient, body: bytes) -> None:
    assert client.post("/_build", content=body).status_code == 422


def test_a_body_without_end_is_cut_off(client: TestClient) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 100 * MOST_BODY_BYTES:
            sent += 1 << 12
            yield b" " * (1 << 12)

    assert client.post("/_build", content=endless()).status_code == 400


@pytest.mark.parametrize(
    ("free", "said"), [(10**13, "give at least"), (10**7, "bytes there, 10,000,000 are free; make room")]
)
def test_what_does_not_fit_memory_or_disk_is_refused_with_507(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: str
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))
    answer = client.post("/_build", json=request(doc_count=10**8, dimension=1, data_type="byte"))
    assert answer.status_code == 507
    assert said in answer.json()["detail"]
    assert waiting(tmp_path) == []


def test_requests_that_take_long_to_judge_keep_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    busy = service(tmp_path)
    go_on = threading.Event()
    monkeypatch.setattr("indexmill.jobs.service.app.check_fits", lambda *_: go_on.wait(60))
    bodies = [request(vector_path=f"base/{number}.knnvec") for number in range(60)]

    async def ask() -> tuple[list[httpx2.Response], list[int]]:
        transport = httpx2.ASGITransport(app=busy.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
            posts = [asyncio.create_task(client.post("/_build", json=body)) for body in bodies]
            while sum(post.done() for post in posts) < len(posts) - MOST_JUDGED:
                await asyncio.sleep(0.01)
            others = [await client.get(f"/_status/{'0' * 64}"), await client.delete("/_build/none")]
            assert sum(post.done() for post in posts) == len(posts) - MOST_JUDGED
            go_on.set()
            return await asyncio.gather(*posts), [answer.status_code for answer in others]

    answers, others = asyncio.run(asyncio.wait_for(ask(), 60))
    assert others == [404, 404]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(answers) - len(refused) == MOST_JUDGED == len(waiting(tmp_path))
    assert {(answer.status_code, answer.headers["Retry-After"]) for answer in refused} == {(429, "30")}
    again = posted(busy, [request(tenant_id="later")], clients=1)  # the places are free again
    assert [answer.status_code for answer in again] == [200]


def test_a_job_that_is_not_there_is_not_found(client: TestClient) -> None:
    for job_id in ("nonexistent_job", "0" * 64, "..%2f..%2fetc%2fpasswd"):
        answer = client.get(f"/_status/{job_id}")
        assert answer.status_code == 404
    assert client.get("/_status/nonexistent_job").json() == {"detail": "Job not found"}
    assert client.delete("/_build/nonexistent_job").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/_build", {"POST"}),
        ("PUT", "/_build", {"POST"}),
        ("OPTIONS", "/_build", {"POST"}),
        ("GET", "/_build/a", {"DELETE"}),
        ("POST", "/_status/a", {"GET", "HEAD"}),
        ("DELETE", "/_status/a", {"GET", "HEAD"}),
        ("POST", "/_heart_beat", {"GET", "HEAD"}),
        ("POST", "/health", {"GET", "HEAD"}),
        ("PATCH", "/metrics", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_refused_with_the_right_ones(
    client: TestClient, tmp_path: Path, method: str, path: str, allowed: set[str]
) -> None:
    answer = client.request(method, path, json=REQUEST)
    assert (answer.status_code, set(answer.json())) == (405, {"detail"})
    assert set(answer.headers["Allow"].split(", ")) == allowed
    assert waiting(tmp_path) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/elsewhere"),
        ("GET", "/_status"),
        ("POST", "/_build/"),  # not redirected to a host that the client names
        ("GET", "/health/"),
        ("GET", "/_status/a/"),
        ("DELETE", "/_build/a/b"),
    ],
)
def test_an_unknown_path_is_not_found(client: TestClient, tmp_path: Path, method: str, path: str) -> None:
    answer = client.request(method, path, json=REQUEST, follow_redirects=False)
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})
    assert waiting(tmp_path) == []


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "text/plain", ""])
def test_a_request_is_json_whatever_its_header_says(client: TestClient, media_type: str) -> None:
    answer = client.post("/_build", content=json.dumps(REQUEST), headers={"Content-Type": media_type})
    assert answer.status_code == 200


def test_the_guide_lists_every_code_that_the_service_answers_with() -> None:
    folder, starlettes = Path(app.__file__).parent, {405}
    code = "".join((folder / name).read_text() for name in ("app.py", "access.py"))
    answered = starlettes | {int(found) for found in re.findall(r"\b[45]\d\d\b", code)}
    guide = (REPOSITORY / "docs/guides/serve-builds.md").read_text()
    assert [int(found) for found in re.findall(r"^\| (\d{3}) \|", guide, re.MULTILINE)] == sorted(answered)


def test_a_fault_of_the_service_is_an_internal_error(client: TestClient, tmp_path: Path) -> None:
    folder = tmp_path / "work/jobs"
    folder.rmdir()
    folder.write_text("in the way")
    answer = client.post("/_build", json=REQUEST)
    assert (answer.status_code, answer.json()) == (500, {"detail": "Internal Server Error"})


def test_a_job_that_was_removed_is_not_found(client: TestClient, tmp_path: Path) -> None:
    job_id = client.post("/_build", json=REQUEST).json()["job_id"]
    assert client.delete(f"/_build/{job_id}").json() == {"job_id": job_id}
    assert client.get(f"/_status/{job_id}").status_code == 404
    assert waiting(tmp_path) == []


def test_more_requests_than_may_wait_leave_a_bounded_queue(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    limited = service(tmp_path, waiting=10)
    bodies = [request(vector_path=f"base/{number}.knnvec") for number in range(80)]
    answers = posted(limited, bodies, clients=4)
    accepted = [body for body, answer in zip(bodies, answers, strict=True) if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(accepted) == len(waiting(tmp_path)) == 10
    assert {(answer.status_code, answer.headers["Retry-After"]) for answer in refused} == {(429, "30")}
    assert "10 builds are waiting" in refused[-1].json()["detail"]
    again = posted(limited, accepted, clients=1)
    assert [answer.status_code for answer in again] == [200] * 10  # they are there


def test_health_and_heart_beat_are_answered_while_a_build_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "work").mkdir()
    put_objects(tmp_path / "blobs", REQUEST)
    token = {"Authorization": f"Bearer {TOKEN}"}
    with (
        caplog.at_level(logging.INFO, "indexmill.service"),
        TestClient(service(tmp_path, TOKEN).app) as client,
    ):
        job_id = client.post("/_build", json=REQUEST, headers=token).json()["job_id"]
        end = time.monotonic() + 60
        while f"job {job_id}: 2,000 vectors begun" not in caplog.messages:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert client.get("/_heart_beat").json() == "indexmill-serve-builds"
        answer = client.get("/health")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})  # and nothing of jobs
        assert client.get(f"/_status/{job_id}", headers=token).json() == RUNNING
    assert client.get("/health").status_code == 503  # its runner is closed


def test_health_tells_why_jobs_are_not_built_and_recovers(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    def healthy(client: TestClient) -> bool:
        return client.get("/health").status_code == 200

    with TestClient(service(tmp_path).app) as client:
        wait_for(lambda: healthy(client))
        (tmp_path / "work/builds").rmdir()
        wait_for(lambda: not healthy(client))
        assert (
            client.get("/health")
            .json()["status"]
            .startswith("builds fail (No such file or directory), and are")
        )
        (tmp_path / "work/builds").mkdir()
        wait_for(lambda: healthy(client))


def test_answers_are_counted_for_prometheus(client: TestClient, tmp_path: Path) -> None:
    client.post("/_build", json=REQUEST)
    client.post("/_build", json={})
    client.get("/_status/none")
    client.get("/no/such/path")
    client.get("/_build")
    (tmp_path / "work/jobs").rename(tmp_path / "work/away")
    client.post("/_build", json=request(tenant_id="other"))
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'indexmill_answers_total{code="200",path="/_build"} 1.0',
        'indexmill_answers_total{code="422",path="/_build"} 1.0',
        'indexmill_answers_total{code="404",path="/_status/ID"} 1.0',
        'indexmill_answers_total{code="404",path="other"} 1.0',
        'indexmill_answers_total{code="405",path="/_build"} 1.0',
        'indexmill_answers_total{code="500",path="/_build"} 1.0',
        "indexmill_builds_open 1.0",
    ):
        assert line in answer.text.splitlines()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer other", basic("u", "other"), basic(TOKEN, ""), "Basic ###", f"Digest {TOKEN}"],
)
def test_without_the_token_nothing_is_answered(tmp_path: Path, header: str) -> None:
    (tmp_path / "work").mkdir()
    client = TestClient(service(tmp_path, TOKEN).app)
    for method, path in (
        ("POST", "/_build"),
        ("GET", "/_status/a"),
        ("DELETE", "/_build/a"),
        ("GET", "/metrics"),
    ):
        answer = client.request(
            method, path, json=REQUEST, headers={"Authorization": header} if header else {}
        )
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Basic"
    assert waiting(tmp_path) == []


@pytest.mark.parametrize(
    "header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic("any user", TOKEN), basic("", TOKEN)]
)
def test_the_token_opens_the_service(tmp_path: Path, header: str) -> None:
    (tmp_path / "work").mkdir()
    client = TestClient(service(tmp_path, TOKEN).app, headers={"Authorization": header})
    assert client.post("/_build", json=REQUEST).status_code == 200
    assert client.get("/metrics").status_code == 200


def test_answers_without_the_token_are_counted(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    client = TestClient(service(tmp_path, TOKEN).app)
    client.post("/_build", json=REQUEST)
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert 'indexmill_answers_total{code="401",path="/_build"} 1.0' in answer.text.splitlines()


def test_a_service_without_token_ignores_the_header(client: TestClient) -> None:
    answer = client.post("/_build", json=REQUEST, headers={"Authorization": basic("user", "word")})
    assert answer.status_code == 200
