"""The thread that takes jobs from the queue, one after the other, and has each built by a process."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from indexmill.formats.errors import IndexmillError
from indexmill.jobs.service.builder import Answer, Task, discard
from indexmill.jobs.service.queue import COMPLETED, Job, Queue
from indexmill.jobs.service.request import JOB_ID
from indexmill.pipeline.mill.disk_space import used_bytes

logger = logging.getLogger("indexmill.service")

#: Seconds after which a runner without jobs looks whether it is to stop.
_IDLE_S = 0.5
#: Begin of the name of a folder that is being removed, which is the id of no job.
_REMOVED = "removed-"
#: Names of all folders of builds.
_FOLDER = re.compile(rf"(?:{_REMOVED})?{JOB_ID}")


@dataclass(frozen=True)
class Settings:
    """How jobs are built.

    Attributes
    ----------
    storage : str
        URL of containers, with ``{container}`` in place of their name.
    work : Path
        Directory of `jobs` and `builds`.
    memory : int
        Budget of a build, in bytes.
    workers : int
        Threads of a build.
    """

    storage: str
    work: Path
    memory: int
    workers: int

    @property
    def jobs(self) -> Path:
        """Directory of the queue."""
        return self.work / "jobs"

    @property
    def builds(self) -> Path:
        """Directory of the files of builds, a folder for each job."""
        return self.work / "builds"


class Runner:
    """Builds the jobs of a queue until it is closed; a job that was begun then is resumed by the next runner.

    The files of a job that storage or the disk stopped are kept for its next try, until the queue forgets the job.
    While there is no job, the process of the next one waits for it, because loading what builds need takes it most of a
    second.

    Parameters
    ----------
    queue : Queue
    settings : Settings
    ended : callable
        ``ended(failed, seconds)`` is called when a job is done.
    """

    def __init__(self, queue: Queue, settings: Settings, ended: Callable[[bool, float], None]) -> None:
        self._queue, self._settings, self._ended = queue, settings, ended
        self._builds = settings.builds
        self._lock = threading.Lock()
        self._current: tuple[Job, subprocess.Popen[bytes]] | None = None
        self._waiting: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="builds", daemon=True)

    def start(self) -> None:
        """Begin; files of jobs that are done or no longer in the queue are removed."""
        self._builds.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self, job: Job) -> None:
        """End the processes of a job that was removed from the queue, if it is being built."""
        with self._lock:
            if self._current is not None and self._current[0] == job:
                _end(self._current[1])

    def close(self) -> None:
        """Stop, with the job that is being built."""
        with self._lock:
            self._closed = True
            if self._current is not None:
                _end(self._current[1])
        self._thread.join()

    def written_bytes(self, skip: str) -> int:
        """Return the bytes below the work directory of the job that is being built, unless it is job `skip`.

        They are removed before another job is begun, unless storage or the disk stops this one.
        """
        with self._lock:
            current = self._current
        return 0 if current is None or current[0].id == skip else used_bytes(self._builds / current[0].id)

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    @property
    def failure(self) -> str | None:
        """Why no job can be built or finished at present, which is tried again; None while all goes well."""
        return self._failure

    def _run(self) -> None:
        try:
            while not self._closed:
                try:
                    self._sweep()
                    self._waiting = self._waiting or _started()
                    job = self._queue.first(_IDLE_S)
                    if job is not None:
                        self._build(job)
                    self._failure = None
                except OSError as error:  # such as a full disk: the job stays in the queue
                    self._failed(error, "builds: tried again")
        finally:
            if self._waiting is not None:
                _let_go(self._waiting)

    def _failed(self, error: OSError, said: str, *arguments: object) -> None:
        """Note and log why a job cannot be built or finished; wait until it is to be tried again."""
        self._failure = error.strerror or type(error).__name__
        logger.error(said, *arguments, exc_info=error)
        time.sleep(_IDLE_S)

    def _taken(self) -> subprocess.Popen[bytes]:
        """Return the process that waits; where it was ended from outside, another one."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.poll() is None:
            return waiting
        if waiting is not None:
            _let_go(waiting)
        return _started()

    def _build(self, job: Job) -> None:
        folder = self._builds / job.id
        begun = time.monotonic()
        logger.info("job %s: %s vectors begun", job.id, f"{job.request.doc_count:,}")
        answer = self._built(job, folder)
        if self._closed and answer.error is not None:
            return  # to be resumed
        seconds = time.monotonic() - begun
        if not self._queue.holds(job):
            self._discard(folder)
        elif self._finish(job, answer, folder):  # first, for a job without files and result is built again
            self._ended(answer.error is not None, seconds)
            if not answer.resumable:
                self._discard(folder)
        logger.info("job %s: %s after %.1f s", job.id, answer.error or "done", seconds)

    def _discard(self, folder: Path) -> None:
        """Remove the files of a build, and what it left on storage if it was killed while it put its own there."""
        try:
            discard(folder, self._settings.storage)
        except (IndexmillError, OSError, ValidationError):
            logger.exception("job %s: an unfinished file stays on storage", folder.name)
        _remove(folder)

    def _finish(self, job: Job, answer: Answer, folder: Path) -> bool:
        """Note the result of a job; where the disk is full, again without its files, until the runner is closed.

        Returns
        -------
        bool
            Whether it was noted.
        """
        while True:
            try:
                self._queue.finish(job, answer.error)
                self._failure = None
                return True
            except OSError as error:
                if self._closed:
                    return False
                self._discard(folder)
                self._failed(error, "job %s: its result is noted again, without its files", job.id)

    def _sweep(self) -> None:
        """Discard the builds of jobs that are done or forgotten, and what removals that were killed left of them.

        What has no name of a build is somebody else's, and stays.
        """
        for folder in self._builds.iterdir():
            job = self._queue.get(folder.name)
            if is_own_folder(folder.name) and (job is None or job.status == COMPLETED):
                self._discard(folder)

    def _built(self, job: Job, folder: Path) -> Answer:
        """Have a job built; return how it ended."""
        s = self._settings
        task = Task(request=job.request, storage=s.storage, work=folder, memory=s.memory, workers=s.workers)
        with self._taken() as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with self._lock:
                self._current = (job, process)
                if self._closed or not self._queue.holds(job):  # removed before there was a process to end
                    _end(process)
            try:
                process.stdin.write(task.model_dump_json().encode() + b"\n")
                process.stdin.flush()
                self._failure = None  # jobs are built again, and this one may take hours
                said = process.stdout.read()
            except BrokenPipeError:  # it ended before it was told what to build
                said = b""
                with suppress(BrokenPipeError):
                    process.stdin.close()  # or leaving the block would raise it again
            finally:
                with self._lock:
                    self._current = None
                    _end(process)  # what it started goes with it
            code = process.wait()
        try:
            return Answer.model_validate_json(said.strip().rpartition(b"\n")[2])
        except ValidationError:
            why = f"signal {-code}" if code < 0 else f"exit code {code}"
            return Answer(
                error=f"the process of the build ended by {why}; if it was short of memory, lower --memory of the "
                "service"
            )


def is_own_folder(name: str) -> bool:
    """Return whether a runner gives folders of builds such names."""
    return _FOLDER.fullmatch(name) is not None


def _started() -> subprocess.Popen[bytes]:
    """Start a process that builds what it is told."""
    command = [sys.executable, "-m", "indexmill.jobs.service.builder"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """End a process that was told nothing."""
    with process:
        if process.poll() is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was not waited for, with those that it started, such as the one that compiles."""
    os.killpg(process.pid, signal.SIGKILL)


def _remove(folder: Path) -> None:
    """Remove the files of a build; a removal that is killed leaves nothing that a build would resume."""
    aside = folder.with_name(_REMOVED + folder.name.removeprefix(_REMOVED))
    if folder != aside and folder.is_dir():
        shutil.rmtree(aside, ignore_errors=True)  # of a removal that was killed
        folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
