"""Memory of searches, builds and samples of `tune`, and settings that it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.tune import shape_of

import indexmill
from indexmill.builders import gpu
from indexmill.formats.errors import ConfigError
from indexmill.formats.sources.source import open_source
from indexmill.pipeline.kinds.graph.candidates import Format
from indexmill.pipeline.kinds.graph.size import GraphSize
from indexmill.pipeline.spec import BuildSpec, Parameters
from indexmill.pipeline.tune.prices import Prices, buildable, sample_within
from indexmill.pipeline.tune.space import (
    DEGREES,
    Candidate,
    Code,
    GraphCandidate,
    Space,
    space_of,
    tried_formats,
)


@dataclass(frozen=True)
class Said:
    """Vectors of which only the sizes are looked at."""

    n_vectors: int
    dim: int
    dtype: np.dtype[Any]
    id_type: str = "none"
    metadata_schema: None = None
    paths: tuple[str, ...] = ("base.u8bin",)


def plain_space(p: Parameters, dim: int) -> Space:
    """The space of few vectors, of which a build measures no formats."""
    size = p.pq_bytes if "pq_bytes" in p.model_fields_set else min(p.pq_bytes, dim)
    return space_of(shape_of(p, dim), tried_formats(p, dim, [Format(size, "none", "same", p.max_degree)]))


def plain(size: int) -> Code:
    return Code(size, "none")


def limited(base: Path, most: int, **parameters: Any) -> tuple[Prices, list[Format]]:
    """Prices of a job within a memory of searches, and the formats that it leaves open."""
    p = Parameters(search_memory=str(most), **parameters)
    spec, source = BuildSpec(input=[str(base)], out="x.index", parameters=p), open_source(str(base))
    return Prices(spec, source), tried_formats(p, 12, GraphSize(spec, source).formats)


def test_codes_above_the_memory_of_searches_are_not_tried(base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(R=12, L=30))
    prices = Prices(spec, open_source(str(base)))
    most = prices.price(Candidate(GraphCandidate(12, 30, 1.2), plain(4))).memory_bytes
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
        plain_space(Parameters(), 128), Prices(spec, Said(100_000_000, 128, np.dtype(np.uint8))), left_out
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
        found[workers] = sample_within(spec, source, space, 400_000, 3_200)
    sizes = {size for size, _ in found.values()}
    assert len(sizes) == 1
    assert 3_200 <= sizes.pop() < 400_000
    assert found[1][1] == 1
    assert found[2][1] <= 2
    assert 1 <= found[32][1] < 32


def test_the_memory_of_searches_is_kept_to_with_every_degree(base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters())
    unlimited, large = Prices(spec, open_source(str(base))), GraphCandidate(96, 225, 1.2)
    most = unlimited.price(Candidate(GraphCandidate(32, 75, 1.2), plain(3))).memory_bytes
    assert unlimited.price(Candidate(large, plain(3))).memory_bytes > most
    left_out: list[str] = []
    prices, formats = limited(base, most)
    space = buildable(space_of(shape_of(Parameters(), 12), formats), prices, left_out)
    assert space.degrees == DEGREES
    assert space.codes == (plain(1), plain(3))
    small = GraphCandidate(16, 38, 1.2)
    found = space.coded([small, large])
    assert found == [Candidate(small, plain(1)), Candidate(small, plain(3)), Candidate(large, plain(1))]
    assert all(unlimited.price(one).memory_bytes <= most for one in found)
    assert [line.partition(":")[0] for line in left_out] == [
        f"R={r} with codes of 3 bytes" for r in DEGREES[3:]
    ]
    assert f"search_memory {most} allows 2" in left_out[0]


def test_degrees_whose_smallest_codes_are_too_much_are_left_out(base: Path) -> None:
    spec = BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(pq_bytes=3))
    most = (
        Prices(spec, open_source(str(base)))
        .price(Candidate(GraphCandidate(48, 112, 1.2), plain(3)))
        .memory_bytes
    )
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
        Prices(
            BuildSpec(input=[str(base)], out="x.index", parameters=Parameters(device=name)),
            open_source(str(base)),
        )
        for name in ("auto", "cpu")
    )
    auto.check_fits(candidate)
    assert auto.price(candidate) == cpu.price(candidate)
    assert auto.job(candidate).parameters.compute == "auto"


def test_a_gpu_that_is_not_there_is_told_before_anything_is_tried(base: Path, no_gpu: None) -> None:
    with pytest.raises(ConfigError, match="cuda needs CuPy"):
        indexmill.tune(base, compute="cuda", memory="1MiB")  # of which a trial would complain
