"""The peak memory of a tree of processes: which memory counts, and the cost of a sample."""

from __future__ import annotations

import mmap
import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from indexmill.pipeline.mill import peak as memory
from indexmill.pipeline.mill.peak import PeakMemory, ProcessTree

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three


MIB = 2**20
FILL = "import numpy, sys; a = numpy.ones({bytes}, 'u1'); print('ready', flush=True); sys.stdin.read()"

pytestmark = [
    pytest.mark.memory,
    pytest.mark.skipif(not memory.has_proportional_sizes(), reason="this system has no smaps_rollup"),
]


@contextmanager
def program(source: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child until it says that it is ready; it ends with the block."""
    child = subprocess.Popen(
        [sys.executable, "-c", source, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
    finally:
        child.communicate()


def peak_of(work: Callable[[], object]) -> int:
    """Bytes by which `work` raises the peak of this process tree."""
    with PeakMemory(interval_s=0.01) as before:
        pass
    with PeakMemory(interval_s=0.01) as peak:
        held = work()
        time.sleep(0.05)
        del held
    assert peak.note is None
    return peak.bytes - before.bytes


def test_memory_that_was_let_go_is_still_the_peak() -> None:
    """In a process of its own: what this one has freed may be used again."""
    fill = "a = bytearray(b'1') * (100 << 20); import time; time.sleep(0.5); del a; print('ready', flush=True); input()"
    idle = "print('ready', flush=True); input()"
    with program(idle) as child, PeakMemory(child.pid, interval_s=0.01) as before:
        time.sleep(0.1)
    with subprocess.Popen(
        [sys.executable, "-c", f"input(); {fill}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with PeakMemory(child.pid, interval_s=0.002) as peak:
            child.stdin.write(b"go\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"ready\n"
        child.stdin.close()
    assert peak.bytes - before.bytes == pytest.approx(100 * MIB, abs=5 * MIB)


def test_a_mapped_file_is_page_cache_and_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "file"
    np.ones(100 * MIB, np.uint8).tofile(path)

    def read() -> Any:
        rows = np.memmap(path, np.uint8, "r")
        assert rows[:: mmap.PAGESIZE].sum() == len(rows) // mmap.PAGESIZE
        return rows

    assert peak_of(read) < 5 * MIB


def test_children_and_grandchildren_count() -> None:
    nested = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FILL.format(bytes=60 * MIB)!r}])"
    )
    with program(nested) as child:
        with PeakMemory() as peak:
            pass
        with PeakMemory(child.pid) as part:
            pass
        assert part.bytes > 60 * MIB
        assert peak.bytes > part.bytes


def _touch_and_wait(shared: mmap.mmap, ready: Any, done: Any) -> None:
    assert np.frombuffer(shared, np.uint8)[:: mmap.PAGESIZE].sum() > 0
    ready.set()
    done.wait()


def test_memory_that_processes_share_counts_once() -> None:
    shared = mmap.mmap(-1, 100 * MIB)
    context = multiprocessing.get_context("fork")

    def share() -> None:
        rows = np.ndarray(len(shared), np.uint8, shared)
        rows[:: mmap.PAGESIZE] = 1
        done = context.Event()
        ready = [context.Event() for _ in range(2)]
        children = [context.Process(target=_touch_and_wait, args=(shared, event, done)) for event in ready]
        for child in children:
            child.start()
        assert all(event.wait(30) for event in ready)
        time.sleep(0.1)
        done.set()
        for child in children:
            child.join()
            assert child.exitcode == 0

    assert peak_of(share) == pytest.approx(100 * MIB, rel=0.3)


def test_processes_that_end_while_they_are_counted_are_no_error() -> None:
    with PeakMemory(interval_s=0.001) as peak:
        for _ in range(5):
            with program("print('ready', flush=True)"):
                pass
    assert peak.note is None
    assert peak.bytes > 0
    with program("print('ready', flush=True)") as child:
        pass
    gone = child.pid
    assert (memory.proportional_bytes(gone), memory.resident_bytes(gone), memory.child_pids(gone)) == (
        0,
        0,
        [],
    )


def test_a_failing_block_keeps_its_error_and_ends_the_thread() -> None:
    peak, before = PeakMemory(), set(threading.enumerate())
    with pytest.raises(ValueError, match="own"), peak:
        raise ValueError("its own")
    assert peak.bytes > 0
    assert set(threading.enumerate()) <= before


# A process with a title of its own choice, as Ray's workers have: it executes itself under that name.
TITLED = "exec -a '{title}' {python} -c \"{source}\""


@contextmanager
def titled(title: str) -> Iterator[int]:
    source = "import sys; print('ready', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        ["bash", "-c", TITLED.format(title=title, python=sys.executable, source=source)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child.pid
    finally:
        child.communicate()


@pytest.mark.parametrize(
    ("title", "counts"),
    [
        ("ray::run_single_threaded", True),
        ("python", True),
        ("ray::IDLE", False),
        ("ray::IDLE_SpillWorker", False),
        ("ray::SPILL_SpillWorker", False),
        ("ray::DashboardAgent", False),
        ("/opt/ray/core/src/ray/raylet/raylet", False),
        ("/opt/ray/core/src/ray/gcs/gcs_server", False),
        ("python -u /opt/ray/_private/log_monitor.py", False),
        ("python /data/ray/core/vectors.npy", True),
    ],
)
def test_daemons_and_idle_workers_of_ray_do_not_count(title: str, counts: bool) -> None:
    with titled(title) as pid:
        assert (pid in ProcessTree().counted()) == counts


def test_a_worker_below_a_daemon_counts_from_its_first_task_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree: driver -> raylet -> worker -> a child of the worker; raylet -> a shell."""
    children = {"self": [1], 1: [2, 3], 2: [4]}
    titles = {1: b"/x/raylet\0--a", 2: b"ray::IDLE", 3: b"/bin/sh\0", 4: b"cc\0"}
    monkeypatch.setattr(memory, "child_pids", lambda pid: children.get(pid, []))
    monkeypatch.setattr(memory, "command_line", lambda pid: titles[pid])
    tree = ProcessTree()
    assert tree.counted() == ["self"]
    titles[2] = b"ray::task"
    assert sorted(tree.counted(), key=str) == [2, 4, "self"]
    titles[2] = b"ray::IDLE"
    assert sorted(tree.counted(), key=str) == [2, 4, "self"]
    del children[1]
    assert tree.counted() == ["self"]


def test_ray_counts_with_its_working_workers_alone(three: Three) -> None:
    three.executor.share(0)  # connects, if another test closed it
    tree = ProcessTree()
    others = set(tree.counted())  # of tests before this one
    results = three.executor.map(time.sleep, [(1.5,), (1.5,)])
    working = threading.Thread(target=lambda: list(results))
    working.start()
    titles: dict[int | str, bytes] = {}
    while working.is_alive():
        pids = set(tree.counted()) - others
        titles |= {pid: memory.command_line(pid) for pid in pids if isinstance(pid, int)}
    # A title read just after the task's end is idle again. On a busy machine one worker may have both tasks.
    assert 1 <= len(titles) <= 2
    assert all(title.startswith(b"ray::") for title in titles.values())
    assert len(memory.child_pids("self")) >= 2, "Ray's daemons are children of this process"


def test_where_there_is_no_smaps_rollup_the_high_water_mark_stands_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "has_proportional_sizes", lambda: False)
    with PeakMemory() as peak:
        pass
    assert peak.bytes > memory.resident_bytes("self")
    assert peak.note is not None
    assert "no smaps_rollup" in peak.note


def test_an_unreadable_process_counts_with_its_resident_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = memory.sum_fields

    def refuse(path: str, names: tuple[str, ...]) -> int:
        if path.endswith("smaps_rollup"):
            raise PermissionError(path)
        return whole(path, names)

    monkeypatch.setattr(memory, "sum_fields", refuse)
    assert memory.proportional_bytes("self") == pytest.approx(memory.resident_bytes("self"), rel=0.2)
    assert memory.proportional_bytes("self") > 0


def test_a_costly_sample_is_followed_by_a_long_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """In processor time of the sampler's thread, so that a busy machine changes nothing."""
    whole = memory.resident_bytes
    samples = []

    def slow(pid: int | str) -> int:
        samples.append(pid)
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        return whole(pid)

    monkeypatch.setattr(memory, "resident_bytes", slow)
    monkeypatch.setattr(ProcessTree, "counted", lambda tree: ["self"])
    with PeakMemory():
        time.sleep(0.5)
    assert 2 <= len(samples) <= 3, "one before, one at the end, and one in between, whose rest is a second"
