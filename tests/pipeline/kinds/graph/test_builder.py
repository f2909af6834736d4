"""The builder of a job that names none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.indexes.builds import build, clustered, data_files

from indexmill.formats.errors import BudgetError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.sources.source import array_source
from indexmill.pipeline.kinds.graph.builder import ChosenBuilder, with_builder
from indexmill.pipeline.kinds.graph.memory import fits, least_memory
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.plan import make_plan
from indexmill.pipeline.spec import BuildSpec, Parameters

MIB = 1 << 20
#: Vectors of which shards take less memory than regions, whose stages hold some bytes of every vector.
MANY = 100_000_000


def shape_of(n: int, dtype: str = "uint8", **settings: Any) -> GraphShape:
    return GraphShape(n, 128, np.dtype(dtype), 0.0, Parameters(**settings))


def chosen(shape: GraphShape, memory: int) -> ChosenBuilder:
    fitted, choice = with_builder(shape, memory, "local", 2)
    assert fitted.parameters.builder == choice.name
    assert fitted.parameters.model_copy(update={"builder": "auto"}) == shape.parameters
    return choice


def test_a_job_that_says_nothing_has_the_partition_builder() -> None:
    assert chosen(shape_of(1_000_000), 8 << 30) == ChosenBuilder("partition", "its memory fits")


@pytest.mark.parametrize(("name", "value"), [("passes", 2), ("build_codes", "sq8")])
def test_parameters_of_insertions_ask_for_vamana(name: str, value: Any) -> None:
    choice = chosen(shape_of(1_000_000, "float32", **{name: value}), 8 << 30)
    assert choice == ChosenBuilder("vamana", f"partition has no {name}")


def test_a_builder_that_is_named_stays_whatever_the_memory() -> None:
    for name in ("partition", "vamana"):
        shape = shape_of(MANY, builder=name)
        assert with_builder(shape, 300 * MIB, "local", 2)[0] is shape


def test_memory_for_no_regions_leaves_vamana_and_names_the_memory_for_partition() -> None:
    need = least_memory(shape_of(MANY, builder="partition", order="star"), "local", 8)
    assert chosen(shape_of(MANY, order="star"), need).name == "partition"
    below = chosen(shape_of(MANY, order="star"), need - MIB)
    assert below.name == "vamana"
    assert int(re.findall(r"[\d,]+", below.why)[0].replace(",", "")) * MIB == need


def test_memory_for_regions_alone_leaves_partition() -> None:
    """Of a million vectors regions take less memory than shards."""
    memory = least_memory(shape_of(1_000_000, builder="partition"), "local", 2)
    assert not fits(shape_of(1_000_000, builder="vamana"), memory, "local", 1)
    assert chosen(shape_of(1_000_000), memory) == ChosenBuilder("partition", "vamana needs more memory")


def test_memory_for_partition_with_few_workers_alone_is_left_to_vamana() -> None:
    """Otherwise a job could be refused for its workers which vamana would build."""
    few, many = (least_memory(shape_of(100_000, builder="partition"), "local", workers) for workers in (1, 8))
    assert few < many - MIB
    assert chosen(shape_of(100_000), many - MIB).name == "vamana"


@given(
    n=st.integers(1500, MANY),
    memory=st.integers(257, 4096),
    workers=st.integers(1, 64),
    degree=st.integers(4, 96),
)
def test_what_fits_is_chosen_and_workers_decide_nothing(
    n: int, memory: int, workers: int, degree: int
) -> None:
    shape, budget = shape_of(n, R=degree), memory * MIB
    able = [
        one for one in ("partition", "vamana") if fits(shape_of(n, R=degree, builder=one), budget, "local", 1)
    ]
    alone, _ = with_builder(shape, budget, "local", 1)
    if able:
        assert alone.parameters.builder in able
        assert with_builder(shape, budget, "ray", workers)[0] == alone


@pytest.mark.parametrize(("settings", "name"), [({}, "partition"), ({"passes": 2}, "vamana")])
def test_the_manifest_names_the_builder_and_the_bytes_are_those_of_naming_it(
    tmp_path: Path, settings: dict[str, Any], name: str
) -> None:
    vectors, work = clustered(1500, 12), str(tmp_path / "work")
    left = build(tmp_path / "left", vectors, work=work, **settings)
    assert read_manifest(left).parameters["builder"] == name
    said = build(tmp_path / "said", vectors, builder=name, **settings)
    assert data_files(left) == data_files(said)
    build(tmp_path / "again", vectors, work=work, builder=name, **settings)
    assert len(list(Path(work).glob("build-*"))) == 1


def test_a_plan_says_which_builder_and_why(tmp_path: Path) -> None:
    spec = BuildSpec(input=["<array>"], out=str(tmp_path / "ix"), parameters=Parameters(R=12, pq_bytes=4))
    source = array_source(clustered(1500, 12))
    assert make_plan(spec, source).to_dict()["builder"] == {"name": "partition", "why": "its memory fits"}
    named = spec.model_copy(update={"parameters": Parameters(R=12, pq_bytes=4, builder="vamana")})
    assert make_plan(named, source).to_dict()["builder"] == {"name": "vamana", "why": "named by the job"}


def test_a_refusal_names_a_budget_that_works(tmp_path: Path) -> None:
    vectors = clustered(3000, 12)
    with pytest.raises(BudgetError, match="give at least") as refused:
        build(tmp_path / "ix", vectors, memory=100 * MIB)
    least = int(re.findall(r"at least ([\d,]+)", str(refused.value))[0].replace(",", ""))
    build(tmp_path / "ix", vectors, memory=least)
