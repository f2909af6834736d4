"""Tasks that the tests send to Ray: module-level, and importing little, since every worker process imports them."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from ray import exceptions as ray_errors

from indexmill.formats.errors import InputError


def data(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * 1000


def write_digest(number: int, pause: float, out: str) -> str:
    """Write bytes that follow from `number`, and return their digest."""
    time.sleep(pause)
    Path(out).write_bytes(data(number))
    return hashlib.sha256(data(number)).hexdigest()


def join(parts: list[str], out: str, threads: int) -> str:
    """Write `parts` behind each other, and return the mirror they lie in."""
    time.sleep(0.5)
    Path(out).write_bytes(b"".join(Path(part).read_bytes() for part in parts))
    return os.environ["INDEXMILL_MIRROR"]


def where(number: int, pauses: dict[str, float]) -> str:
    """Return the node that this runs on, after the pause `pauses` has for it."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    time.sleep(pauses.get(node, 0.0))
    return str(node)


def span(seconds: float, threads: int) -> tuple[float, float, int]:
    """Return when this began and ended, and its threads."""
    begun = time.time()
    time.sleep(seconds)
    return begun, time.time(), threads


def die_once(marker: str, how: str) -> str:
    """Die the first time: by ``SIGKILL``, or by an error; later return `how`."""
    if not Path(marker).exists():
        Path(marker).touch()
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "shared value lost":
            raise ray_errors.OwnerDiedError("00", None, "")
        raise MemoryError(how)
    return how


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(number: int) -> int:
    if number == 3:
        raise InputError("part-3.npy: row 7 holds NaN")
    return number


def fill_disk(number: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"part-{number}")


def weigh(wrapped: tuple[list[Any], dict[str, int]]) -> tuple[float, bool]:
    """Return the sum of a shared array and whether it can be written."""
    (points,), factors = wrapped
    return float(points.sum()) * factors["factor"], bool(points.flags.writeable)


def thread_counts(number: int) -> list[int]:
    """Return the threads of every pool that a task finds."""
    import numba
    import numpy as np
    from threadpoolctl import threadpool_info

    np.ones((4, 4)) @ np.ones((4, 4))
    return [numba.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())]


def hang(number: int, started: str) -> None:
    """Say that this runs, then run on."""
    Path(started).write_text(str(os.getpid()))
    time.sleep(600)


def first_then_hang(number: int, started: str) -> None:
    """Return if this is task 0, else run on."""
    if number == 0:
        Path(started).write_text(str(os.getpid()))
    else:
        hang(number, started)
