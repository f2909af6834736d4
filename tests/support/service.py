"""The service of builds in a process of its own, and a client of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

TOKEN = "a token of some length"
HEADER = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def running(
    work: Path, storage: str, **environment: str
) -> Iterator[tuple[httpx2.Client, subprocess.Popen[bytes]]]:
    """A service, whose log lies beside its work directory, and a client with its token."""
    options = ["--work", work, "--storage", storage, "--port", "0", "--memory", "1GiB"]
    command = [sys.executable, "-m", "indexmill.jobs.cli.main", "serve-builds", *options]
    variables = os.environ | {"INDEXMILL_SERVICE_TOKEN": TOKEN} | environment
    log = work.with_suffix(".log")
    with open(log, "w") as file, subprocess.Popen(command, stderr=file, env=variables) as process:
        try:
            end = time.monotonic() + 60
            while "\n" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end
                time.sleep(0.01)
            found = re.match(r"listening on (http://127\.0\.0\.1:\d+)\n", log.read_text())
            assert found, log.read_text()
            with httpx2.Client(base_url=found[1], headers=HEADER, timeout=60) as client:
                yield client, process
        finally:
            process.terminate()  # a killed one would leave the process of its build to write for a moment


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, for a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
