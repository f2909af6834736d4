"""Formats are compared by their page reads at one recall, also where short lists find more than the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.indexes.trials import TrialCurves

from indexmill.formats.sources.source import array_source
from indexmill.jobs.kinds.graph_format import chosen_format
from indexmill.pipeline.kinds.common.judge import TARGET_RECALL
from indexmill.pipeline.kinds.graph import format
from indexmill.pipeline.kinds.graph.candidates import LEAST_VECTORS, Format
from indexmill.pipeline.kinds.graph.format import (
    CEILING,
    Comparison,
    FormatSample,
    chosen,
    compared,
    format_of_each_size,
    measured,
)
from indexmill.pipeline.spec import Parameters

PLAIN, ROTATED = (Format(8, rotation, "sq8", 16) for rotation in ("none", "opq"))
Points = list[tuple[float, float]]


def choice(plain: Points, rotated: Points) -> Comparison:
    tries: Any = TrialCurves(lambda p: plain if p.pq_rotation == "none" else rotated)
    return chosen(tries, Parameters(), [PLAIN, ROTATED])


def test_a_rotation_is_judged_at_the_recall_of_the_better_of_the_shortest_lists() -> None:
    found = choice([(0.967, 11.36), (0.99, 20.0)], [(0.982, 11.43), (0.99, 13.0)])
    assert found.best.format == ROTATED
    assert found.recall == 0.982
    assert {one.recall for one in found.tried} == {0.982}
    assert {one.format.pq_rotation: one.pages_read for one in found.tried} == pytest.approx(
        {"opq": 11.43, "none": 11.36 + (20 - 11.36) * 15 / 23}
    )


def test_formats_are_compared_at_the_target_where_their_shortest_lists_find_less() -> None:
    found = choice([(0.8, 10.0), (0.99, 29.0)], [(0.9, 10.0), (0.99, 19.0)])
    assert found.best.format == ROTATED
    assert found.recall == TARGET_RECALL
    assert [one.pages_read for one in found.tried] == pytest.approx([25, 15])


def test_beyond_the_recall_that_nodes_bound_a_rotation_is_not_worth_its_time() -> None:
    found = choice([(0.986, 11.0), (0.99, 40.0)], [(0.989, 11.0), (0.99, 12.0)])
    assert found.best.format == PLAIN
    assert found.recall == CEILING


def test_codes_that_reach_the_recall_are_taken_before_those_that_do_not() -> None:
    found = choice([(0.5, 10.0), (0.9, 90.0)], [(0.5, 10.0), (0.96, 250.0)])
    assert found.best.format == ROTATED
    assert [one.recall for one in found.tried] == [0.9, TARGET_RECALL]


def test_codes_that_reach_it_nowhere_are_compared_at_what_all_reach() -> None:
    found = choice([(0.5, 10.0), (0.8, 400.0)], [(0.5, 10.0), (0.9, 410.0)])
    assert found.best.format == ROTATED
    assert found.recall == 0.8
    assert found.best.pages_read == pytest.approx(310)


@st.composite
def curves(draw: st.DrawFn) -> Points:
    recalls = draw(st.lists(st.floats(0.5, 1.0), min_size=2, max_size=6, unique=True))
    pages = draw(st.lists(st.floats(5, 500), min_size=len(recalls), max_size=len(recalls), unique=True))
    return list(zip(sorted(recalls), sorted(pages), strict=True))


@given(st.lists(curves(), min_size=1, max_size=4))
def test_formats_differ_in_their_recall_only_where_their_lists_end(points: list[Points]) -> None:
    tries: Any = TrialCurves(lambda p: points[p.pq_bytes - 1])
    p, every = Parameters(), [PLAIN._replace(pq_bytes=size + 1) for size in range(len(points))]
    found, recall = compared(tries, p, [measured(tries, p, one) for one in every])
    assert any(one.recall >= recall for one in found)
    for one, curve in zip(found, points, strict=True):
        assert one.recall == np.clip(recall, curve[0][0], curve[-1][0])


def test_tuning_judges_the_rotation_of_each_size_of_codes_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, rotated = [(0.96, 11.0), (0.99, 20.0)], [(0.98, 11.2), (0.99, 13.0)]
    tries = TrialCurves(lambda p: plain if p.pq_rotation == "none" else rotated)
    monkeypatch.setattr(format, "trial_indexes", tries.opened)
    every = [one._replace(pq_bytes=size) for one in (PLAIN, ROTATED) for size in (4, 8)]
    source = array_source(np.random.default_rng(1).normal(size=(LEAST_VECTORS, 8)).astype(np.float32))
    found = format_of_each_size(source, Parameters(), every, CEILING, tmp_path, 1)
    assert found == [ROTATED._replace(pq_bytes=4), ROTATED]


def test_a_recall_is_named_where_it_is_not_that_of_the_comparison() -> None:
    found = choice([(0.967, 11.36), (0.99, 20.0)], [(0.982, 11.43), (0.99, 13.0)])
    drawn = FormatSample(np.zeros((2000, 8)), np.zeros((256, 8)), np.zeros((2, 8)))
    facts = {
        "chosen": found.best.format._asdict(), "tried": [one.facts() for one in found.tried],
        **format.sample_facts(drawn, found.recall),
    }  # fmt: skip
    text = chosen_format(facts, False)
    assert "; page reads at recall@10 0.982 on a sample of 2,000 vectors: " in text
    assert "nodes sq8, R=16: 11.4" in text
    assert "at a recall of" not in text
    facts["tried"][0]["recall"] = 0.91
    facts["tried"][1]["recall"] = 0.99
    text = chosen_format(facts, False)
    assert " at a recall of only 0.910; " in text
    assert text.endswith(" at a recall of 0.990")
