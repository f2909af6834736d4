"""The queue of builds outlives the service, and stays small."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.builds import request

from indexmill.formats.errors import CorruptFile
from indexmill.jobs.service.queue import COMPLETED, FAILED, RUNNING, Conflict, Limits, Queue
from indexmill.jobs.service.request import BuildRequest

#: Of no request.
JOB_ID = "0" * 64


def wanted(name: str) -> BuildRequest:
    return BuildRequest.model_validate(request(vector_path=f"base/{name}.knnvec"))


def test_jobs_come_out_in_the_order_they_came_in_also_after_a_restart(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    names = ["z", "a", "m", "b"]
    for name in names:
        queue.add(wanted(name))
    found = []
    while (job := queue.first(0)) is not None:
        found.append(job.request)
        queue.finish(job, None)
        queue = Queue(tmp_path)
    assert found == [wanted(name) for name in names]


def test_results_outlive_the_service(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    good, bad, open_ = (queue.add(wanted(name)) for name in "abc")
    queue.finish(good, None)
    queue.finish(bad, "it was so")
    again = Queue(tmp_path)
    jobs = [again.get(job.id) for job in (good, bad, open_)]
    assert all(jobs)
    assert [(job.status, job.file_name, job.error_message) for job in jobs if job] == [
        (COMPLETED, "a.faiss", None), (FAILED, None, "it was so"), (RUNNING, None, None),
    ]  # fmt: skip
    assert again.counts() == {COMPLETED: 1, FAILED: 1, RUNNING: 1}


def test_a_failed_job_is_tried_again_when_it_is_asked_for_again(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    job = queue.add(wanted("a"))
    queue.finish(job, "storage was away")
    assert queue.first(0) is None
    again = queue.add(wanted("a"))
    assert (again.id, again.status, queue.first(0)) == (job.id, RUNNING, again)


def test_a_failed_job_makes_room_for_the_corrected_request_of_its_name(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    job = queue.add(wanted("a"))
    corrected = wanted("a").model_copy(update={"dimension": 8})
    with pytest.raises(Conflict, match="asks for something else"):
        queue.add(corrected)
    queue.finish(job, "the vectors have 8 components")
    again = queue.add(corrected)
    assert (again.id, again.request, again.status) == (job.id, corrected, RUNNING)
    assert Queue(tmp_path).first(0) == again


def test_jobs_that_are_done_are_forgotten_after_a_time(tmp_path: Path) -> None:
    now = [1000.0]
    queue = Queue(tmp_path, Limits(kept_seconds=60), lambda: now[0])
    done, open_ = queue.add(wanted("a")), queue.add(wanted("b"))
    queue.finish(done, None)
    now[0] += 59
    assert queue.get(done.id) is not None
    now[0] += 2
    assert queue.get(done.id) is None
    assert queue.get(open_.id) == queue.first(0) == open_
    assert [path.stem for path in tmp_path.glob("*.json")] == [open_.id]


def test_no_more_jobs_that_are_done_are_kept_than_may(tmp_path: Path) -> None:
    now = [0.0]
    queue = Queue(tmp_path, Limits(kept=3), lambda: now[0])
    jobs = [queue.add(wanted(str(number))) for number in range(6)]
    for job in jobs:
        now[0] += 1
        queue.finish(job, None)
    assert [queue.get(job.id) is not None for job in jobs] == [False] * 3 + [True] * 3


def test_a_job_that_was_removed_while_it_ran_is_not_there_when_it_is_done(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    job = queue.add(wanted("a"))
    assert queue.remove(job.id) == job
    assert not queue.holds(job)
    again = queue.add(wanted("a"))
    queue.finish(job, None)  # of the first, which is another one
    assert queue.get(job.id) == again
    assert again.status == RUNNING


def test_a_job_whose_file_cannot_be_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(tmp_path)
    job = queue.add(wanted("a"))

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(OSError, match="Read-only"):
            queue.remove(job.id)
    assert queue.get(job.id) == job
    assert queue.remove(job.id) == job
    assert Queue(tmp_path).counts() == {}


def test_what_a_killed_write_left_is_removed(tmp_path: Path) -> None:
    torn = tmp_path / f".{JOB_ID}.json.0123.tmp"
    torn.write_text("{")
    Queue(tmp_path)
    assert not torn.exists()


def test_files_that_are_no_jobs_are_left_alone(tmp_path: Path) -> None:
    names = (".mine.json.0123.tmp", ".tmp", "package.json", f"{JOB_ID}.json.bak")
    for name in names:
        (tmp_path / name).write_text("{")
    assert Queue(tmp_path).counts() == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\x00\x01"])
def test_a_damaged_file_of_a_job_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / f"{JOB_ID}.json").write_text(text)
    with pytest.raises(CorruptFile, match=rf"{JOB_ID}\.json: no job of this service .* remove the file"):
        Queue(tmp_path)


def test_a_job_under_another_name_is_refused(tmp_path: Path) -> None:
    job = Queue(tmp_path).add(wanted("a"))
    (tmp_path / f"{job.id}.json").rename(tmp_path / f"{JOB_ID}.json")
    with pytest.raises(CorruptFile, match=rf"{JOB_ID}\.json: holds job"):
        Queue(tmp_path)
