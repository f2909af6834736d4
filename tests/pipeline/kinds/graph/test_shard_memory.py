"""Peak memory of the plan of shards."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from indexmill.builders.cluster.shards import plan_shards
from indexmill.pipeline.kinds.graph.memory import stage_bytes
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import Parameters

N, DIM = 20_000, 192


@pytest.mark.parametrize("shard_vectors", [N // 2, N // 8])
def test_shards_are_planned_within_the_memory_that_is_foretold(shard_vectors: int) -> None:
    sample = np.random.default_rng(1).random((N, DIM), np.float32)
    plan_shards(sample[:2000], 2000, 500, 0.25, 1)  # compiles
    tracemalloc.start()
    try:
        plan_shards(sample, N, shard_vectors, 0.25, 1, threads=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    p = Parameters(builder="vamana", shard_vectors=shard_vectors, overlap=0.25)
    planned = stage_bytes(GraphShape(N, DIM, sample.dtype, 0.0, p), 1 << 30, 2)["cluster"]
    assert 0.7 < peak / planned <= 1.01
