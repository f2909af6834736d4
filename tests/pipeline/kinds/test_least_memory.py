"""A budget that is too small is refused with the smallest one that works, whatever the kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.formats.errors import BudgetError
from indexmill.formats.sources.source import VectorSource, array_source
from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.registry import KINDS, kind_of
from indexmill.pipeline.spec import KINDS as PARAMETERS
from indexmill.pipeline.spec import BuildSpec

MIB = 1 << 20
JOBS: dict[str, dict[str, Any]] = {
    "graph": {"kind": "graph", "R": 16, "L": 24, "pq_bytes": 8},
    "graph in shards": {"kind": "graph", "R": 16, "L": 24, "pq_bytes": 8, "shard_vectors": 2000},
    "graph by the partition builder": {"kind": "graph", "builder": "partition", "R": 16, "pq_bytes": 8},
    "lsh": {"kind": "lsh", "n_tables": 4},
    "ivf": {"kind": "ivf", "lists": 64},
    "ivf with codes": {"kind": "ivf", "lists": 64, "codec": "pq", "pq_bytes": 8, "metric": "cosine"},
    "ivf with rotated codes": {"kind": "ivf", "lists": 64, "codec": "rabitq", "code_bits": 3},
    "ivf with a learnt rotation": {
        "kind": "ivf", "lists": 64, "codec": "pq", "pq_bytes": 8, "pq_rotation": "opq", "copies": 2,
    },
}  # fmt: skip


def test_every_kind_has_parameters_by_the_same_name() -> None:
    assert {name: kind.parameters for name, kind in KINDS.items()} == PARAMETERS
    assert {kind.name for kind in KINDS.values()} == {job["kind"] for job in JOBS.values()}


@pytest.fixture(scope="module")
def source() -> VectorSource:
    return array_source(np.random.default_rng(4).normal(size=(6000, 24)).astype(np.float32))


def job(out: Path, parameters: dict[str, Any], memory: int) -> BuildSpec:
    return BuildSpec.model_validate(
        {"input": ["<array>"], "out": str(out), "memory": memory, "parameters": parameters}
    )


@pytest.mark.parametrize("name", JOBS)
def test_the_least_memory_named_builds_and_a_mebibyte_less_is_refused(
    name: str, source: VectorSource, tmp_path: Path
) -> None:
    def refusal(memory: int) -> int:
        spec = job(tmp_path / "index", JOBS[name], memory)
        with pytest.raises(BudgetError, match=r"^memory: .* give at least [0-9,]+ bytes$") as error:
            kind_of(spec.parameters).resolve(spec, source)
        return int(re.findall(r"at least ([0-9,]+) bytes", str(error.value))[0].replace(",", ""))

    least = refusal(100 * MIB)
    assert refusal(least - MIB) == least
    run_build(job(tmp_path / "index", JOBS[name], least), source)


@pytest.mark.parametrize(
    ("builder", "piece"), [("vamana", "shard of 1,024 vectors"), ("partition", "region of the graph")]
)
def test_a_refusal_names_the_pieces_that_the_builder_could_make(
    builder: str, piece: str, source: VectorSource, tmp_path: Path
) -> None:
    spec = job(tmp_path / "index", {"kind": "graph", "builder": builder}, 256 * MIB)
    with pytest.raises(BudgetError, match=f"of fixed cost, hold no {piece}; give at least [0-9,]+ bytes$"):
        kind_of(spec.parameters).resolve(spec, source)


def test_shards_that_a_job_makes_tiny_are_refused_with_a_budget_too(
    source: VectorSource, tmp_path: Path
) -> None:
    """Where the job sets the size of shards, no budget makes them fewer; looking for one must end all the same."""
    parameters = {"kind": "graph", "shard_vectors": 64, "sample_vectors": 256}
    spec = job(tmp_path / "index", parameters, 100 * MIB)
    with pytest.raises(BudgetError, match=r"give at least [0-9,]+ bytes$"):
        kind_of(spec.parameters).resolve(spec, source)
