"""The process that builds one job: ``python -m indexmill.jobs.service.builder``, started by `runner`.

Its standard input has one line of JSON, a `Task`, and stays open: where it ends, the service is gone, and the process
ends, too. Standard output has one line of JSON, an `Answer`.

A job has a process of its own, so that what memory it took is given back, and a job that is removed can be ended.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from pydantic import BaseModel

from indexmill.formats.errors import IndexmillError
from indexmill.jobs.service.request import BuildRequest
from indexmill.pipeline.hnsw.run import Place, build_hnsw


class Task(BaseModel):
    """What to build, and where.

    `storage` may hold credentials, which would be seen in a file, or among the arguments of a process.
    """

    request: BuildRequest
    storage: str
    work: Path
    memory: int
    workers: int


class Answer(BaseModel):
    """Why the job failed, if it did."""

    error: str | None


def build(task: Task) -> Answer:
    """Build a job, once an earlier process that was at it has ended."""
    task.work.mkdir(parents=True, exist_ok=True)
    with open(task.work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = Place(task.work / "build", task.memory, task.workers)
        try:
            build_hnsw(task.request.job(task.storage), place)
        except (IndexmillError, MemoryError, OSError) as error:
            traceback.print_exc()
            return Answer(error=str(error) or type(error).__name__)
        except Exception as error:
            traceback.print_exc()
            return Answer(
                error=f"internal error ({type(error).__name__}); the log of the service has its place"
            )
    return Answer(error=None)


def _end_with_service() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Build the job of standard input."""
    task = Task.model_validate_json(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_service, name="end-with-service", daemon=True).start()
    sys.stdout.write(build(task).model_dump_json() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
