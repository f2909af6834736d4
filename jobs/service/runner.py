"""The thread that takes jobs from the queue, one after the other, and has each built by a process."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from indexmill.jobs.service.builder import Answer, Task
from indexmill.jobs.service.queue import Job, Queue

logger = logging.getLogger("indexmill.service")

#: Seconds after which a runner without jobs looks whether it is to stop.
_IDLE_S = 0.5


@dataclass(frozen=True)
class Settings:
    """How jobs are built.

    Attributes
    ----------
    storage : str
        URL of containers, with ``{container}`` in place of their name.
    work : Path
        Directory of the queue and of the files of builds.
    memory : int
        Budget of a build, in bytes.
    workers : int
        Threads of a build.
    """

    storage: str
    work: Path
    memory: int
    workers: int


class Runner:
    """Builds the jobs of a queue until it is closed; a job that was begun then is resumed by the next runner.

    Parameters
    ----------
    queue : Queue
    settings : Settings
    ended : callable
        ``ended(failed, seconds)`` is called when a job is done.
    """

    def __init__(self, queue: Queue, settings: Settings, ended: Callable[[bool, float], None]) -> None:
        self._queue, self._settings, self._ended = queue, settings, ended
        self._lock = threading.Lock()
        self._current: tuple[Job, subprocess.Popen[bytes]] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="builds", daemon=True)

    def start(self) -> None:
        """Begin; files of jobs that are no longer in the queue are removed."""
        builds = self._settings.work / "builds"
        builds.mkdir(parents=True, exist_ok=True)
        for folder in builds.iterdir():
            if self._queue.get(folder.name) is None:
                shutil.rmtree(folder, ignore_errors=True)
        self._thread.start()

    def stop(self, job_id: str) -> None:
        """End the process of a job that was removed from the queue, if it is being built."""
        with self._lock:
            if self._current is not None and self._current[0].id == job_id:
                self._current[1].kill()

    def close(self) -> None:
        """Stop, with the job that is being built."""
        with self._lock:
            self._closed = True
            if self._current is not None:
                self._current[1].kill()
        self._thread.join()

    def is_alive(self) -> bool:
        """Return whether jobs are built."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._closed:
            try:
                job = self._queue.first(_IDLE_S)
                if job is not None:
                    self._build(job)
            except OSError:  # such as a full disk: the job stays in the queue
                logger.exception("builds: tried again")
                time.sleep(_IDLE_S)

    def _build(self, job: Job) -> None:
        folder = self._settings.work / "builds" / job.id
        begun = time.monotonic()
        logger.info("job %s: %s vectors begun", job.id, f"{job.request.doc_count:,}")
        error = self._built(job, folder)
        if self._closed and error is not None:
            return  # to be resumed
        seconds = time.monotonic() - begun
        shutil.rmtree(folder, ignore_errors=True)
        if self._queue.has(job):
            self._queue.finish(job, error)
            self._ended(error is not None, seconds)
        logger.info("job %s: %s after %.1f s", job.id, error or "done", seconds)

    def _built(self, job: Job, folder: Path) -> str | None:
        """Have a job built; return why it failed, or None."""
        s = self._settings
        task = Task(request=job.request, storage=s.storage, work=folder, memory=s.memory, workers=s.workers)
        command = [sys.executable, "-m", "indexmill.jobs.service.builder"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with self._lock:
                self._current = (job, process)
                if self._closed or not self._queue.has(job):  # removed before there was a process to end
                    process.kill()
            try:
                process.stdin.write(task.model_dump_json().encode() + b"\n")
                process.stdin.flush()
                said = process.stdout.read()
            except BrokenPipeError:  # it ended before it was told what to build
                said = b""
            finally:
                with self._lock:
                    self._current = None
            code = process.wait()
        try:
            return Answer.model_validate_json(said.strip().rpartition(b"\n")[2]).error
        except ValidationError:
            why = f"signal {-code}" if code < 0 else f"exit code {code}"
            return f"the process of the build ended by {why}; if it was short of memory, lower --memory of the service"
