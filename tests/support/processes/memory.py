"""Peak of a process's own memory while it runs a piece of code or a command, and the budget that a run asks for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from textwrap import dedent, indent
from typing import Any

import pytest
from tests.support.processes.forks import ALLOCATOR, run_forked

from indexmill.formats.errors import BudgetError
from indexmill.pipeline.mill.peak import PeakMemory, has_proportional_sizes

needs_sizes = pytest.mark.skipif(not has_proportional_sizes(), reason="needs Linux's smaps_rollup")

_SCRIPT = """
import threading, time
from pathlib import Path

path = Path({path!r})
{setup}

def anonymous():  # resident and not of a file; pages of the parent that are written stay as many
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return (resident - shared) * 4096

peak, running = 0, True
def sample():
    global peak
    while running:
        peak = max(peak, anonymous())
        time.sleep(0.0005)

before = anonymous()
thread = threading.Thread(target=sample)
thread.start()
try:
{measured}
finally:
    running = False
    thread.join()
print(peak - before)
"""


def peak_growth(setup: str, measured: str, python: str | None = None) -> int:
    """Bytes by which anonymous memory grows at most while a process runs `measured` after `setup`.

    Both see `path`, an empty directory. Arrow, numpy and Python count alike; mapped files do not. `python` is another
    interpreter than this one.
    """
    return printed_and_growth(setup, measured, python)[-1]


def printed_and_growth(setup: str, measured: str, python: str | None = None) -> list[int]:
    """Return the numbers that the code prints, each on a line of its own, and last what `peak_growth` returns."""
    with tempfile.TemporaryDirectory() as directory:
        script = _SCRIPT.format(
            path=directory, setup=dedent(setup), measured=indent(dedent(measured), "    ")
        )
        if python is None:
            done = run_forked(script)
        else:
            done = subprocess.run(
                [python, "-c", script],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, **ALLOCATOR},
            )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.splitlines()]


def least_budget(run: Callable[..., Any]) -> int:
    """Return the smallest budget that `run` accepts as `memory`, as its refusal of a smaller one names it.

    If that may be too little, too, `run` is called with it.
    """
    with pytest.raises(BudgetError) as refusal:
        run(memory="1MiB")
    least = _named(refusal.value)
    if "or more if" in str(refusal.value):
        try:
            run(memory=least)
        except BudgetError as error:
            least = _named(error)
    return least


def _named(refusal: BudgetError) -> int:
    return int(re.search(r"give at least ([\d,]+)", str(refusal))[1].replace(",", ""))


def peak_of_command(budget: int, *arguments: object) -> int:
    """Run a command of indexmill within `budget` bytes; return its peak memory."""
    command = [sys.executable, "-m", "indexmill.jobs.cli.main", *arguments, "--memory", budget]
    child = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    with PeakMemory(child.pid, interval_s=0.002) as sampled:
        assert child.wait() == 0
    return sampled.bytes
