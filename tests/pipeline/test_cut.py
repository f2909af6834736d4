"""The memory of builds on a running cluster, which cuts a graph among its nodes where that is faster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.indexes.builds import clustered, data_files
from tests.support.progress import Stages
from tests.support.rates import graph_rates

import indexmill
from indexmill.formats.errors import BudgetError, ConfigError, OutputExistsError
from indexmill.formats.sources.source import VectorSource, array_source
from indexmill.pipeline import cut
from indexmill.pipeline.cluster import StandIn
from indexmill.pipeline.cut import NAME, cut_for_cluster
from indexmill.pipeline.execution.executors import Nodes
from indexmill.pipeline.kinds.graph.seconds import Rates, on_node
from indexmill.pipeline.kinds.graph.seconds_partition import PartitionRates
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.spec import BuildSpec, IvfParameters, Parameters
from indexmill.pipeline.urls.remote import RemoteStore, store_at
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three

GIB = 1 << 30
QUICK = {
    "R": 12,
    "L": 12,
    "pq_bytes": 8,
    "pq_rotation": "none",
    "node_dtype": "same",
    "entries": 16,
    "order": "star",
}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[Nodes]:
    """The nodes of the running cluster, one entry; tasks take known times there."""
    found = [Nodes(8, 1, 16 * GIB, 0)]
    rates = graph_rates(1, partition=PartitionRates(1, 4000, 3e-5, 6e-6, 1e-4, 320))

    def of_graph(size: GraphSize, place: Path) -> Rates:
        return on_node(rates, 1, size.job.workers)

    monkeypatch.setattr(GraphSize, "node_rates", of_graph)
    monkeypatch.setattr(cut, "running_nodes", lambda address: found[0])
    return found


def spec_of(out: Path, **settings: Any) -> BuildSpec:
    job = {"executor": "ray", "ray_address": "head:6379", "parameters": Parameters(**QUICK), **settings}
    return BuildSpec(input=["<array>"], out=str(out), **job)


def source(n: int = 10**7) -> VectorSource:
    rows = np.random.default_rng(1).integers(0, 256, (2000, 48)).astype(np.uint8)
    return StandIn(array_source(rows), n)


@pytest.fixture(params=["here", "storage"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StageStore]:
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirrors"))
    found = store_at(tmp_path / "work" if request.param == "here" else f"memory://{tmp_path.name}/work")
    yield found
    found.remove()


@pytest.mark.usefixtures("nodes")
def test_a_graph_is_cut_where_that_is_faster_and_a_build_that_resumes_keeps_its_cut(
    tmp_path: Path, store: StageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, stages = spec_of(tmp_path / "ix"), Stages()
    chosen = cut_for_cluster(spec, source(), store, stages)
    assert stages.made == ["cut"]
    assert chosen.memory < spec.memory == 8 * GIB
    assert chosen == spec.model_copy(update={"memory": chosen.memory, "workers": 1})
    assert GraphSize(chosen, source()).pieces > 1
    if isinstance(store, RemoteStore):
        (store.root / NAME).unlink()  # another machine goes on
    monkeypatch.setattr(cut, "make_cluster_plan", None)
    assert cut_for_cluster(spec, source(), store, Silent()) == chosen
    for other in (
        spec_of(tmp_path / "ix", memory=7 * GIB),
        spec_of(tmp_path / "ix", parameters=Parameters(R=24)),
        spec_of(tmp_path / "ix", workers=3),
    ):
        with pytest.raises(TypeError, match="not callable"):  # what was chosen is that of another job
            cut_for_cluster(other, source(), store, Silent())


def test_other_builds_keep_their_memory(
    tmp_path: Path, nodes: list[Nodes], store: StageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "ix"
    rows = np.zeros((10, 2), np.float32)
    lists = spec_of(out, parameters=IvfParameters(lists=16))
    for spec, vectors in (
        (spec_of(out, executor="local"), source()),
        (spec_of(out, ray_address="local"), source()),
        (spec_of(out, scratch=1 << 40), source()),
        (lists, source()),
        (spec_of(out), source(10**6)),
        (spec_of(out), array_source(rows)),
    ):
        assert cut_for_cluster(spec, vectors, store, Silent()) is spec
    spec = spec_of(out)
    for few in (Nodes(1, 64, 16 * GIB, 0), Nodes(8, 1, 4 * GIB, 0)):
        nodes[0] = few
        assert cut_for_cluster(spec, source(), store, Silent()) is spec
    monkeypatch.setattr(cut, "running_nodes", refuse)
    assert cut_for_cluster(spec, source(), store, Silent()) is spec
    assert store.note(NAME) is None


def refuse(address: str | None) -> Nodes:
    raise ConfigError("ray_address: no node of the cluster has a CPU; see ray status")


def test_a_build_has_the_memory_that_was_chosen_and_the_same_bytes(
    tmp_path: Path, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, how = (
        clustered(1500, 8, "uint8"),
        {"R": 8, "pq_bytes": 4, "builder": "partition", "order": "star"},
    )
    plan = SimpleNamespace(memory_bytes=2 * GIB, cuts=[SimpleNamespace(memory_bytes=8 * GIB)])
    monkeypatch.setattr(cut, "running_nodes", lambda address: Nodes(3, 1, 8 * GIB, 0))
    monkeypatch.setattr(cut, "make_cluster_plan", lambda spec, cluster, source: plan)
    monkeypatch.setattr(cut, "PLANNED_FROM", 0)
    indexmill.build(vectors, tmp_path / "ray", **three.options, **how)
    monkeypatch.undo()
    assert json.loads((tmp_path / "ray" / "run.json").read_text())["memory_budget_bytes"] == 2 * GIB
    indexmill.build(vectors, tmp_path / "local", **how)
    assert data_files(tmp_path / "ray") == data_files(tmp_path / "local")
    assert not list(tmp_path.glob(f"*/{NAME}"))


def test_what_is_refused_is_refused_before_a_cut_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut, "running_nodes", None)
    monkeypatch.setattr(cut, "PLANNED_FROM", 0)
    rows, out = np.random.default_rng(1).normal(size=(100, 4)).astype(np.float32), tmp_path / "ix"
    job: dict[str, Any] = {"executor": "ray", "ray_address": "head:6379"}
    with pytest.raises(BudgetError, match=r"^memory: .* give at least"):
        indexmill.build(rows, out, memory="1MiB", **job)
    assert not list(tmp_path.iterdir())
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(OutputExistsError):
        indexmill.build(rows, out, **job)
    assert [path.name for path in tmp_path.iterdir()] == ["ix"]
