"""The process that builds one job: ``python -m indexmill.jobs.service.builder``, started by `runner`.

It leads a session of its own. Its standard input has one line of JSON, a `Task`, perhaps long after the start; until
then the process sees to it that the kernels of most jobs are compiled. The input stays open: where it ends, the service
is gone, and the process ends, too, with those that it started. Standard output has one line of JSON, an `Answer`.

A job has a process of its own, so that what memory it took is given back, and a job that is removed can be ended.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

from pydantic import BaseModel

from indexmill.formats.errors import BudgetError, IndexmillError, StorageError
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.jobs.service.request import BuildRequest, IndexParameters
from indexmill.pipeline.hnsw.run import Place, build_hnsw, compile_for, discard_unfinished

#: Folder of a build within that of its job.
BUILD = "build"
#: What is built, beside it: names what the build of a job that was removed left on storage.
REQUEST = "request.json"
#: Errors of storage and of a full disk, after which finished stages serve another try.
_RESUMABLE = (StorageError, BudgetError, OSError)
#: Spaces of floats, the contract's default type, for which kernels are compiled before there is a job.
_LIKELY_SPACES: tuple[Literal["l2", "innerproduct"], ...] = ("l2", "innerproduct")
#: Vectors of such a job, which is not built: more than in one that compiles for itself, few enough for one piece.
_LIKELY_COUNT = 100_000


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
    """How a job ended.

    Attributes
    ----------
    error : str or None
        Why it failed, if it did.
    resumable : bool
        Whether another try may succeed and goes on from the files of this one.
    """

    error: str | None
    resumable: bool = False


def build(task: Task) -> Answer:
    """Build a job, once an earlier process that was at it has ended."""
    task.work.mkdir(parents=True, exist_ok=True)
    with open(task.work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = Place(task.work / BUILD, task.memory, task.workers)
        try:
            write_json_atomic(task.work / REQUEST, task.request.model_dump())
            build_hnsw(task.request.job(task.storage), place)
        except (IndexmillError, MemoryError, OSError) as error:
            traceback.print_exc()
            return Answer(error=str(error) or type(error).__name__, resumable=isinstance(error, _RESUMABLE))
        except Exception as error:
            traceback.print_exc()
            return Answer(
                error=f"internal error ({type(error).__name__}); the log of the service has its place"
            )
    return Answer(error=None)


def prepare(is_idle: Callable[[], bool]) -> None:
    """Compile the kernels of likely jobs, of floats in one piece, where the cache lacks them.

    The first large build after an installation would do so otherwise, while its client waits.

    Parameters
    ----------
    is_idle : callable
        Tells before each job whether to go on.
    """
    for space in _LIKELY_SPACES:
        if not is_idle():
            return
        request = BuildRequest(
            container_name="none", vector_path="none.knnvec", doc_id_path="none.knndid", dimension=16,
            doc_count=_LIKELY_COUNT, index_parameters=IndexParameters(space_type=space),
        )  # fmt: skip
        with suppress(IndexmillError, OSError):  # which a build meets, too, and tells
            compile_for(request.job("file:///{container}"), memory=1 << 30, workers=1)


def discard(folder: Path, storage: str) -> None:
    """Delete from storage what the build of a job's folder left that was killed while it put its file there.

    Raises
    ------
    StorageError
        If storage refuses, or does not answer for a long time.
    """
    request = folder / REQUEST
    if request.exists():
        job = BuildRequest.model_validate_json(request.read_bytes()).job(storage)
        discard_unfinished(job, folder / BUILD)


def _listen(tasks: SimpleQueue[bytes]) -> None:
    """Pass on the line of standard input, and end the process where that ends."""
    if line := sys.stdin.buffer.readline():
        tasks.put(line)
    while os.read(sys.stdin.fileno(), 1):
        pass
    _end()


def _end() -> None:
    """End at once, with what was started: the process leads a session."""
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Build the job of standard input, once it comes."""
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), name="listen", daemon=True).start()
    prepare(tasks.empty)
    task = Task.model_validate_json(tasks.get())
    sys.stdout.write(build(task).model_dump_json() + "\n")
    sys.stdout.flush()
    _end()  # all is written, and the interpreter would take a tenth of a second to give back what it loaded


if __name__ == "__main__":
    main()
