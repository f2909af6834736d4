"""Progress of stages, reported to any listener."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable


class Progress(Protocol):
    """A listener for one build: the command line shows bars, tests and the Python API stay silent."""

    def start(self, stage: str, total: int, unit: str) -> None:
        """Begin `stage`, which has `total` steps of `unit` (``"vectors"``, ``"tasks"``)."""

    def advance(self, steps: int) -> None:
        """Count `steps` of the current stage as done; called from one thread at a time."""

    def finish(self, note: str = "") -> None:
        """End the current stage with a short result such as ``"reused"``."""


@runtime_checkable
class Foreseeing(Protocol):
    """A listener that is also told which stages are to come."""

    def expect(self, stages: Sequence[str]) -> None:
        """Name the stages of a run, in order; those that began are passed over, one that comes twice is named twice."""


class Silent:
    """A listener that ignores everything."""

    def start(self, stage: str, total: int, unit: str) -> None:
        """Ignore."""

    def advance(self, steps: int) -> None:
        """Ignore."""

    def finish(self, note: str = "") -> None:
        """Ignore."""


class Prefixed:
    """Names stages after a step of which they are a part: ``append insert``.

    Parameters
    ----------
    progress : Progress
    step : str
    later : sequence of str
        Stages that come after the step.
    """

    def __init__(self, progress: Progress, step: str, later: Sequence[str] = ()) -> None:
        self._progress, self._step, self._later = progress, step, later

    def expect(self, stages: Sequence[str]) -> None:
        """See `Foreseeing.expect`."""
        if isinstance(self._progress, Foreseeing):
            self._progress.expect([*(f"{self._step} {stage}" for stage in stages), *self._later])

    def start(self, stage: str, total: int, unit: str) -> None:
        """Begin `stage`."""
        self._progress.start(f"{self._step} {stage}", total, unit)

    def advance(self, steps: int) -> None:
        """Count `steps`."""
        self._progress.advance(steps)

    def finish(self, note: str = "") -> None:
        """End the stage."""
        self._progress.finish(note)


@contextmanager
def stage_progress(progress: Progress, stage: str, total: int, unit: str) -> Iterator[Progress]:
    """Start and finish `stage` around a block."""
    progress.start(stage, total, unit)
    yield progress
    progress.finish()
