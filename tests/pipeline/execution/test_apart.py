"""Tasks in processes of their own answer as they would here, and end with the process that called them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.processes import apart_tasks as tasks

from indexmill.formats.errors import BudgetError, InputError
from indexmill.pipeline.execution.apart import call_apart


def test_a_task_has_a_process_of_its_own_whatever_it_prints() -> None:
    found, process = call_apart(tasks.weigh, np.ones(1 << 20, np.float32), factor=0.5)
    assert found == 1 << 19
    assert process != os.getpid()


def test_an_error_of_ours_arrives_as_itself() -> None:
    with pytest.raises(InputError, match=r"^part-3\.npy: row 7 holds NaN$"):
        call_apart(tasks.refuse, "part-3.npy")


def test_steps_are_reported_in_order() -> None:
    steps: list[int] = []
    assert call_apart(tasks.count, 5, advance=steps.append) == 5
    assert steps == [0, 1, 2, 3, 4]


def test_a_process_that_dies_is_named_by_its_task() -> None:
    with pytest.raises(BudgetError, match=r"die: its process ended with status -9.*lower --memory"):
        call_apart(tasks.die)


@pytest.mark.kill
def test_a_process_ends_with_its_caller(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import sys; from tests.support.processes.apart_tasks import linger; "
        "from indexmill.pipeline.execution.apart import call_apart; call_apart(linger, sys.argv[1])"
    )
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "-c", code, str(note)], env=variables) as caller:
        _until(lambda: note.exists() and note.read_text() != "")
        caller.kill()
    process = Path("/proc") / note.read_text()
    _until(lambda: not process.exists())


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
