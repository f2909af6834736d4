"""Lists that are not saturated stay so when an index is extended, and their builds are planned smaller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.support.indexes.builds import assert_sound, build, clustered

import indexmill
from indexmill.formats.index.manifest import read_manifest
from indexmill.pipeline.kinds.graph.memory import stage_bytes
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.spec import Parameters


def test_an_append_saturates_no_list_of_an_index_without(tmp_path: Path) -> None:
    index = tmp_path / "ix"
    build(index, clustered(900, 12, "uint8"), R=24, L=40, pq_bytes=8, saturate=False)
    before = read_manifest(index).graph["mean_degree"]
    indexmill.append(index, clustered(900, 12, "uint8", seed=3))
    assert_sound(index)
    assert read_manifest(index).parameters["saturate"] is False
    assert before < 20
    assert read_manifest(index).graph["mean_degree"] < 1.1 * before


def test_a_plan_counts_one_more_neighbour_a_leaf_where_lists_are_not_saturated() -> None:
    shape = GraphShape(1_000_000, 128, np.dtype(np.uint8), 0, Parameters(builder="partition"))
    without = replace(shape, parameters=Parameters(builder="partition", saturate=False))
    saturated, free = (stage_bytes(each, 8 << 30, 1)["build"] for each in (shape, without))
    assert free - saturated == 1_000_000 * 20 * 4
