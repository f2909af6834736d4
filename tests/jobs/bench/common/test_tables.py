"""Figures of records, found by an expression."""

from __future__ import annotations

import pytest

from indexmill.jobs.bench.common.tables import evaluate


@pytest.mark.parametrize(
    "formula", ["missing.x", "missing.x|abs", "missing.x * 2", "1 / part.missing", "part.missing|abs"]
)
def test_a_formula_of_what_a_record_lacks_has_no_value(formula: str) -> None:
    assert evaluate(formula, {"part": {"x": -2.0}}) is None


def test_a_formula_of_what_a_record_has_is_computed() -> None:
    assert evaluate("part.x|abs * 2", {"part": {"x": -2.0}}) == 4.0
