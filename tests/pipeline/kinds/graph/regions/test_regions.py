"""Builds in regions by the partition builder: the same index as in one piece, within the budget."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.gpu import strict_gpu
from tests.support.indexes.builds import REGION_STAGES, assert_sound, build, clustered, data_files
from tests.support.indexes.layout import SmallDistricts
from tests.support.processes.kill import Driver, moments_of
from tests.support.progress import Stages

from indexmill.builders import gpu as gpu_module
from indexmill.builders.partition import links
from indexmill.builders.partition.leaf_lists import NOBODY
from indexmill.formats.errors import BudgetError
from indexmill.formats.sources.source import array_source
from indexmill.layout.portfolio import ORDERS
from indexmill.layout.star import StarOrder
from indexmill.pipeline.build import run_build
from indexmill.pipeline.execution.local import LocalExecutor
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.graph import memory as needs
from indexmill.pipeline.kinds.graph.regions import graph as region_graph
from indexmill.pipeline.kinds.graph.regions import tasks as region_tasks
from indexmill.pipeline.kinds.graph.regions.tasks import load_regions
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.spec import BuildSpec, Parameters

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three


MIB = 1 << 20
ROOM = 900_000
#: Of builds that are killed, which have half the neighbours.
SMALL_ROOM = 300_000


@pytest.fixture
def small_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds by the partition builder go through files, with so little memory that a few thousand vectors are cut."""
    monkeypatch.setattr(common_memory, "MOST_SORT_BUFFERS", 256 << 10)
    monkeypatch.setattr(
        needs,
        "fitted_shape",
        lambda shape, *_: replace(shape, region_bytes=None if shape.parameters.shard_vectors else ROOM),
    )


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The regions of each build, as its tasks see them."""
    seen: list[Any] = []
    task = region_graph.link_task

    def link(vectors: str, places: str, *arguments: Any, **keywords: Any) -> None:
        seen.append(load_regions(places))
        task(vectors, places, *arguments, **keywords)

    monkeypatch.setattr(region_graph, "link_task", link)
    return seen


@pytest.mark.parametrize(
    ("n", "dtype", "how"),
    [
        (6000, "uint8", {}),
        (5000, "float32", {}),
        (6000, "int8", {"saturate": False}),
        (5000, "float32", {"codes_on_page": True}),
        (6000, "uint8", {"R": 16}),
    ],
    ids=["bytes", "floats", "not saturated", "codes on the page", "copies"],
)
def test_the_index_is_that_of_a_build_in_one_piece(
    tmp_path: Path, request: pytest.FixtureRequest, n: int, dtype: str, how: dict[str, Any]
) -> None:
    vectors = clustered(n, 12, dtype)
    if request.node.callspec.id == "copies":
        vectors = vectors[np.random.default_rng(1).integers(n // 4, size=n)]
    whole = build(tmp_path / "whole", vectors, builder="partition", **how)
    request.getfixturevalue("small_rooms")
    plans = request.getfixturevalue("plans")
    index = build(tmp_path / "regions", vectors, builder="partition", **how)
    assert len(plans[0].members) >= 3
    assert len(plans[0].homes) >= 3
    assert plans[0].members.sum() > n
    assert_sound(index)
    assert data_files(index) == data_files(whole)


def test_small_distant_clusters_are_linked_as_in_one_piece(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    centres = 100 * random.normal(size=(60, 12))
    vectors = (centres[np.arange(5000) % 60] + random.normal(size=(5000, 12))).astype(np.float32)
    samples = list[bool]()
    sampled_vertices = links.sampled_vertices

    def sampled(*lists: Any, dense: bool) -> Any:
        samples.append(dense)
        return sampled_vertices(*lists, dense=dense)

    monkeypatch.setattr(links, "sampled_vertices", sampled)
    whole = build(tmp_path / "whole", vectors, builder="partition", R=16)
    monkeypatch.setattr(sys.modules[__name__], "ROOM", 1_500_000)
    request.getfixturevalue("small_rooms")
    index = build(tmp_path / "regions", vectors, builder="partition", R=16)
    assert samples == [False, True, False, True]
    assert data_files(index) == data_files(whole)


def test_a_copy_with_other_leaders_than_the_first_is_in_no_leaf(
    tmp_path: Path, small_rooms: None, plans: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    half = 2500
    vectors = np.tile(clustered(half, 12, "float32"), (2, 1))
    carve, met = region_tasks.carve_task, region_graph.met_records
    compared = list[Any]()

    def carve_as_if_products_varied(rows: str, first: int, last: int, *arguments: Any) -> None:
        carve(rows, first, last, *arguments)
        leaders = np.load(arguments[-1])
        copies = np.arange(first, last) >= half
        leaders[copies] = leaders.max() - leaders[copies]
        np.save(arguments[-1], leaders)

    def met_records(*arguments: Any) -> Any:
        owners, payload = met(*arguments)
        compared.extend(payload[payload != NOBODY].tolist())
        return owners, payload

    monkeypatch.setattr(region_tasks, "carve_task", carve_as_if_products_varied)
    monkeypatch.setattr(region_graph, "met_records", met_records)
    index = build(tmp_path / "regions", vectors, builder="partition")
    assert len(plans[0].members) >= 3
    assert max(compared) < half
    assert len(set(compared)) > half // 2
    assert_sound(index)


def test_neither_workers_nor_tasks_reach_the_bytes(
    tmp_path: Path, small_rooms: None, plans: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(6000, 10, "uint8")
    one = build(tmp_path / "one", vectors, builder="partition")
    monkeypatch.setattr(common_memory, "LEAST_ROWS", 400)
    monkeypatch.setattr(sys.modules[__name__], "ROOM", 1_200_000)
    two = build(tmp_path / "two", vectors, builder="partition", workers=2)
    assert len(plans[0].members) > len(plans[1].members) > 1
    assert data_files(one) == data_files(two)


def test_ray_and_local_give_the_same_bytes(
    three: Three, tmp_path: Path, small_rooms: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ORDERS, "star", SmallDistricts(StarOrder()))
    vectors, stages = clustered(2400, 12, "uint8"), Stages()
    how = {"builder": "partition", "order": "star"}
    local = build(tmp_path / "local", vectors, progress=stages, **how)
    assert {"leaves", "districts"} <= set(stages.made)
    ray = build(tmp_path / "ray", vectors, workers=2, **three.options, **how)
    assert data_files(local) == data_files(ray)


def test_a_graph_cut_into_shards_by_its_job_is_still_cut_into_shards(
    tmp_path: Path, small_rooms: None
) -> None:
    index = build(tmp_path / "ix", clustered(2500, 8, "uint8"), builder="partition", shard_vectors=1200)
    assert len(json.loads((index / "manifest.json").read_text())["graph"]["shards"]) > 1


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_leaders_and_leaves_are_compared_where_the_job_says(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    vectors, gpu = clustered(2400, 12, dtype), strict_gpu()[0]
    monkeypatch.setattr(gpu_module, "cuda_gpu", lambda: gpu)
    whole = build(tmp_path / "whole", vectors, builder="partition", compute="cuda")
    request.getfixturevalue("small_rooms")
    stages, used, use = Stages(), [], gpu.use
    monkeypatch.setattr(gpu, "use", lambda what: (used.append((stages.at_work, what)), use(what))[1])
    work = str(tmp_path / "work")
    index = build(
        tmp_path / "regions", vectors, builder="partition", compute="cuda", work=work, progress=stages
    )
    assert {stage for stage, _ in used} == {"carve", "leaves", "encode", "entries"}
    assert ("leaves", "the products of a leaf") in used
    assert data_files(index) == data_files(whole)  # of floats because the arrays are those of NumPy
    build(tmp_path / "here", vectors, builder="partition", work=work)
    stages = [path.name.partition("-")[0] for path in Path(work).iterdir()]
    assert {name: stages.count(name) for name in ("ingest", "regions", "link")} == {
        "ingest": 1, "regions": 2, "link": 2,
    }  # fmt: skip


def test_tasks_run_beside_each_other_as_far_as_they_fit(
    tmp_path: Path, small_rooms: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int | None] = {}
    run = LocalExecutor.map

    def spy(self: LocalExecutor, task: Any, arguments: Any, **keywords: Any) -> Any:
        seen[Path(arguments[0][-1]).parent.name.partition("-")[0]] = keywords["at_once"]
        return run(self, task, arguments, **keywords)

    monkeypatch.setattr(LocalExecutor, "map", spy)
    monkeypatch.setattr(
        common_memory.Narrow, "fitting", lambda stage, memory, workers, processes: workers - 1
    )
    build(tmp_path / "ix", clustered(2400, 8, "uint8"), builder="partition", workers=3)
    assert {name: seen[name] for name in ("carve", "assign", "leaves", "unite", "pack")} == {
        "carve": 2, "assign": 2, "leaves": None, "unite": None, "pack": 2,
    }  # fmt: skip


def test_what_vertices_received_is_in_memory_as_far_as_it_fits(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(2400, 8, "uint8")
    whole = build(tmp_path / "whole", vectors, builder="partition")
    request.getfixturevalue("small_rooms")
    sizes, append = [], region_graph.append_ids

    def spy(vertices: Any, payload: Any, ids: np.ndarray, counts: np.ndarray) -> None:
        sizes.append((len(counts), len(ids)))
        append(vertices, payload, ids, counts)

    monkeypatch.setattr(region_graph, "append_ids", spy)
    monkeypatch.setattr(region_graph, "most_received", lambda part, max_degree: 4000)
    index = build(tmp_path / "regions", vectors, builder="partition")
    assert all(vertices == 1 or ids <= 4000 for vertices, ids in sizes)
    assert data_files(index) == data_files(whole)


# Bad input


def blob(n: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    vectors = np.zeros((n, 6), np.float32)
    vectors[:, :3] = rng.normal(size=(n, 3)) * 1e-3
    vectors[: n // 100, :3] *= 1e6
    return vectors


@pytest.mark.parametrize(
    "vectors",
    [
        np.full((4000, 5), 7, np.uint8),
        np.repeat(clustered(4, 5, "uint8"), 600, axis=0),
        blob(2400),
        clustered(1025, 4),
    ],
    ids=["constant", "duplicates", "a blob and constant components", "one more than a leaf"],
)
def test_bad_input_is_one_connected_graph_or_refused(
    tmp_path: Path, small_rooms: None, monkeypatch: pytest.MonkeyPatch, vectors: np.ndarray
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOM", 2 * ROOM)
    index = build(tmp_path / "ix", vectors, builder="partition")
    assert_sound(index)
    monkeypatch.setattr(sys.modules[__name__], "ROOM", 420_000)
    if np.ptp(vectors) == 0:
        said = r"stage regions compares 4,000 of 4,000 vectors, .* most of them are equal"
        with pytest.raises(BudgetError, match=said):
            build(tmp_path / "refused", vectors, builder="partition")


# Memory, scratch space, plans


def spec_of(out: Path, memory: int, **settings: Any) -> BuildSpec:
    p = {
        "R": 48,
        "pq_bytes": 8,
        "entries": 16,
        "sample_vectors": 1000,
        "navigation": 0.0,
        "order": "identity",
    }
    parameters = Parameters(builder="partition", **{**p, **settings})
    return BuildSpec(input=["<array>"], out=str(out), memory=memory, workers=1, parameters=parameters)


def test_a_plan_says_into_how_many_regions_and_what_files_they_make(tmp_path: Path, plans: list[Any]) -> None:
    vectors = clustered(30_000, 64, "uint8")
    spec, source = spec_of(tmp_path / "ix", 285 * MIB), array_source(vectors)
    plan = make_plan(spec, source)
    regions = plan.facts["regions"]
    assert set(REGION_STAGES) <= set(plan.stages)
    run_build(spec, source)
    run = json.loads((tmp_path / "ix" / "run.json").read_text())
    assert set(run["seconds"]) <= {*plan.stages, "publish"}
    assert len(plans[0].members) == regions.n  # the sample has all vectors
    assert max(plans[0].members) == pytest.approx(regions.vectors, rel=0.01)
    assert plans[0].members.sum() / 30_000 == pytest.approx(regions.mean_fanout, rel=0.01)
    assert run["peak_scratch_bytes"] == pytest.approx(plan.peak_scratch_bytes, rel=0.3)


def test_a_build_that_seems_to_have_no_room_on_the_disk_is_looked_at_more_closely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)  # along a line: few vectors have leaders in different regions
    vectors = (rng.integers(0, 200, (30_000, 1)) + rng.integers(0, 50, (30_000, 64))).astype(np.uint8)
    spec, source = spec_of(tmp_path / "ix", 285 * MIB), array_source(vectors)
    closer = GraphSize(spec, source)
    usual, _ = closer.needed_scratch()
    assert closer.look_closer()
    need, _ = closer.needed_scratch()
    assert need < usual
    usage = shutil.disk_usage(tmp_path)
    for free in (usual, need):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert GraphSize(spec, source).check_space(tmp_path, 0)[0] == free
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=need - 1))
    with pytest.raises(BudgetError, match=f"{need:,} bytes there"):
        GraphSize(spec, source).check_space(tmp_path, 0)


@pytest.mark.memory
def test_the_budget_that_a_refusal_names_works_up_to_the_differences_of_cells(tmp_path: Path) -> None:
    source = array_source(clustered(20_000, 64, "uint8"))
    with pytest.raises(BudgetError, match="give at least") as refusal:
        run_build(spec_of(tmp_path / "ix", 262 * MIB), source)
    least = int(re.search(r"give at least ([\d,]+) bytes", str(refusal.value))[1].replace(",", ""))
    assert "regions" in make_plan(spec_of(tmp_path / "ix", least), source).facts
    run_build(spec_of(tmp_path / "ix", least + MIB), source)


@pytest.mark.memory
def test_a_build_that_goes_through_files_stays_within_its_budget(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", clustered(30_000, 64, "uint8"))
    line = [
        sys.executable,
        "-m",
        "indexmill.jobs.cli.main",
        "build",
        "--input",
        "v.npy",
        "--out",
        "ix",
        "--memory",
        "294MiB",
    ]
    line += [
        "--builder",
        "partition",
        "-R",
        "64",
        "--pq-bytes",
        "8",
        "--entries",
        "16",
        "--sample-vectors",
        "1000",
    ]
    line += ["--workers", "2", "--order", "identity", "--navigation", "0"]
    plan = json.loads(
        subprocess.run(
            [*line[:3], "plan", *line[4:], "--json"], cwd=tmp_path, capture_output=True, check=True
        ).stdout
    )
    assert plan["regions"]["n"] >= 2
    subprocess.run(line, cwd=tmp_path, capture_output=True, check=True)
    took = json.loads((tmp_path / "ix" / "run.json").read_text())["peak_memory_bytes"]
    assert took <= 294 * MIB
    assert took <= 1.05 * plan["peak_memory_bytes"]


# Killed and run again


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("regions"), clustered(2500, 8, "uint8"))


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return driver.succeed(tmp_path_factory.mktemp("undisturbed") / "ix", builder="partition", room=SMALL_ROOM)


def test_killed_at_every_failpoint_of_every_stage(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    options = {"builder": "partition", "room": SMALL_ROOM}
    assert driver.die_at_each(tmp_path / "ix", 0, moments_of(REGION_STAGES), **options) == undisturbed


@pytest.mark.parametrize("turn", [3, 5, 8, 11])
def test_killed_between_tasks_redoes_only_the_task_in_flight(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path, turn: int
) -> None:
    work, options = tmp_path / "work", {"builder": "partition", "room": SMALL_ROOM}
    driver.die(tmp_path / "ix", 0, f"task-done:{turn}", work=str(work), **options)
    made = {p: p.stat().st_mtime_ns for p in [*work.rglob("*.chunk"), *work.rglob("stage.json")]}
    driver.die(tmp_path / "ix", 0, "unite-begun", work=str(work), **options)
    kept = {p: at for p, at in made.items() if p.exists()}
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    assert all(p.exists() for p in made if "assign" in p.parts[-2])
    assert driver.succeed(tmp_path / "ix", work=str(work), **options) == undisturbed


def test_memory_that_changes_between_a_kill_and_the_next_run_changes_no_byte(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    driver.die(tmp_path / "ix", 0, "task-done:5", builder="partition", room=SMALL_ROOM)
    assert driver.succeed(tmp_path / "ix", builder="partition", room=2 * SMALL_ROOM) == undisturbed


def test_a_damaged_file_between_stages_is_made_again(
    driver: Driver, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    for stage, before in (
        ("leaves", "assign"),
        ("choose", "leaves"),
        ("unite", "choose"),
        ("link", "unite"),
    ):
        work = tmp_path / f"{stage}.work"
        driver.die(tmp_path / stage, 0, f"{stage}-begun", builder="partition", room=SMALL_ROOM)
        victim = sorted(work.glob(f"{before}-*/*.chunk"))[-1]
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
        assert driver.succeed(tmp_path / stage, builder="partition", room=SMALL_ROOM) == undisturbed
