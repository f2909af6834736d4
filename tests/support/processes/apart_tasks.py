"""Tasks that the tests of `call_apart` send to processes of their own, which import this module."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError


def weigh(numbers: NDArray[np.float32], factor: float) -> tuple[float, int]:
    """Return a sum, and the process that computed it; what is printed is no answer."""
    print("chatter")
    return float(numbers.sum()) * factor, os.getpid()


def refuse(name: str) -> None:
    raise InputError(f"{name}: row 7 holds NaN")


def count(n: int, advance: Callable[[int], None]) -> int:
    for step in range(n):
        advance(step)
    return n


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def linger(note: str) -> None:
    """Say which process this is, and sleep."""
    Path(note).write_text(str(os.getpid()))
    time.sleep(60)
