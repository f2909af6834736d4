"""Wrong options of `serve-builds` end it before it listens, with what to do."""

from __future__ import annotations

import fcntl
import re
import socket
import subprocess
from pathlib import Path

import pytest
import uvicorn
from tests.support.cli import run

from indexmill.jobs.service import serve as service
from indexmill.jobs.service.runner import Settings
from indexmill.jobs.service.serve import serve

TOKEN = "a token of some length"


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INDEXMILL_SERVICE_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--work: missing; name a directory"),
        (["--work", "WORK", "--storage", "s3://bucket"], "--storage: has no {container}"),
        (["--work", "WORK", "--storage", "S4://{container}"], "--storage: s4://container: no file system"),
        (["--work", "WORK", "--storage", "s3://{container}?regoin=a"], "--storage: s3://container: no file"),
        (
            ["--work", "WORK", "--host", "0.0.0.0"],
            "--host: 0.0.0.0 is reached from other machines; set INDEXMILL_",
        ),
        (
            ["--work", "WORK", "--host", "builder.example"],
            "--host: builder.example is reached from other machines",
        ),
        (["--work", "WORK", "--memory", "much"], "--memory: "),
        (["--work", "WORK", "--workers", "0"], "--workers"),
        (["--work", "WORK", "--port", "65536"], "--port"),
        (["--work", "WORK", "--token-file", "WORK/none"], "--token-file: "),
        (["--work", "/proc/none"], "--work: /proc/none cannot be written"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, options: list[str], said: str) -> None:
    given = [option.replace("WORK", str(tmp_path / "work")) for option in options]
    result = run("serve-builds", *given)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
def test_a_host_that_cannot_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("INDEXMILL_SERVICE_TOKEN", TOKEN)
    result = run("serve-builds", "--work", tmp_path, "--host", host)
    said = f"--host, --port: cannot listen on {host}:1025 ("
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_a_host_that_is_not_known_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("INDEXMILL_SERVICE_TOKEN", TOKEN)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    result = run("serve-builds", "--work", tmp_path, "--host", "builder.example")
    said = "--host, --port: cannot listen on builder.example:1025 (Name or service not known)"
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def is_accepted(work: Path, storage: str) -> bool:
    """Whether a service accepts a URL of storage, and then ends, because its address is in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ["--work", work, "--storage", storage, "--port", taken.getsockname()[1]]
        result = run("serve-builds", *options)
    assert result.exit_code == 2, result.stderr
    return "cannot listen on 127.0.0.1" in result.stderr


@pytest.mark.parametrize(
    ("storage", "opened"),
    [
        ("s3://{container}", "s3://container?region=us-east-1"),
        ("s3://{container}?scheme=http", "s3://container?scheme=http&region=us-east-1"),
        ("s3://{container}?region=eu-west-1", "s3://container?region=eu-west-1"),
        ("gs://{container}", "gs://container"),
        ("hdfs://name-node/{container}", None),
        ("FTP://{container}", None),
        ("simplecache::SFTP://host/{container}", None),
    ],
)
def test_storage_is_opened_at_the_start_without_asking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, opened: str | None
) -> None:
    """S3 would be asked for the region of a container, and some clients connect."""
    urls: list[str] = []

    def note(command: list[str], *, input: str, **_: object) -> subprocess.CompletedProcess[str]:
        urls.append(input)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", note)
    assert is_accepted(tmp_path, storage)
    assert urls == ([] if opened is None else [opened])


def test_storage_whose_client_cannot_be_made_is_refused(tmp_path: Path) -> None:
    assert not is_accepted(tmp_path, "reference://{container}")  # it is given no references


def test_storage_whose_client_fails_in_another_way_is_left_to_the_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    assert is_accepted(tmp_path, "memory://{container}")


def test_storage_whose_client_takes_long_is_left_to_the_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(service, "LOCATE_SECONDS", 0.01)
        assert is_accepted(tmp_path, "s4://{container}")
    assert not is_accepted(tmp_path, "s4://{container}")


def test_an_address_of_ipv6_is_shown_as_in_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    serve(Settings(f"file://{tmp_path}/{{container}}", tmp_path / "work", 1 << 30, 1), "::1", 0, None)
    assert re.fullmatch(r"listening on http://\[::1\]:\d+\n", capsys.readouterr().err)


def test_a_token_too_short_to_be_a_secret_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("short\n")
    for options in ([], ["--token-file", tmp_path / "token"]):
        monkeypatch.setenv("INDEXMILL_SERVICE_TOKEN", "short")
        result = run("serve-builds", "--work", tmp_path / "work", *options)
        assert (result.exit_code, "a token of 5 characters; expected at least 16" in result.stderr) == (
            2,
            True,
        )
    assert not (tmp_path / "work").exists()


def test_a_work_directory_of_another_service_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "service.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run("serve-builds", "--work", tmp_path)
    assert (result.exit_code, "is in use by another service" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["jobs", "builds"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("in the way")
    result = run("serve-builds", "--work", tmp_path, "--port", "0")
    said = f"--work: {tmp_path / name} cannot be written"
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    "other", ["builds/lib", "builds/removed-mine", "jobs/x.json", "jobs/.x.json.0123.tmp"]
)
def test_a_directory_of_somebody_else_is_refused_and_left_alone(tmp_path: Path, other: str) -> None:
    (tmp_path / other).mkdir(parents=True)
    result = run("serve-builds", "--work", tmp_path, "--port", "0")
    said = f"--work: {tmp_path / other} is not of this service"
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if not any(path.glob("*"))] == [
        Path(other)
    ]


def test_an_address_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("serve-builds", "--work", tmp_path, "--port", taken.getsockname()[1])
    assert (result.exit_code, "cannot listen on 127.0.0.1" in result.stderr) == (2, True)


def test_a_damaged_queue_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / f"jobs/{'0' * 64}.json").write_text("{")
    result = run("serve-builds", "--work", tmp_path, "--port", "0")
    assert (result.exit_code, "no job of this service" in result.stderr) == (6, True)
