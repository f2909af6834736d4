"""Peak of a process's own memory while it runs a piece of code."""

from __future__ import annotations

import os
import subprocess
import tempfile
from textwrap import dedent, indent

from tests.support.processes.forks import ALLOCATOR, run_forked

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
