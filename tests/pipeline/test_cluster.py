"""Plans of a cluster: from rates of a few rows to hours of nodes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.rates import graph_rates

from indexmill.formats.device import DeviceProfile, Model, read_profile
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.sources.source import array_source
from indexmill.jobs.console.cluster import cluster_lines
from indexmill.layout.districts.order import InDistricts
from indexmill.pipeline.build import run_build
from indexmill.pipeline.cluster import ClusterPlan, StandIn, cluster_of, make_cluster_plan, running_cluster
from indexmill.pipeline.devices import profile_path
from indexmill.pipeline.execution.executors import Nodes
from indexmill.pipeline.execution.schedule import Cluster
from indexmill.pipeline.kinds.graph.seconds import Rates, on_node
from indexmill.pipeline.kinds.graph.seconds_partition import PartitionRates
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.kinds.ivf.seconds import Rates as ListRates
from indexmill.pipeline.kinds.ivf.size import IvfSize
from indexmill.pipeline.spec import BuildSpec, IvfParameters, LshParameters, Parameters

MIB, GIB = 1 << 20, 1 << 30
ROWS = 2000
S3 = read_profile(profile_path("s3"))
#: Of one thread.
RATES = graph_rates(1, partition=PartitionRates(1, 4000, 3e-5, 6e-6, 1e-4, 320))


@pytest.fixture(autouse=True)
def known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan by rates that no other program changes."""

    def of_graph(size: GraphSize, place: Path) -> Rates:
        is_partition = size.shape.parameters.builder == "partition"
        rates = RATES if is_partition else replace(RATES, partition=None)
        return on_node(rates, 1, size.job.workers)

    monkeypatch.setattr(GraphSize, "node_rates", of_graph)
    monkeypatch.setattr(IvfSize, "node_rates", lambda size, place: ListRates(*[1e-6] * 8))
    monkeypatch.setattr("indexmill.pipeline.cluster.starting_seconds", lambda usual: usual)


def spec_of(out: Path, **settings: Any) -> BuildSpec:
    quick = {"R": 12, "L": 12, "pq_bytes": 8, "pq_rotation": "none", "node_dtype": "same", "entries": 16}
    return BuildSpec(input=["<array>"], out=str(out), parameters=Parameters(**{**quick, **settings}))


def source() -> Any:
    return array_source(np.random.default_rng(1).integers(0, 256, (ROWS, 32)).astype(np.uint8))


def planned(
    out: Path, nodes: int, cores: int = 4, memory: int = 4 * GIB, n: int = 10**7, **settings: Any
) -> ClusterPlan:
    cluster = cluster_of(nodes, cores, memory, S3)
    return make_cluster_plan(spec_of(out, **settings), cluster, n, source())


def test_a_profile_gives_the_mean_latency_and_the_rate_of_a_node() -> None:
    assert cluster_of(3, 2, GIB, S3) == Cluster(3, 2, GIB, (1e9, pytest.approx(0.0275)))
    free = DeviceProfile(name="free", model=Model(latency_us=[[0.0, 100.0], [1.0, 100.0]]))
    assert cluster_of(1, 1, GIB, free).link.bytes_per_s >= 1e12


def test_a_plan_adds_up_and_its_stages_are_those_of_the_build(tmp_path: Path) -> None:
    plan = planned(tmp_path / "ix", nodes=1, n=ROWS, cores=1)
    assert plan.seconds == pytest.approx(
        GraphSize.start_seconds + sum(s.seconds for s in plan.stages.values()), abs=0.2
    )
    assert plan.node_seconds == plan.seconds
    assert not list(tmp_path.iterdir())
    run_build(spec_of(tmp_path / "ix"), source())
    record = (tmp_path / "ix" / "run.json").read_text()
    assert all(f'"{name}"' in record for name in plan.stages if name != "publish")


def test_more_nodes_cost_more_and_take_less_until_few_tasks_are_left(tmp_path: Path) -> None:
    one, eight = (planned(tmp_path / "ix", nodes) for nodes in (1, 8))
    assert eight.seconds < one.seconds
    assert eight.node_seconds > one.node_seconds
    assert eight.read_bytes > one.read_bytes
    assert one.stages["ingest"].nodes == 0
    assert eight.stages["leaves"].nodes > 1
    assert eight.stages["link"].binds == "serial"


def test_star_packing_of_a_large_graph_is_shared_by_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordering = ("borders", "settle", "districts", "rests", "order")

    def seconds(plan: ClusterPlan) -> float:
        return sum(plan.stages[name].seconds for name in ordering if name in plan.stages)

    one, eight = (planned(tmp_path / "ix", nodes, 4, 8 * GIB, 10**8, order="star") for nodes in (1, 8))
    assert eight.stages["districts"].tasks == 381
    assert eight.stages["districts"].nodes == eight.stages["rests"].nodes == 8
    assert eight.stages["settle"].nodes > 1
    assert seconds(eight) < seconds(one)
    monkeypatch.setattr(InDistricts, "vertices", 1 << 40)
    assert seconds(planned(tmp_path / "ix", 8, 4, 8 * GIB, 10**8, order="star")) > 2 * seconds(eight)


def test_a_graph_that_fits_a_node_is_divided_where_that_is_faster(tmp_path: Path) -> None:
    one, eight = (planned(tmp_path / "ix", nodes, 1, 8 * GIB, order="star") for nodes in (1, 8))
    assert one.cuts[0].pieces == 1
    assert one.memory_bytes == 8 * GIB, "a node alone gains nothing from regions"
    assert eight.memory_bytes < 8 * GIB
    assert eight.facts["regions"].n > 1
    assert eight.seconds <= min(cut.seconds for cut in eight.cuts) / 0.95
    assert "; others: " in cluster_lines(eight)["cut"]
    assert [cut.pieces for cut in eight.cuts] == sorted({cut.pieces for cut in eight.cuts})


def test_a_plan_says_whether_a_graph_is_divided_and_why(tmp_path: Path) -> None:
    one, eight = (planned(tmp_path / "ix", nodes, 1, 8 * GIB, order="star") for nodes in (1, 8))
    small = planned(tmp_path / "ix", 1, 1, 2 * GIB, order="star")
    vamana = planned(tmp_path / "ix", nodes=8, builder="vamana", n=10**6)
    told = [cluster_lines(plan)["divided"] for plan in (one, eight, small, vamana)]
    assert told[0].startswith("no: in one piece the build takes ")
    assert re.match(r"yes: in \d+ pieces the build takes .*, in one piece ", told[1])
    assert re.match(rf"yes: the memory of a node allows no fewer than {small.cuts[0].pieces} pieces", told[2])
    assert told[3] == "no: no smaller budget makes the same index in more pieces"


def test_a_running_cluster_is_planned_within_what_the_job_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path / "ix").model_copy(update={"executor": "ray", "ray_address": "head:6379"})
    monkeypatch.setattr(
        "indexmill.pipeline.cluster.running_nodes", {"head:6379": Nodes(3, 4, 5 * GIB, 1)}.__getitem__
    )
    cluster, note = running_cluster(spec, S3)
    assert cluster[:3] == (3, 4, 5 * GIB)
    plan = make_cluster_plan(spec, cluster, 10**6, source(), note)
    assert plan.note == "1 node with other numbers of cores left out"
    assert cluster_lines(plan)["cluster"] == "3 nodes of 4 cores and 5.0 GiB"
    assert plan.to_dict()["build_with"] == f"--workers 4 --memory {plan.memory_bytes >> 20}MiB"
    assert f"build with {plan.build_with}" in cluster_lines(plan)["cut"]
    stated = spec.model_copy(update={"workers": 2, "memory": GIB})
    cluster, _ = running_cluster(stated, S3)
    assert cluster[:3] == (3, 2, GIB)
    plan = make_cluster_plan(stated, cluster, 10**5, source())
    assert plan.build_with is None or plan.memory_bytes < GIB


def test_without_a_running_cluster_nodes_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    spec = spec_of(tmp_path / "ix").model_copy(update={"executor": "ray"})
    for address in ("", "local"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(
            ConfigError, match=r"^executor: no running Ray cluster is named\. Name one .*--nodes$"
        ):
            running_cluster(spec, S3)


def test_the_budget_that_a_plan_chooses_makes_the_index_of_the_whole_memory(tmp_path: Path) -> None:
    vamana = planned(tmp_path / "ix", nodes=8, builder="vamana", n=10**6)
    assert len(vamana.cuts) == 1, "shards make another graph"
    unstated, star = (planned(tmp_path / "ix", 8, 1, 8 * GIB, **order) for order in ({}, {"order": "star"}))
    least = {min(cut.memory_bytes for cut in plan.cuts) for plan in (unstated, star)}
    assert len(least) == 2, "with less memory the default order is another"
    assert min(least) in [cut.memory_bytes for cut in star.cuts]


def test_budgets_are_whole_mebibytes_that_a_node_holds(tmp_path: Path) -> None:
    memory = 8 * GIB - 1
    plan = planned(tmp_path / "ix", 8, 1, memory, order="star")
    assert len(plan.cuts) > 1
    for cut in plan.cuts:
        assert cut.memory_bytes % MIB == 0
        assert cut.memory_bytes <= memory
    assert f"build with --workers 1 --memory {plan.memory_bytes // MIB}MiB" in cluster_lines(plan)["cut"]


def test_a_format_that_is_measured_is_the_same_in_every_cut(tmp_path: Path) -> None:
    spec = BuildSpec(
        input=["<array>"],
        out=str(tmp_path / "ix"),
        parameters=Parameters(order="star", search_memory="8/vector"),
    )
    floats = array_source(np.random.default_rng(2).normal(size=(ROWS, 32)).astype(np.float32))
    plan = make_cluster_plan(spec, cluster_of(8, 1, 8 * GIB, S3), 10**7, floats)
    assert plan.stages["format"].seconds > 0
    assert len(plan.cuts) > 1
    assert plan.memory_bytes < 8 * GIB
    assert plan.facts["format"]["pq_bytes"] == 8


def test_shards_and_lists_are_planned_too(tmp_path: Path) -> None:
    sharded = planned(tmp_path / "ix", nodes=4, builder="vamana", shard_vectors=10**6)
    assert sharded.stages["build"].tasks == sharded.facts["shards"].n > 4
    assert sharded.stages["build"].nodes == 4
    spec = BuildSpec(
        input=["<array>"], out=str(tmp_path / "ix"), parameters=IvfParameters(lists=64, sample_vectors=1000)
    )
    lists = make_cluster_plan(spec, cluster_of(4, 2, 2 * GIB, S3), 10**7, source())
    assert lists.stages["assign"].tasks > 1
    assert lists.stages["emit"].written_bytes == lists.facts["ivf"]["index_bytes"]
    assert lists.to_dict()["ivf"]["lists"] == 64


def test_a_job_for_a_gpu_is_planned_for_the_cpu_and_says_so(tmp_path: Path) -> None:
    cpu, gpu = (planned(tmp_path / "ix", 2, n=ROWS, compute=one) for one in ("cpu", "cuda"))
    assert cpu.note is None
    assert "note" not in cpu.to_dict()
    assert gpu.seconds == cpu.seconds
    assert "those of compute cpu" in gpu.to_dict()["note"]
    assert cluster_lines(gpu)["note"] == gpu.note


def test_publishing_at_a_url_is_counted(tmp_path: Path) -> None:
    plans = []
    for out in (str(tmp_path / "ix"), "s3://bucket/ix"):
        spec = spec_of(tmp_path / "ix").model_copy(update={"out": out, "work": str(tmp_path)})
        plans.append(make_cluster_plan(spec, cluster_of(2, 4, 4 * GIB, S3), 10**6, source()))
    here, there = (plan.stages["publish"] for plan in plans)
    assert here.written_bytes == 0
    assert there.written_bytes == there.read_bytes == here.read_bytes
    assert there.seconds > 2 * here.seconds, "parts of a push are smaller than pieces that are fetched"


def test_writing_of_narrow_tasks_is_told_apart_and_not_slowed_by_crowding(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "ix").model_copy(update={"workers": 4, "memory": GIB})
    size = GraphSize(spec, source())
    rates = on_node(RATES, 1, 4)
    slow, fast = (size.works(replace(rates, writing=one))["pack"] for one in (1e-3, 0.0))
    assert slow.seconds == pytest.approx(fast.seconds)
    assert (slow.writing, fast.writing) == (pytest.approx(1e-3 * size.stage_files()["pack"]), 0)
    lists = IvfSize(
        spec.model_copy(update={"parameters": IvfParameters(lists=64, sample_vectors=1000)}), source()
    )
    works = lists.works(ListRates(*[1e-6] * 7, 1e-3))
    for name in ("assign", "pack", "lists"):
        assert works[name].writing == pytest.approx(1e-3 * lists.stage_files()[name])
    assert works["lists"].seconds == pytest.approx(ROWS * 1e-6)


def test_slow_storage_binds(tmp_path: Path) -> None:
    slow = DeviceProfile(name="slow", model=Model(latency_us=[[0.0, 1e4], [1.0, 1e4]], mb_per_s=1.0))
    plan = make_cluster_plan(spec_of(tmp_path / "ix"), cluster_of(2, 2, 2 * GIB, slow), 10**6, source())
    assert plan.binds == "storage"
    assert plan.stages["publish"].binds == "storage"


def test_what_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "ix")
    with pytest.raises(BudgetError, match=r"^node_memory: a node cannot hold .*give at least [\d,]+ bytes"):
        make_cluster_plan(spec, cluster_of(2, 2, GIB // 2, S3), 10**9, source())
    with pytest.raises(ConfigError, match=r"^vectors: 1,999, but the input has 2,000; give at least as many"):
        make_cluster_plan(spec, cluster_of(2, 2, GIB, S3), ROWS - 1, source())
    with pytest.raises(ConfigError, match=r"^parts: a set is built on one machine, part after part"):
        make_cluster_plan(spec.model_copy(update={"parts": 2}), cluster_of(2, 2, GIB, S3), None, source())
    with pytest.raises(ConfigError, match=r"^scratch: .*; leave scratch out"):
        make_cluster_plan(spec.model_copy(update={"scratch": GIB}), cluster_of(2, 2, GIB, S3), None, source())
    tables = spec.model_copy(update={"parameters": LshParameters()})
    with pytest.raises(ConfigError, match=r"^nodes: clusters are not planned for kind lsh"):
        make_cluster_plan(tables, cluster_of(2, 2, MIB, S3), None, source())
    lists = spec.model_copy(update={"parameters": IvfParameters(lists=64, sample_vectors=1000)})
    with pytest.raises(BudgetError, match=r"lower --node-cores, --sample-vectors or --lists"):
        make_cluster_plan(lists, cluster_of(2, 2, MIB, S3), 10**9, source())


def test_rows_beyond_a_sample_are_rows_of_it() -> None:
    known = source()
    stand_in = StandIn(known, 10**9)
    assert (stand_in.n_vectors, stand_in.dim, stand_in.dtype) == (10**9, known.dim, known.dtype)
    found = stand_in.read(np.array([3, ROWS + 3, 10**9 - 1]))
    assert np.array_equal(found, known.read(np.array([3, 3, (10**9 - 1) % ROWS])))
    assert sum(len(batch.vectors) for batch in stand_in.batches()) == ROWS
