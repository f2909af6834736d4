"""Memory of searches, builds and samples of `tune`, and settings that it leaves out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.tune import plain_space, shape_of

import indexmill
from indexmill.builders import gpu
from indexmill.formats.errors import ConfigError
from indexmill.formats.sources.source import open_source
from indexmill.pipeline.kinds.graph.candidates import Format
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.tune.graphs.prices import GraphPrices, buildable
from indexmill.pipeline.tune.graphs.run import sized
from indexmill.pipeline.tune.graphs.space import (
    DEGREES,
    Candidate,
    CodeFormat,
    GraphCandidate,
    space_of,
    tried_formats,
)
from indexmill.pipeline.tune.request import TuneRequest


@dataclass(frozen=True)
class Said:
    """Vectors of which only the sizes are looked at."""

    n_vectors: int
    dim: int
    dtype: np.dtype[Any]
    id_type: str = "none"
    metadata_schema: None = None
    paths: tuple[str, ...] = ("base.u8bin",)


def plain(size: int) -> CodeFormat:
    return CodeFormat(size, "none")


def memory_of(prices: GraphPrices, candidate: Candidate) -> int:
    """Memory that searches of a candidate hold."""
    return prices.cost(candidate, 1.0).memory_bytes


def limited(base: Path, most: int, **parameters: Any) -> tuple[GraphPrices, list[Format]]:
    """Prices of a job within a memory of searches, and the formats that it leaves open."""
    p = Parameters(search_memory=str(most), **parameters)
    spec, source = BuildSpec(input=[str(base)], out="x.index", parameters=p), open_source(str(base))
    return GraphPrices(spec, source), tried_formats(p, 12, GraphSize(spec, source).formats)


def test_codes_above_the_memory_of_searches_are_not_tried(base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(R=12, L=30))
    prices = GraphPrices(spec, open_source(str(base)))
    most = memory_of(prices, Candidate(GraphCandidate(12, 30, 1.2), plain(4)))
    assert [one.pq_bytes for one in limited(base, most, R=12, L=30)[1]] == [1, 3, 4]
    assert [one.pq_bytes for one in limited(base, most - 1, R=12, L=30)[1]] == [1, 3]


def test_codes_too_large_for_the_memory_of_the_build_leave_degrees_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def enough(*_: Any, **__: Any) -> None:
        """There is enough of disk."""

    monkeypatch.setattr("indexmill.pipeline.kinds.size.check_free", enough)
    spec = BuildSpec(input=["base.u8bin"], out="x.index", memory=4 << 30)
    left_out: list[str] = []
    space = buildable(
        plain_space(Parameters(), 128),
        GraphPrices(spec, Said(100_000_000, 128, np.dtype(np.uint8))),
        left_out,
    )
    assert space.degrees == DEGREES
    assert space.codes == tuple(plain(size) for size in (8, 16, 32))
    assert [line.partition(":")[0] for line in left_out] == ["codes of 64 bytes"]
    assert "stage certify needs" in left_out[0]


def test_more_workers_make_no_sample_smaller() -> None:
    space, found = plain_space(Parameters(), 128), {}
    for workers in (1, 2, 32):
        spec = BuildSpec(input=["base.u8bin"], out="x.index", memory=340 << 20, workers=workers)
        source = Said(10_000_000, 128, np.dtype(np.uint8))
        found[workers] = sized(TuneRequest(spec=spec, effort="high"), source, space)
    sizes = {samples[-1] for samples, *_ in found.values()}
    assert len(sizes) == 1
    assert 3_200 <= sizes.pop() < 400_000
    assert found[1][2] == 1
    assert found[2][2] <= 2
    assert 1 <= found[32][2] < 32


def test_the_memory_of_searches_is_kept_to_with_every_degree(base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters())
    unlimited, large = GraphPrices(spec, open_source(str(base))), GraphCandidate(96, 225, 1.2)
    most = memory_of(unlimited, Candidate(GraphCandidate(32, 75, 1.2), plain(3)))
    assert memory_of(unlimited, Candidate(large, plain(3))) > most
    left_out: list[str] = []
    prices, formats = limited(base, most)
    space = buildable(space_of(shape_of(Parameters(), 12), formats), prices, left_out)
    assert space.degrees == DEGREES
    assert space.codes == (plain(1), plain(3))
    small = GraphCandidate(16, 38, 1.2)
    found = space.coded([small, large])
    assert found == [Candidate(small, plain(1)), Candidate(small, plain(3)), Candidate(large, plain(1))]
    assert all(memory_of(unlimited, one) <= most for one in found)
    assert [line.partition(":")[0] for line in left_out] == [
        f"R={r} with codes of 3 bytes" for r in DEGREES[3:]
    ]
    assert re.search(rf": searches would hold [\d,]+ bytes, more than --search-memory {most}$", left_out[0])


def test_degrees_whose_smallest_codes_are_too_much_are_left_out(base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(pq_bytes=3))
    unlimited = GraphPrices(spec, open_source(str(base)))
    most = memory_of(unlimited, Candidate(GraphCandidate(48, 112, 1.2), plain(3)))
    left_out: list[str] = []
    prices, formats = limited(base, most, pq_bytes=3)
    space = buildable(space_of(shape_of(Parameters(pq_bytes=3), 12), formats), prices, left_out)
    assert space.degrees == (16, 24, 32, 48)
    assert [line.partition(":")[0] for line in left_out] == ["R=64", "R=96"]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConfigError("compute: cuda needs CuPy")

    monkeypatch.setattr(gpu, "cuda_gpu", refuse)


def test_a_job_that_takes_a_gpu_if_there_is_one_is_priced_without_one(base: Path, no_gpu: None) -> None:
    candidate = Candidate(GraphCandidate(12, 30, 1.2), plain(3))
    auto, cpu = (
        GraphPrices(
            BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(device=name)),
            open_source(str(base)),
        )
        for name in ("auto", "cpu")
    )
    assert auto.refusal(candidate) is None
    assert auto.cost(candidate, 1.0) == cpu.cost(candidate, 1.0)
    assert auto.job(candidate).parameters.compute == "auto"


def test_a_gpu_that_is_not_there_is_told_before_anything_is_tried(base: Path, no_gpu: None) -> None:
    with pytest.raises(ConfigError, match="cuda needs CuPy"):
        indexmill.tune(base, compute="cuda", memory="1MiB")  # of which a trial would complain
