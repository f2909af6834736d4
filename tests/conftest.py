"""Fixtures that several test modules share, and the groups of tests that run in one process."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from tests.support.in_memory import has_room
from tests.support.indexes.built import Built
from tests.support.indexes.clusters import Clustered, make_clustered
from tests.support.slow import SLOW

from indexmill.pipeline.execution import failpoint
from indexmill.pipeline.mill.peak import ProcessTree

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three

ROOT = Path(__file__).parent
#: Files of tests lie in memory where so many bytes are free: searches read thousands of pages past the page cache, and
#: wait for a disk each time.
IN_MEMORY, FREE_BYTES = Path("/dev/shm"), 12 << 30
if has_room(IN_MEMORY, FREE_BYTES):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
#: Tests that ask for these fixtures, or lie below these folders, have a marker.
MARKED_FIXTURES = {"browser": "browser", "driver": "kill", "three": "ray"}
MARKED_FOLDERS = {ROOT / "jobs/bench": "bench"}
#: Long tests begin first where processes share the work, so that a short one ends last.
LONG = ("ray", "memory", "kill")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests, and group those that must run in one process: those of Ray, and those of a module."""
    groups: dict[pytest.Item, str] = {}
    slow = set(SLOW.read_text().split())
    for item in items:
        if item.nodeid.removeprefix("tests/").partition("[")[0] in slow:
            item.add_marker("slow")
        for fixture, marker in MARKED_FIXTURES.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
        for folder, marker in MARKED_FOLDERS.items():
            if folder in item.path.parents:
                item.add_marker(marker)
        groups[item] = "ray" if item.get_closest_marker("ray") else str(item.path.relative_to(ROOT))
        item.add_marker(pytest.mark.xdist_group(groups[item]))
    ranks: dict[str, int] = {}
    for item, group in groups.items():
        rank = min((i for i, marker in enumerate(LONG) if item.get_closest_marker(marker)), default=len(LONG))
        ranks[group] = min(rank, ranks.get(group, rank))
    items.sort(key=lambda item: ranks[groups[item]])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run where xdist would send each test to any process: groups share a Ray cluster and built indexes."""
    if getattr(session.config.option, "loadgroup", False):
        assert all("@" in item.nodeid for item in session.items), "xdist does not see the groups of tests"
    gc.freeze()  # thousands of tests and their modules stay: no collection has to look through them


@pytest.fixture(scope="session", autouse=True)
def power_stays_on() -> Iterator[None]:
    """Wait for no disk: files of tests need not outlive a loss of power, and waiting took a quarter of the time."""
    with patch("os.fsync", lambda descriptor: None):
        yield


@pytest.fixture(scope="session", autouse=True)
def kernels_are_compiled_here() -> Iterator[None]:
    """Rehearse no build of a test's own process, whose memory no test measures: each rehearsal starts a process."""
    with (
        patch("indexmill.pipeline.build.compile_kernels", lambda *_: None),
        patch("indexmill.pipeline.hnsw.run.compile_kernels", lambda *_: None),
    ):
        yield


_counted = ProcessTree.counted


@pytest.fixture(scope="session", autouse=True)
def children_do_not_count() -> Iterator[None]:
    """Count the memory of a test's process alone: its children serve other tests, and to look at several takes long."""
    with patch.object(ProcessTree, "counted", _only_this_process):
        yield


def _only_this_process(tree: ProcessTree) -> list[int | str]:
    return ["self"] if tree.root == "self" else _counted(tree)


@pytest.fixture(autouse=True)
def children_count_where_they_matter(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, children_do_not_count: None
) -> None:
    if any(map(request.node.get_closest_marker, ("memory", "ray"))):
        monkeypatch.setattr(ProcessTree, "counted", _counted)


@pytest.fixture(scope="session")
def disk() -> Iterator[Path]:
    """A folder on a disk. Pages of files that lie in memory count as memory of the processes that map them."""
    with tempfile.TemporaryDirectory(prefix="indexmill-tests-") as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path, disk: Path) -> Iterator[Path]:
    """pytest's own folder of a test; on a disk where memory is measured."""
    if request.node.get_closest_marker("memory") is None:
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir=disk) as folder:
            yield Path(folder)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Built:
    """Make indexes to read: see `Built`."""
    folder = tmp_path_factory.getbasetemp()
    in_worker = hasattr(request.config, "workerinput")  # one of several processes
    return Built((folder.parent if in_worker else folder) / "built")


@pytest.fixture(scope="session")
def clustered(built: Built) -> Clustered:
    return make_clustered(built)


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """A Ray cluster of three nodes, which takes about 8 s to start; Ray is loaded here, by tests that use it."""
    from tests.support.processes.ray_cluster import three_nodes

    with three_nodes(tmp_path_factory.mktemp("mirrors")) as cluster:
        yield cluster


@pytest.fixture
def arm() -> Iterator[Callable[[str], None]]:
    """Set a failpoint of this process for the rest of a test."""
    yield failpoint.arm
    failpoint.arm("")
