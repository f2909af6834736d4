"""The runner of builds, whose processes are scripts here: what it keeps, what it removes, and what it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.support.builds import request
from tests.support.service import is_alive, wait_for

from indexmill.jobs.service.app import Service
from indexmill.jobs.service.queue import COMPLETED, FAILED, RUNNING, Job, Queue
from indexmill.jobs.service.request import BuildRequest
from indexmill.jobs.service.runner import Runner, Settings
from indexmill.pipeline.hnsw.size import needed_disk

REQUEST = BuildRequest.model_validate(request())
DONE = '{"error": null}'


def runner_of(
    queue: Queue, work: Path, ended: Callable[[bool, float], None] = lambda failed, seconds: None
) -> Runner:
    return Runner(queue, Settings(f"file://{work}/{{container}}", work, 1 << 30, 1), ended)


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Sets the script that stands for the process of a build; returns the folder of the job's files."""
    folder = tmp_path / "builds" / REQUEST.job_id

    def set_script(end: str, begin: str = "") -> Path:
        script = tmp_path / "script"
        script.write_text(f"#!/bin/sh\n{begin}\nread task\nmkdir -p {folder}/stages\n{end}\n")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))
        return folder

    return set_script


def status(queue: Queue) -> str | None:
    job = queue.get(REQUEST.job_id)
    return job and job.status


def test_files_of_a_job_that_storage_stopped_are_kept_until_it_is_forgotten(
    tmp_path: Path, builder: Callable[[str], Path]
) -> None:
    folder = builder("""echo '{"error": "away", "resumable": true}'""")
    queue = Queue(tmp_path / "jobs")
    queue.add(REQUEST)
    runner = runner_of(queue, tmp_path)
    runner.start()
    wait_for(lambda: status(queue) == FAILED)
    time.sleep(1)  # beyond the next look for files to remove
    assert folder.exists()
    runner.close()
    runner = runner_of(queue, tmp_path)
    runner.start()
    assert folder.exists()
    queue.remove(REQUEST.job_id)
    wait_for(lambda: not folder.exists())
    runner.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_result_is_noted_before_the_files_of_a_build_go(
    tmp_path: Path, builder: Callable[[str], Path]
) -> None:
    class Killed(Queue):
        def finish(self, job: Job, error_message: str | None) -> None:
            raise SystemExit  # ends the thread of the runner, as a kill would

    folder = builder(f"echo '{DONE}'")
    queue = Killed(tmp_path / "jobs")
    queue.add(REQUEST)
    runner = runner_of(queue, tmp_path)
    runner.start()
    wait_for(lambda: not runner.is_alive())
    assert status(queue) == RUNNING
    assert (folder / "stages").exists()
    again = Queue(tmp_path / "jobs")
    builder(f"test -d {folder}/stages && echo '{DONE}'")
    runner = runner_of(again, tmp_path)
    runner.start()
    wait_for(lambda: status(again) == COMPLETED)
    runner.close()


def test_a_build_that_ends_while_the_service_stops_is_done(
    tmp_path: Path, builder: Callable[[str], Path]
) -> None:
    class Stopping(Queue):
        def holds(self, job: Job) -> bool:
            if (folder / "stages").exists():  # the process has ended, and its result is to be noted
                threading.Thread(target=runner.close).start()
                time.sleep(0.3)
            return super().holds(job)

    folder = builder(f"echo '{DONE}'")
    queue = Stopping(tmp_path / "jobs")
    queue.add(REQUEST)
    runner = runner_of(queue, tmp_path)
    runner.start()
    wait_for(lambda: not runner.is_alive())
    assert status(queue) == COMPLETED
    assert not folder.exists()


def test_files_of_jobs_that_are_done_are_removed_at_the_start(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "jobs")
    queue.finish(queue.add(REQUEST), None)
    for name in (REQUEST.job_id, f"removed-{REQUEST.job_id}"):  # of a kill before and in their removal
        (tmp_path / "builds" / name / "build/stages").mkdir(parents=True)
    runner = runner_of(queue, tmp_path)
    runner.start()
    wait_for(lambda: not list((tmp_path / "builds").iterdir()))
    runner.close()


def test_folders_that_are_no_builds_stay(tmp_path: Path) -> None:
    for name in ("mine", "removed-mine", REQUEST.job_id, f"{REQUEST.job_id}x"):
        (tmp_path / "builds" / name).mkdir(parents=True)
        (tmp_path / "builds" / name / "file").write_text("kept")
    runner = runner_of(Queue(tmp_path / "jobs"), tmp_path)
    runner.start()
    wait_for(lambda: not (tmp_path / "builds" / REQUEST.job_id).exists())
    time.sleep(1)  # beyond the next look for files to remove
    runner.close()
    left = [path for path in (tmp_path / "builds").iterdir() if (path / "file").read_text() == "kept"]
    assert {path.name for path in left} == {"mine", "removed-mine", f"{REQUEST.job_id}x"}


def test_a_result_that_cannot_be_noted_at_first_is_not_built_again(
    tmp_path: Path, builder: Callable[[str], Path]
) -> None:
    class Full(Queue):
        tries = 0

        def finish(self, job: Job, error_message: str | None) -> None:
            self.tries += 1
            if self.tries == 1:
                raise OSError(28, "No space left on device")
            super().finish(job, error_message)

    folder = builder(f"echo begun >> {tmp_path}/begun; echo '{DONE}'")
    queue = Full(tmp_path / "jobs")
    queue.add(REQUEST)
    runner = runner_of(queue, tmp_path)
    runner.start()
    wait_for(lambda: status(queue) == COMPLETED)
    runner.close()
    assert (tmp_path / "begun").read_text() == "begun\n"
    assert not folder.exists()


def test_a_failure_that_passed_is_told_no_longer_while_the_next_try_builds(
    tmp_path: Path, builder: Callable[[str], Path]
) -> None:
    class Full(Queue):
        is_full = True

        def first(self, seconds: float) -> Job | None:
            if self.is_full:
                raise OSError(28, "No space left on device")
            return super().first(seconds)

    builder(f"touch {tmp_path}/begun; exec sleep 600")
    queue = Full(tmp_path / "jobs")
    queue.add(REQUEST)
    runner = runner_of(queue, tmp_path)
    runner.start()
    try:
        wait_for(lambda: runner.failure == "No space left on device")
        queue.is_full = False
        wait_for((tmp_path / "begun").exists)
        wait_for(lambda: runner.failure is None)
        assert status(queue) == RUNNING
    finally:
        runner.close()


def test_a_failure_to_note_a_result_is_told_until_the_result_is_noted(
    tmp_path: Path, builder: Callable[[str], Path]
) -> None:
    told: list[str | None] = []

    class Full(Queue):
        def finish(self, job: Job, error_message: str | None) -> None:
            told.append(runner.failure)
            if len(told) < 3:
                raise OSError(28, "No space left on device")
            super().finish(job, error_message)

    builder(f"echo '{DONE}'")
    queue = Full(tmp_path / "jobs")
    queue.add(REQUEST)
    runner = runner_of(queue, tmp_path, lambda failed, seconds: told.append(runner.failure))
    runner.start()
    wait_for(lambda: len(told) == 4)
    runner.close()
    assert told == [None, *["No space left on device"] * 2, None]


def test_stopping_a_job_ends_all_its_processes_and_no_later_job(
    tmp_path: Path, builder: Callable[[str], Path]
) -> None:
    builder(
        f"sleep 600 > /dev/null & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600"
    )
    queue = Queue(tmp_path / "jobs")
    queue.add(REQUEST)
    earlier = queue.remove(REQUEST.job_id)
    job = queue.add(REQUEST)
    runner = runner_of(queue, tmp_path)
    runner.start()
    wait_for((tmp_path / "pid").exists)
    child = int((tmp_path / "pid").read_text())
    assert earlier is not None
    runner.stop(earlier)
    time.sleep(0.2)
    assert is_alive(child)
    queue.remove(job.id)
    runner.stop(job)
    wait_for(lambda: not is_alive(child))
    runner.close()


def test_the_process_that_waits_builds_the_next_job_and_ends_with_the_runner(
    tmp_path: Path, builder: Callable[..., Path]
) -> None:
    begun, used = tmp_path / "begun", tmp_path / "used"
    builder(f"echo $$ >> {used}; echo '{DONE}'", begin=f"echo $$ >> {begun}")

    def begun_ones() -> list[str]:
        return begun.read_text().splitlines() if begun.exists() else []

    queue = Queue(tmp_path / "jobs")
    runner = runner_of(queue, tmp_path)
    runner.start()
    for number in range(1, 4):
        wait_for(lambda number=number: len(begun_ones()) == number)
        queue.add(BuildRequest.model_validate(request(tenant_id=str(number))))
        wait_for(lambda number=number: queue.counts().get(COMPLETED) == number)
        assert used.read_text().splitlines() == begun_ones()[:number]
    wait_for(lambda: len(begun_ones()) == 4)
    waiting = int(begun_ones()[-1])
    assert is_alive(waiting)
    runner.close()
    assert not is_alive(waiting)


def test_a_process_that_was_ended_while_it_waited_for_a_job_is_replaced(
    tmp_path: Path, builder: Callable[[str], Path]
) -> None:
    builder(f"echo '{DONE}'")
    script, begun = tmp_path / "script", tmp_path / "begun"
    works = script.read_text()
    script.write_text(f"#!/bin/sh\necho $$ > {begun}.new; mv {begun}.new {begun}; read task\n")
    queue = Queue(tmp_path / "jobs")
    runner = runner_of(queue, tmp_path)
    runner.start()
    wait_for(begun.exists)
    waiting = int(begun.read_text())
    script.write_text(works)
    os.kill(waiting, signal.SIGKILL)
    wait_for(lambda: not is_alive(waiting))
    queue.add(REQUEST)
    wait_for(lambda: status(queue) == COMPLETED)
    runner.close()


@pytest.mark.parametrize("ending", ["killed", "removed", "removed by a service that was killed"])
def test_what_a_put_left_on_storage_that_was_killed_goes_with_its_job(
    tmp_path: Path, builder: Callable[[str], Path], ending: str
) -> None:
    left = tmp_path / f"{REQUEST.container_name}/{REQUEST.out_path}.token.tmp"
    left.parent.mkdir(parents=True)
    putting = tmp_path / "putting"
    putting.write_text(
        f"""echo '{REQUEST.model_dump_json()}' > {tmp_path}/builds/{REQUEST.job_id}/request.json
        mkdir {tmp_path}/builds/{REQUEST.job_id}/build
        printf token > {tmp_path}/builds/{REQUEST.job_id}/build/putting
        touch {left}
        """
    )
    folder = builder(f". {putting}; {'kill -9 $$' if ending == 'killed' else 'sleep 60'}")
    queue = Queue(tmp_path / "jobs")
    if ending == "removed by a service that was killed":
        (folder / "stages").mkdir(parents=True)
        subprocess.run(["sh", putting], check=True)
        (tmp_path / "builds" / ("0" * 64)).mkdir()  # of a job that is not known
    else:
        job = queue.add(REQUEST)
    runner = runner_of(queue, tmp_path)
    runner.start()
    if ending == "killed":
        wait_for(lambda: status(queue) == FAILED)
    elif ending == "removed":
        wait_for(left.exists)
        queue.remove(job.id)
        runner.stop(job)
    wait_for(lambda: not any((tmp_path / "builds").iterdir()))
    assert not left.exists()
    runner.close()


def test_disk_that_the_running_build_takes_is_free_for_the_next(
    tmp_path: Path, builder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 4096
    part = tmp_path / "builds" / REQUEST.job_id / "stages/part"
    builder(f"head -c {written} /dev/zero > {part}; sleep 60")
    settings = Settings(f"file://{tmp_path}/{{container}}", tmp_path, 1 << 30, 1)
    need = needed_disk(REQUEST.job(settings.storage), 1 << 30, 1)
    usage = shutil.disk_usage(tmp_path)
    other = request(vector_path="base/other.knnvec")  # takes as many bytes
    with TestClient(Service(settings).app) as client:
        client.post("/_build", json=request())
        wait_for(lambda: part.exists() and part.stat().st_size == written)
        free = need - written
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free - 1))
        refused = client.post("/_build", json=other)
        assert refused.status_code == 507
        said = f"{need - 1:,} are free once the running one is done with {written:,}"
        assert said in refused.json()["detail"]
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))
        assert client.post("/_build", json=other).status_code == 200
