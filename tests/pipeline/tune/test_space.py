"""Settings that `tune` may try: those that the job leaves open."""

from __future__ import annotations

from indexmill.pipeline.spec import Parameters
from indexmill.pipeline.tune.space import ALPHAS, DEGREES, GraphCandidate, space_of


def test_a_job_that_says_nothing_leaves_everything_open() -> None:
    space = space_of(Parameters(), 128)
    assert space.degrees == DEGREES
    assert space.alphas == ALPHAS
    assert space.pq_sizes == (8, 16, 32, 64)
    assert GraphCandidate(32, 75, 1.2) in space.graphs()


def test_what_a_job_says_stays_as_it_is() -> None:
    space = space_of(Parameters(R=20, L=44, alpha=1.1, pq_bytes=7), 128)
    assert space.graphs() == [GraphCandidate(20, 44, 1.1)]
    assert space.pq_sizes == (7,)
    assert space.with_longer_list(space.graphs()[0]) == space.graphs()


def test_a_builder_without_searches_has_one_build_list() -> None:
    space = space_of(Parameters(builder="partition"), 128)
    assert space.with_longer_list(space.graphs()[0]) == [space.graphs()[0]]
