"""The queue of builds: a file for each job, so that it outlives the service.

Memory and disk are bounded: by `Limits.waiting` jobs that are to be built, and `Limits.kept` that are done.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from indexmill.formats.errors import CorruptFile
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.jobs.service.request import JOB_ID, BuildRequest

Status = Literal["RUNNING_INDEX_BUILD", "COMPLETED_INDEX_BUILD", "FAILED_INDEX_BUILD"]
RUNNING: Status = "RUNNING_INDEX_BUILD"
COMPLETED: Status = "COMPLETED_INDEX_BUILD"
FAILED: Status = "FAILED_INDEX_BUILD"
#: Name of the file of a job, and of one that a write that was killed left.
_FILE, _TORN = re.compile(rf"{JOB_ID}\.json"), re.compile(rf"\.{JOB_ID}\.json\.[0-9a-f]+\.tmp")


@dataclass(frozen=True)
class Limits:
    """Bounds of a queue.

    Attributes
    ----------
    waiting : int
        Most jobs that are not done.
    kept : int
        Most jobs that are done; those that were done first are forgotten.
    kept_seconds : float
        How long the status of a job that is done can be asked for.
    """

    waiting: int = 1_000
    kept: int = 10_000
    kept_seconds: float = 1_800


class Conflict(Exception):
    """A job of the same id asks for something else."""


class QueueFull(Exception):
    """As many jobs wait as may."""


class Job(BaseModel):
    """A job; a waiting one and one that is being built have the same status, as in the contract.

    Attributes
    ----------
    id : str
    number : int
        Place in the order in which jobs came.
    request : BuildRequest
    status : Status
    file_name, error_message : str or None
        Of a job that is done.
    ended : float or None
        When it was done, in seconds of the clock.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    number: int
    request: BuildRequest
    status: Status = RUNNING
    file_name: str | None = None
    error_message: str | None = None
    ended: float | None = None


class Queue:
    """Jobs in a directory, one service at a time.

    Parameters
    ----------
    folder : Path
        Made if it is missing; files with other names than the queue gives are left alone.
    limits : Limits
    clock : callable
        Seconds since 1970.

    Raises
    ------
    CorruptFile
        If a file of a job is damaged.
    """

    def __init__(
        self, folder: Path, limits: Limits | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder, self._limits, self._clock = folder, limits or Limits(), clock
        self._lock = threading.Condition()
        folder.mkdir(parents=True, exist_ok=True)
        files = list(folder.iterdir())
        for path in files:
            if _TORN.fullmatch(path.name):
                path.unlink()
        jobs = sorted(
            (_read(path) for path in files if _FILE.fullmatch(path.name)), key=lambda job: job.number
        )
        self._jobs = {job.id: job for job in jobs}
        self._next = 1 + max((job.number for job in jobs), default=0)

    def find(self, request: BuildRequest) -> Job | None:
        """Return the job of a request, if there is one that did not fail; None if a new one may be added.

        Raises
        ------
        Conflict
            If the job that is there, and did not fail, asks for something else.
        QueueFull
            If no further job may wait.
        """
        with self._lock:
            self._forget_old()
            there = self._jobs.get(request.job_id)
            if there is not None and there.status != FAILED:
                if there.request != request:
                    raise Conflict(
                        f"job {there.id} of the same vector_path and tenant_id asks for something else; send the same "
                        "request, or name other vectors"
                    )
                return there
            if self._running() >= self._limits.waiting:
                raise QueueFull(f"{self._limits.waiting:,} builds are waiting; try again later")
            return None

    def add(self, request: BuildRequest) -> Job:
        """Return the job of a request: the one that is there, or a new one; one that failed is tried again.

        Raises
        ------
        Conflict, QueueFull
            As `find`.
        """
        with self._lock:
            there = self.find(request)
            if there is not None:
                return there
            job = Job(id=request.job_id, number=self._next, request=request)
            self._next += 1
            self._keep(job)
            self._lock.notify_all()
            return job

    def get(self, job_id: str) -> Job | None:
        """Return a job; None if there is none, or it was done long ago. It waits for no lock, nor for the disk."""
        job = self._jobs.get(job_id)
        return None if job is None or self._is_old(job) else job

    def first(self, seconds: float) -> Job | None:
        """Return the job that has waited longest; None if none comes within some seconds."""
        with self._lock:
            self._forget_old()
            self._lock.wait_for(lambda: self._running() > 0, seconds)
            running = (job for job in self._jobs.values() if job.status == RUNNING)
            return min(running, key=lambda job: job.number, default=None)

    def finish(self, job: Job, error_message: str | None) -> None:
        """Note that a job is done, or why it failed; a job that was removed meanwhile stays so."""
        with self._lock:
            if not self.holds(job):
                return
            failed = error_message is not None
            result = {
                "status": FAILED if failed else COMPLETED,
                "file_name": None if failed else job.request.file_name,
                "error_message": error_message,
                "ended": self._clock(),
            }
            self._keep(job.model_copy(update=result))
            self._forget_old()

    def remove(self, job_id: str) -> Job | None:
        """Forget a job, whatever its status, and return it; None if there is none."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is not None:
                self._drop(job)
            return job

    def holds(self, job: Job) -> bool:
        """Return whether a job is as it was, neither removed nor done meanwhile."""
        with self._lock:
            return self._jobs.get(job.id) == job

    def counts(self) -> dict[str, int]:
        """Return the number of jobs by status. It waits for no lock."""
        return dict(Counter(job.status for job in list(self._jobs.values())))

    def _running(self) -> int:
        return sum(job.status == RUNNING for job in self._jobs.values())

    def _keep(self, job: Job) -> None:
        write_json_atomic(self._path(job.id), job.model_dump())
        self._jobs[job.id] = job

    def _drop(self, job: Job) -> None:
        self._path(job.id).unlink(missing_ok=True)  # first: if it fails, the job is still there
        del self._jobs[job.id]

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.json"

    def _forget_old(self) -> None:
        """Drop the jobs that were done too long ago, or before too many others."""
        done = sorted(
            (job for job in self._jobs.values() if job.ended is not None), key=lambda job: job.ended or 0
        )
        for place, job in enumerate(done, 1):
            if self._is_old(job) or len(done) - place >= self._limits.kept:
                self._drop(job)

    def _is_old(self, job: Job) -> bool:
        return job.ended is not None and job.ended < self._clock() - self._limits.kept_seconds


def is_own_file(name: str) -> bool:
    """Return whether a queue gives files such names."""
    return bool(_FILE.fullmatch(name) or _TORN.fullmatch(name))


def _read(path: Path) -> Job:
    try:
        job = Job.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CorruptFile(
            f"{path}: no job of this service ({error.errors()[0]['msg']}); expected what it wrote; remove the file"
        ) from None
    if path.stem != job.id:
        raise CorruptFile(f"{path}: holds job {job.id}; expected {path.stem}; remove the file")
    return job
