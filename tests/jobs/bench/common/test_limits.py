"""Commands under a memory limit of the kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.jobs.bench.common import cgroup
from indexmill.jobs.bench.common.cgroup import Group, NoLimits

MIB = 2**20
FILL = "a = bytearray({bytes}); a[::4096] = b'1' * len(a[::4096])"
READ = "import sys\nwith open(sys.argv[1], 'rb') as f:\n    while f.read(1 << 20): pass"


@pytest.fixture
def group() -> Iterator[Group]:
    try:
        with cgroup.memory_limit(100 * MIB) as made:
            yield made
    except NoLimits as reason:
        pytest.skip(str(reason))
    assert not made.folder.exists()


def python(group: Group, source: str, *arguments: object) -> int:
    return subprocess.run(group.wrap([sys.executable, "-c", source, *arguments])).returncode


def test_a_command_within_its_limit_ends_well_and_its_peak_is_told(group: Group) -> None:
    assert python(group, FILL.format(bytes=50 * MIB)) == 0
    pressure = group.pressure()
    assert pressure.oom_kills == 0
    assert pressure.limit_bytes == 100 * MIB
    assert pressure.peak_bytes is None or 50 * MIB < pressure.peak_bytes < 80 * MIB


def test_a_command_beyond_its_limit_is_killed(group: Group) -> None:
    assert python(group, FILL.format(bytes=150 * MIB)) == -9
    assert group.pressure().oom_kills == 1


def test_children_are_in_the_group_too(group: Group) -> None:
    fill = FILL.format(bytes=150 * MIB)
    assert python(group, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {fill!r}])") == 0
    assert group.pressure().oom_kills == 1


def test_page_cache_is_given_back_instead(group: Group, disk: Path) -> None:
    path = disk / "file"
    with open(path, "wb") as file:
        for _ in range(150):
            file.write(bytes(MIB))
    # Cold, so that it is charged to its reader; dirty pages would be charged to this process for good.
    subprocess.run(["sync", path], check=True)
    subprocess.run(["dd", f"of={path}", "oflag=nocache", "conv=notrunc,fdatasync", "count=0"], check=True)
    assert python(group, READ, path) == 0
    pressure = group.pressure()
    assert pressure.oom_kills == 0
    assert pressure.limit_hits > 0 or (pressure.peak_bytes or 0) > 95 * MIB


def test_what_still_runs_ends_with_its_group() -> None:
    try:
        with cgroup.memory_limit(100 * MIB) as group:
            child = subprocess.Popen(group.wrap(["sleep", "600"]))
            while not (group.folder / "cgroup.procs").read_text():
                assert child.poll() is None
    except NoLimits as reason:
        pytest.skip(str(reason))
    assert child.wait(10) == -9
    assert not group.folder.exists()


@pytest.mark.parametrize(("at_least", "cached"), [(0, True), (150 * MIB, False)])
def test_a_limit_is_lowered_to_what_a_command_holds_unless_more_is_left_to_it(
    at_least: int, cached: bool
) -> None:
    told = "import sys; print(10 * 2**20, flush=True); sys.stdin.readline(); print('{}')"
    try:
        found = cgroup.run_lowered([sys.executable, "-c", told], 20 * MIB, at_least=at_least)
    except NoLimits as reason:
        pytest.skip(str(reason))
    assert found["held_bytes"] == 10 * MIB
    assert found["limit_bytes"] == (54 * MIB if cached else at_least)


def test_a_machine_without_the_controller_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "mounts", lambda kind: iter(()))
    with pytest.raises(NoLimits, match="memory controller"), cgroup.memory_limit(MIB):
        raise AssertionError("there is no group")


def test_version_2_tells_its_figures_by_other_names(tmp_path: Path) -> None:
    group = Group(tmp_path, 2, 5)
    (tmp_path / "memory.swap.max").write_text("max")
    group.set_limit()
    assert (tmp_path / "memory.max").read_text() == "5"
    assert (tmp_path / "memory.swap.max").read_text() == "0"
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n")
    assert group.pressure() == cgroup.Pressure(5, None, 7, 1)
    (tmp_path / "memory.peak").write_text("4\n")
    assert group.pressure().peak_bytes == 4
