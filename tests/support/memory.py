"""Peak of a process's own memory while it runs a piece of code."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from textwrap import dedent, indent

_SCRIPT = """
import threading, time
from pathlib import Path

path = Path({path!r})
{setup}

def anonymous():
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024

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


def peak_growth(setup: str, measured: str, python: str = sys.executable) -> int:
    """Bytes by which anonymous memory grows at most while a fresh process runs `measured` after `setup`.

    Both see `path`, an empty directory. Arrow, numpy and Python count alike; mapped files do not. glibc gives back
    at once what is freed, as a fixed threshold makes it do, and Arrow allocates by it (its own pool may take 32 MiB for
    the first block), so that the peak is what is held.
    """
    return printed_and_growth(setup, measured, python)[-1]


def printed_and_growth(setup: str, measured: str, python: str = sys.executable) -> list[int]:
    """Return the numbers that the code prints, each on a line of its own, and last what `peak_growth` returns."""
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    with tempfile.TemporaryDirectory() as directory:
        script = _SCRIPT.format(
            path=directory, setup=dedent(setup), measured=indent(dedent(measured), "    ")
        )
        done = subprocess.run(
            [python, "-c", script], capture_output=True, text=True, check=False, env=environment
        )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.splitlines()]
