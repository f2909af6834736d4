"""Listeners for builds, with which a test acts between their stages, or kills them within."""

from __future__ import annotations

import os
import signal
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


class Places(Silent):
    """The places that a run passes: ``start STAGE``, ``advance STAGE`` at its first step, ``finish STAGE``.

    Parameters
    ----------
    deadly : str, optional
        Where the process kills itself with SIGKILL.
    """

    def __init__(self, deadly: str | None = None) -> None:
        self.passed: list[str] = []
        self._deadly, self._stage = deadly, ""

    def start(self, stage: str, total: int, unit: str) -> None:
        self._stage = stage
        self._pass("start")

    def advance(self, steps: int) -> None:
        self._pass("advance")

    def finish(self, note: str = "") -> None:
        self._pass("finish")

    def _pass(self, what: str) -> None:
        place = f"{what} {self._stage}"
        if place == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if place not in self.passed:
            self.passed.append(place)
