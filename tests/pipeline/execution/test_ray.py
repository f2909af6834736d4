"""Tasks on a Ray cluster of three nodes, and on one that is started for the build."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import ray
import yaml
from tests.support.indexes.builds import build, clustered, data_files
from tests.support.indexes.ivf import build_lists, join, make_vectors
from tests.support.processes import ray_tasks as tasks
from tests.support.processes.ray_cluster import STORE, Three
from tests.support.s3 import flaky_server

from indexmill.builders.nearest.panels import in_panels
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.ivf.batch import batch_name
from indexmill.pipeline.execution.ray import RayExecutor
from indexmill.pipeline.join.platform import Worker
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.urls.localised import run_localised
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE, Storage

pytestmark = pytest.mark.ray


def digest(number: int) -> str:
    return hashlib.sha256(tasks.data(number)).hexdigest()


def test_results_come_in_order_though_later_tasks_end_first(three: Three, tmp_path: Path) -> None:
    work = [(i, 0.02 * (12 - i), str(tmp_path / str(i))) for i in range(12)]
    assert list(three.executor.map(tasks.write_digest, work)) == [digest(i) for i in range(12)]


def test_an_error_of_ours_arrives_as_itself(three: Three) -> None:
    with pytest.raises(InputError, match=r"^part-3\.npy: row 7 holds NaN$"):
        list(three.executor.map(tasks.refuse, [(i,) for i in range(6)]))


def test_a_full_disk_arrives_with_its_errno(three: Three) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        list(three.executor.map(tasks.fill_disk, [(0,)]))
    assert type(caught.value) is OSError
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "part-0")


def test_a_shared_value_is_found_inside_arguments_and_is_read_only(three: Three) -> None:
    points = three.executor.share(np.ones(1 << 20, np.float32))
    found = list(three.executor.map(tasks.weigh, [((([points], {"factor": i})),) for i in range(4)]))
    assert found == [(i * float(1 << 20), False) for i in range(4)]


def test_every_pool_of_threads_is_pinned_to_one(three: Three) -> None:
    counts = list(three.executor.map(tasks.thread_counts, [(i,) for i in range(8)]))
    assert all(len(c) >= 2 and set(c) == {1} for c in counts), counts


def test_wide_tasks_fill_a_node_each_and_run_beside_each_other(three: Three) -> None:
    spans = list(three.executor.map(tasks.span, [(1.5,), (1.5,)], wide=True))
    assert sorted(threads for _, _, threads in spans) == [1, 2]
    assert max(begun for begun, _, _ in spans) < min(ended for _, ended, _ in spans)
    assert three.executor.call(tasks.span, 0.0)[2] in (1, 2)


def test_a_node_runs_no_more_tasks_than_fit_it(three: Three) -> None:
    spans = list(three.executor.map(tasks.span, [(0.2, 1)] * 12, at_once=1))
    for moment in [begun for begun, _, _ in spans]:
        assert sum(begun <= moment < ended for begun, ended, _ in spans) <= 3  # nodes


def test_a_node_declared_slower_gets_fewer_tasks(three: Three) -> None:
    list(three.executor.map(tasks.where, [(i, {}) for i in range(4)]))  # worker processes are there
    pauses = {m["NodeID"]: 0.1 for m in ray.nodes()} | {three.slow: 0.4}
    counts = Counter(three.executor.map(tasks.where, [(i, pauses) for i in range(39)]))
    assert 1 <= counts[three.slow] <= 7, (
        counts
    )  # 39 tasks at 10 + 10 + 10 and 2.5 a second: 3; split evenly: 10
    assert sum(counts.values()) == 39


@pytest.mark.parametrize("how", ["killed", "out of memory", "shared value lost"])
def test_a_task_that_dies_is_run_again(three: Three, tmp_path: Path, how: str) -> None:
    work = [(str(tmp_path / str(i)), how) for i in range(3)]
    assert list(three.executor.map(tasks.die_once, work)) == [how] * 3


def test_a_task_that_always_dies_ends_the_build_and_says_what_to_change(three: Three) -> None:
    with pytest.raises(BudgetError, match=r"die: task 0 of 1 died 5 times.*lower --memory"):
        list(three.executor.map(tasks.die, [(0,)]))


def test_a_task_larger_than_every_node_is_refused(three: Three) -> None:
    with pytest.raises(BudgetError, match="no node offers more than"):
        list(three.executor.map(tasks.refuse, [(1,)], memory=1 << 60))


def test_a_node_without_the_unit_that_it_names_refuses_tasks(three: Three) -> None:
    node = three.cluster.add_node(
        num_cpus=1,
        object_store_memory=STORE,
        resources={"odd": 1},
        env_vars=three.mirror() | {"INDEXMILL_ISA": "sse9"},
    )
    try:
        rows = np.zeros((2, 4), np.uint8)
        assert len(list(three.executor.map(in_panels, [(rows,)], at="drive-1"))) == 1
        with pytest.raises(ConfigError, match=r'^INDEXMILL_ISA: expected a unit that host .* got "sse9"'):
            list(three.executor.map(in_panels, [(rows,)], at="odd"))
    finally:
        three.cluster.remove_node(node)


def test_a_node_removed_without_warning_changes_no_byte(three: Three, tmp_path: Path) -> None:
    work = [(i, 0.2, str(tmp_path / f"{i:03d}")) for i in range(40)]
    found = []
    for result in three.executor.map(tasks.write_digest, work):
        found.append(result)
        if len(found) == 6:
            three.lose()
    assert found == [digest(i) for i in range(40)]
    assert [hashlib.sha256(Path(out).read_bytes()).hexdigest() for _, _, out in work] == found
    three.add()
    pauses = {m["NodeID"]: 0.2 for m in ray.nodes()}
    nodes = set(three.executor.map(tasks.where, [(i, pauses) for i in range(12)]))
    assert three.victim.node_id in nodes  # the one that joined is used


def test_nodes_that_share_only_an_object_store_give_the_bytes_of_one(three: Three, tmp_path: Path) -> None:
    with flaky_server() as server:
        server.failing = lambda request: request % 10 == 0
        work = Storage(server.url, str(tmp_path / "driver"))
        names = [f"parts-1/{i:03d}" for i in range(16)]
        calls = [(work.url, tasks.write_digest, (i, 0.1), name) for i, name in enumerate(names)]
        found = []
        for result in three.executor.map(run_localised, calls):
            found.append(result)
            if len(found) == 4:
                three.lose()
        assert found == [digest(i) for i in range(16)]
        three.add()
        packed = work.pack(([str(work.local(name)) for name in names],))
        joins = [(work.url, tasks.join, packed, f"joined-1/{i}") for i in range(3)]
        mirrors = set(three.executor.map(run_localised, joins, wide=True))
        assert server.failed > 5
        expected = b"".join(tasks.data(i) for i in range(16))
        assert [work.fetch(f"joined-1/{i}").read_bytes() == expected for i in range(3)] == [True] * 3
        assert len(mirrors) >= 2, mirrors  # nodes read what others wrote


def test_a_build_that_loses_a_node_gives_the_bytes_of_one_machine(
    three: Three, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(900, 8)
    alone = build(tmp_path / "alone", vectors, shard_vectors=200)
    monkeypatch.setattr(common_memory, "LEAST_ROWS", 100)  # several tasks of each kind
    finish = StageStore.finish

    def finish_and_lose(store: StageStore, path: Path) -> None:
        finish(store, path)
        if path.name.startswith("assign"):
            threading.Timer(1.0, three.lose).start()  # while the shards are built

    monkeypatch.setattr(StageStore, "finish", finish_and_lose)
    together = build(tmp_path / "together", vectors, shard_vectors=200, workers=4, **three.options)
    assert data_files(together) == data_files(alone)
    three.add()


def test_a_join_that_loses_a_node_gives_the_bytes_of_one_machine(
    three: Three, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, queries = 12, make_vectors("uint8", 300, seed=9)
    index = build_lists(tmp_path / "ix", make_vectors("uint8", 1800), batch_vectors=150)
    join(index, queries, tmp_path / "alone.parquet")
    folder = tmp_path / ".together.parquet.indexmill-join"
    found: list[int] = []

    def lose() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not list(folder.glob("0*.part")):
            time.sleep(0.002)
        found.append(len(list(folder.glob("0*.part"))))
        three.lose()

    thread = threading.Thread(target=lose)
    thread.start()
    options = {**three.options, "memory": 1 << 30}
    report = join(index, queries, tmp_path / "together.parquet", **options)
    thread.join()
    three.add()
    assert 0 < found[0] < batches
    assert (report.batches, report.reused) == (batches, 0)
    assert (tmp_path / "together.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    assert not folder.exists()


def test_a_task_runs_on_the_node_that_offers_a_resource(three: Three) -> None:
    for name, node in (("drive-0", three.victim.node_id), ("drive-1", three.slow)):
        assert list(three.executor.map(tasks.where, [(0, {}), (1, {})], at=name)) == [node, node]
    with pytest.raises(
        ConfigError, match="ray: no node offers the resource 'drive-2'; start one of its own with"
    ):
        list(three.executor.map(tasks.where, [(0, {})], at="drive-2"))


def test_workers_of_a_join_run_where_their_batches_lie(three: Three, tmp_path: Path) -> None:
    queries = make_vectors("uint8", 300, seed=9)
    index = build_lists(tmp_path / "ix", make_vectors("uint8", 1800), batch_vectors=150)
    join(index, queries, tmp_path / "alone.parquet")
    crew = [Worker(f"drive-{i}", 1.0, 1.0, path=str(tmp_path / f"path-{i}")) for i in range(2)]
    for worker in crew:
        Path(str(worker.path)).mkdir()
    options = {**three.options, "memory": 1 << 30, "workers": 1, "platform": crew}
    first = join(index, queries, tmp_path / "first.parquet", **options)
    assert (tmp_path / "first.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    assert first.workers is not None
    for worker, done in zip(crew, first.workers, strict=True):
        copies = {path.name for path in Path(str(worker.path)).glob("batch-*")}
        assert copies == set(map(batch_name, done.batches))
    for batch in index.glob("batch-*"):
        batch.unlink()
    again = join(index, queries, tmp_path / "again.parquet", **options)
    assert again.copied_bytes == 0
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "alone.parquet").read_bytes()
    (tmp_path / "path-1").rename(tmp_path / "aside")
    with pytest.raises(ConfigError, match=r"platform: worker drive-1: .*: no such folder"):
        join(index, queries, tmp_path / "lost.parquet", **options)


def test_a_build_on_nodes_that_share_only_an_object_store_gives_the_same_bytes(
    three: Three, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(700, 8)
    alone = build(tmp_path / "alone", vectors, shard_vectors=300)
    monkeypatch.setattr(common_memory, "LEAST_ROWS", 250)  # two tasks of each kind
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "driver"))
    with flaky_server() as server:
        server.failing = lambda request: request % 10 == 0
        together = build(tmp_path / "together", vectors, shard_vectors=300, work=server.url, **three.options)
    assert data_files(together) == data_files(alone)


def test_the_cluster_file_of_the_guide_is_one_that_ray_takes() -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/cluster.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert list(validator.iter_errors(yaml.safe_load(text))) == []


def test_what_is_in_flight_ends_when_the_caller_stops(three: Three, tmp_path: Path) -> None:
    started = [tmp_path / str(i) for i in range(3)]
    stage = three.executor.map(tasks.first_then_hang, [(i, str(f)) for i, f in enumerate(started)])
    next(stage)
    while not all(f.exists() and f.read_text() for f in started):
        time.sleep(0.05)
    stage.close()  # as an interrupt does
    deadline = time.monotonic() + 5
    while running := [f.name for f in started[1:] if is_running(int(f.read_text()))]:
        assert time.monotonic() < deadline, running
        time.sleep(0.05)


def test_a_stage_that_is_closed_after_ray_has_ended_starts_no_cluster(
    three: Three, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = three.executor.map(tasks.write_digest, [(i, 0.05, str(tmp_path / str(i))) for i in range(20)])
    next(stage)
    with monkeypatch.context() as patch:
        patch.setattr(ray, "is_initialized", lambda: False)
        patch.setattr(ray, "cancel", lambda *_, **__: pytest.fail("Ray would start again"))
        patch.setattr(ray, "wait", lambda *_, **__: pytest.fail("Ray would start again"))
        stage.close()


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_an_address_where_nobody_answers_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # though tests are connected to a cluster
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=r"ray_address: 127\.0\.0\.1:1 cannot be used.*refused"):
        RayExecutor(2, address="127.0.0.1:1").share(0)
    assert time.monotonic() - begun < 5


ALONE = """
import os, signal, sys, time
import ray
from tests.support.processes import ray_tasks as tasks
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.jobs.cli.failures import exit_codes
from indexmill.pipeline.execution.ray import RayExecutor

def refusal(function):
    try:
        function()
    except (BudgetError, ConfigError) as error:
        return str(error)

with exit_codes():
    executor = RayExecutor(2, memory=1 << 30)
    assert not ray.is_initialized()
    try:
        assert list(executor.map(tasks.refuse, [(1,), (2,)])) == [1, 2]
        resources = ray.cluster_resources()
        assert (resources["CPU"], resources["memory"]) == (2, 1 << 30)
        assert "one task needs" in refusal(lambda: executor.call(tasks.span, 0.0, memory=2 << 30))
        print("asked", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    finally:
        executor.close()
        assert not ray.is_initialized()
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        message = refusal(lambda: RayExecutor(2, address=sys.argv[1]).share(0))
        assert "used another Ray cluster before; start a new process" in message, message
        assert not ray.is_initialized()
        print("closed")
"""


@pytest.fixture(scope="module")
def alone(three: Three) -> subprocess.CompletedProcess[str]:
    """A process with a cluster of its own, which is terminated, and cannot join that of the other tests afterwards."""
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    variables["PYTHONPATH"] = str(Path(__file__).parents[3])
    code = [sys.executable, "-c", ALONE, three.cluster.address]
    return subprocess.run(code, capture_output=True, text=True, timeout=60, env=variables)


def test_ray_starts_with_the_first_task_and_stops_on_close(
    alone: subprocess.CompletedProcess[str],
) -> None:
    assert alone.stdout.splitlines()[-2:] == ["asked", "closed"], alone.stderr


def test_a_build_that_is_terminated_says_so(alone: subprocess.CompletedProcess[str]) -> None:
    """Though Ray sets a handler of its own when it starts."""
    assert alone.returncode == 143, alone.stderr
    assert "error: terminated; run it again to resume it where it stopped" in alone.stderr
