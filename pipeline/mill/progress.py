"""Progress of stages, reported to any listener."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """A listener for one build: the command line shows bars, tests and the Python API stay silent."""

    def start(self, stage: str, total: int, unit: str) -> None:
        """Begin `stage`, which has `total` steps of `unit` (``"vectors"``, ``"tasks"``)."""

    def advance(self, steps: int) -> None:
        """Count `steps` of the current stage as done; called from one thread at a time."""

    def finish(self, note: str = "") -> None:
        """End the current stage with a short result such as ``"reused"``."""


class Silent:
    """A listener that ignores everything."""

    def start(self, stage: str, total: int, unit: str) -> None:
        """Ignore."""

    def advance(self, steps: int) -> None:
        """Ignore."""

    def finish(self, note: str = "") -> None:
        """Ignore."""


@contextmanager
def stage_progress(progress: Progress, stage: str, total: int, unit: str) -> Iterator[Progress]:
    """Start and finish `stage` around a block."""
    progress.start(stage, total, unit)
    yield progress
    progress.finish()
