"""The rebuild beside an update, by a predictor that knows its seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.update.plan import rebuild_beside
from indexmill.pipeline.update.predicted import Predicted, State

MANIFEST = Manifest("graph", "0" * 64, parameters={}, input={}, software={}, certificate=None, files=())


@dataclass
class Known:
    """A predictor of rebuilds alone."""

    seconds: float | None
    refusal: str = ""

    def rebuild(self) -> tuple[float | None, str]:
        return self.seconds, self.refusal

    def merge(self, states: list[State], after: State) -> Predicted:
        raise NotImplementedError

    def append(self, before: State, added: int) -> Predicted:
        raise NotImplementedError

    def changes_without_deletions(self, before: State) -> bool:
        raise NotImplementedError

    def compact(self, before: State) -> Predicted:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("known", "cheaper", "advice"),
    [
        (Known(50.0), True, "a rebuild would take 50 s: build anew"),
        (Known(100.0), False, "a rebuild would take 100 s: update"),
        (Known(1234.56), False, "a rebuild would take 1,235 s: update"),
        (Known(None, "memory: too small"), False, "a rebuild does not fit: memory: too small"),
    ],
)
def test_the_cheaper_of_both_is_advised(known: Known, cheaper: bool, advice: str) -> None:
    beside = rebuild_beside(known, [MANIFEST], 100.0)
    assert (beside.cheaper, beside.advice) == (cheaper, advice)


def test_the_advice_tells_of_a_drift_that_asks_for_a_rebuild() -> None:
    drifted = replace(MANIFEST, ivf={"drift": {"rebuild": True, "advice": "rebuild: lists are uneven"}})
    kept = replace(MANIFEST, drift={"rebuild": False, "advice": "keep: little was added"})
    beside = rebuild_beside(Known(500.0), [kept, drifted], 100.0)
    assert (
        beside.advice == "a rebuild would take 500 s: build anew, as the drift asks for it: lists are uneven"
    )
    assert not beside.cheaper
    advice = rebuild_beside(Known(None, "memory: too small"), [drifted], 100.0).advice
    assert advice == (
        "a rebuild does not fit: memory: too small; update, or find room for it, as the drift asks for one: "
        "lists are uneven"
    )


def test_sizes_follow_the_steps() -> None:
    state = State(100, 20, 1000)
    assert state.with_added(50) == State(150, 20, 1500)
    assert state.without_deleted() == State(80, 0, 800)
    assert state.left == 80
