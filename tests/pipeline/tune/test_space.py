"""Settings that `tune` may try: those that the job leaves open."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.tune import plain_space, shape_of

from indexmill.pipeline.kinds.graph.candidates import Format, open_formats
from indexmill.pipeline.spec import Parameters
from indexmill.pipeline.tune.graphs.space import (
    ALPHAS,
    DEGREES,
    CodeFormat,
    GraphCandidate,
    space_of,
    tried_formats,
)


def tried(**settings: Any) -> list[Format]:
    """Formats of a million embeddings."""
    p = Parameters(**settings)
    return tried_formats(p, 768, open_formats(shape_of(p, 768, 1_000_000)))


def test_a_job_that_says_nothing_leaves_everything_open() -> None:
    space = plain_space(Parameters(), 128)
    assert space.degrees == DEGREES
    assert space.alphas == ALPHAS
    assert space.codes == tuple(CodeFormat(size, "none") for size in (8, 16, 32, 64))
    assert space.usual == CodeFormat(32, "none")
    assert GraphCandidate(32, 75, 1.2) in space.graphs()


def test_what_a_job_says_stays_as_it_is() -> None:
    space = plain_space(Parameters(R=20, L=44, alpha=1.1, pq_bytes=7), 128)
    assert space.graphs() == [GraphCandidate(20, 44, 1.1)]
    assert space.codes == (CodeFormat(7, "none"),)
    assert space.with_longer_list(space.graphs()[0]) == space.graphs()


def test_a_builder_without_searches_has_one_build_list() -> None:
    space = plain_space(Parameters(builder="partition"), 128)
    assert space.with_longer_list(space.graphs()[0]) == [space.graphs()[0]]


def test_codes_have_the_size_that_a_build_has_and_others() -> None:
    found = tried()
    assert {one.pq_bytes for one in found} == {48, 64, 96, 192, 384}
    assert {(one.pq_rotation, one.node_dtype) for one in found} == {
        (rotation, node) for rotation in ("none", "opq") for node in ("sq8", "sq16", "same")
    }


def test_a_limit_of_memory_is_used_up_and_not_exceeded() -> None:
    assert {one.pq_bytes for one in tried(search_memory="64/vector")} == {48, 64}
    assert {one.pq_bytes for one in tried(search_memory="40/vector")} == {40}
    most = {
        rotation: max(one.pq_bytes for one in tried(search_memory="80MB") if one.pq_rotation == rotation)
        for rotation in ("none", "opq")
    }
    assert 64 < most["opq"] < most["none"] < 80


def test_what_a_job_says_of_codes_is_all_that_is_tried() -> None:
    found = tried(pq_bytes=50, pq_rotation="opq", node_dtype="same")
    assert [(one.pq_bytes, one.pq_rotation, one.node_dtype) for one in found] == [(50, "opq", "same")]


@pytest.mark.parametrize(
    ("dim", "of_build", "degrees"),
    [
        (384, 49, (16, 24, 32, 49, 73, 96)),  # 7 nodes a page with R = 49, and 6 with 73
        (768, 63, (16, 24, 32, 48, 63, 148)),
        (1536, 64, (16, 24, 32, 48, 64, 127, 160)),
        (3072, 64, (16, 24, 32, 48, 64, 160)),  # a page each in any case
    ],
)
def test_degrees_that_fill_pages_take_the_places_of_the_nearest(
    dim: int, of_build: int, degrees: tuple[int, ...]
) -> None:
    shape = shape_of(Parameters(), dim, 1_000_000)
    assert space_of(shape, [Format(64, "opq", "sq8", of_build)]).degrees == degrees


def test_a_degree_of_the_job_is_not_widened() -> None:
    shape = shape_of(Parameters(R=40), 768, 1_000_000)
    assert space_of(shape, [Format(64, "opq", "sq8", 40)]).degrees == (40,)


def test_the_largest_codes_take_as_much_as_any() -> None:
    formats = [Format(48, "opq", "sq8", 63), Format(96, "none", "sq8", 63)]
    assert space_of(shape_of(Parameters(), 768), formats).largest_code() == CodeFormat(96, "opq")
