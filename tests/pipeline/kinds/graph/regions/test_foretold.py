"""The regions that a plan foretells from a sample, beside those that the build makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.indexes.builds import clustered

from indexmill.formats.sources.source import array_source
from indexmill.pipeline.cluster import StandIn
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.common import preview
from indexmill.pipeline.kinds.common.metric import as_stored
from indexmill.pipeline.kinds.graph.regions import sampled
from indexmill.pipeline.kinds.graph.regions.memory import Expected
from indexmill.pipeline.kinds.graph.regions.plan import expected_cut
from indexmill.pipeline.kinds.graph.regions.sampled import sampled_cells
from indexmill.pipeline.kinds.graph.regions.tasks import carve_task, load_regions, regions_task
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import Parameters

N, DIM, MEMORY = 30_000, 12, 1 << 30


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_memory, "MOST_SORT_BUFFERS", 256 << 10)


def shape_of(vectors: NDArray[Any], metric: str = "l2", room: int = 2_500_000) -> GraphShape:
    parameters = Parameters(builder="partition", R=16, metric=metric)
    return GraphShape(len(vectors), vectors.shape[1], vectors.dtype, 0.0, parameters, region_bytes=room)


def made(vectors: NDArray[Any], shape: GraphShape, folder: Path) -> tuple[int, float, int]:
    """Return the regions that a build makes, those of a vector, and the vectors of the largest."""
    p = shape.parameters
    np.save(folder / "vectors.npy", as_stored(vectors, p.metric))
    files = str(folder / "vectors.npy"), str(folder / "carved.npy")
    carve_task(files[0], 0, len(vectors), shape.fanouts, p.seed, "cpu", files[1])
    regions_task(files[0], [files[1]], p.seed, shape.allowance(MEMORY), str(folder), 1)
    members = load_regions(folder).members
    return len(members), float(members.sum() / len(vectors)), int(members.max())


def foretold(vectors: NDArray[Any], shape: GraphShape) -> Expected:
    cells = sampled_cells(array_source(vectors), shape)
    assert cells is not None
    found = cells.expected(shape.allowance(MEMORY))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("dtype", "metric", "room"),
    [("uint8", "l2", 1_800_000), ("uint8", "l2", 3_000_000), ("float32", "cosine", 3_000_000)],
)
def test_a_sample_foretells_the_regions_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, metric: str, room: int
) -> None:
    monkeypatch.setattr(sampled, "ROWS", 5000)
    vectors = clustered(N, DIM, dtype)
    shape = shape_of(vectors, metric, room)
    regions, times, members = made(vectors, shape, tmp_path)
    found = foretold(vectors, shape)
    assert regions > 2
    assert abs(found.regions - regions) <= 1
    assert found.times == pytest.approx(times, rel=0.07)
    assert found.members == pytest.approx(members, rel=0.12)


def test_regions_of_a_large_input_are_foretold_by_its_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "WHOLE_BYTES", 1)
    monkeypatch.setattr(sampled, "ROWS", 5000)
    alike, spread = clustered(N, DIM, "uint8"), np.random.default_rng(2).integers(0, 255, (N, DIM), np.uint8)
    same_start = np.concatenate([alike[:5000], spread[5000:]])
    shape = shape_of(alike)
    assert foretold(same_start, shape) == foretold(alike, shape)
    assert foretold(spread, shape).times > 1.2 * foretold(alike, shape).times


def test_an_input_with_few_vectors_foretells_no_regions_of_many() -> None:
    vectors = clustered(300, DIM, "uint8")
    shape = replace(shape_of(vectors), n=N)
    assert sampled_cells(StandIn(array_source(vectors), N), shape) is None
    expected = expected_cut(shape, MEMORY)  # as of vectors of which nothing is known
    assert expected is not None
    assert expected.regions > 2


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_rows_that_a_build_refuses_foretell_nothing(metric: str) -> None:
    vectors = clustered(N, DIM, "float32")
    shape = shape_of(vectors, metric)
    vectors[::2] = np.nan  # the build names the first of them
    assert foretold(vectors, shape).regions > 2
    assert sampled_cells(array_source(np.full_like(vectors, np.nan)), shape) is None
