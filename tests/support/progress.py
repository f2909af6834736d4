"""A listener for builds, with which a test acts between their stages."""

from __future__ import annotations

from collections.abc import Callable

from indexmill.pipeline.mill.progress import Silent


class Stages(Silent):
    """The names of the stages that a build made, in order; `then` is called with each when it is made."""

    def __init__(self, then: Callable[[str], object] | None = None) -> None:
        self.then = then
        self.at_work = ""
        self.made: list[str] = []

    def start(self, stage: str, total: int, unit: str) -> None:
        self.at_work = stage

    def finish(self, note: str = "") -> None:
        if note != "reused":
            self.made.append(self.at_work)
            if self.then is not None:
                self.then(self.at_work)
