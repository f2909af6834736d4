"""Time left of a whole build: the plan's seconds of each stage, corrected by what finished stages took."""

from __future__ import annotations

from collections.abc import Mapping

#: Seconds of plan that count beside those of the finished stages: one short stage does not overturn the plan.
_TRUST_SECONDS = 5.0


class Forecast:
    """Predicts the rest of a build.

    Parameters
    ----------
    planned : mapping of str to float
        Seconds of each stage of the build.
    """

    def __init__(self, planned: Mapping[str, float]) -> None:
        self._n_stages = len(planned)
        self._waiting = dict(planned)
        self._took = self._predicted = _TRUST_SECONDS

    def place(self, stage: str) -> tuple[int, int]:
        """Return the number of planned stages that are done, with the running one, and the number of all."""
        return self._n_stages - len(self._waiting) + (stage in self._waiting), self._n_stages

    def finish(self, stage: str, seconds: float, reused: bool) -> None:
        """Learn that a stage took `seconds`; one that an earlier run left, and one without plan, teach nothing."""
        predicted = self._waiting.pop(stage, None)
        if predicted is not None and not reused:
            self._took += seconds
            self._predicted += predicted

    def left(self, stage: str, share: float, seconds: float) -> float:
        """Return the seconds that the build still takes.

        Parameters
        ----------
        stage : str
            The running one; empty between two stages.
        share : float
            Of its steps that are done, 0 to 1. The more are done, the more its own rate counts, and the less the plan.
        seconds : float
            Since it began.
        """
        factor = self._took / self._predicted
        # a copy: the terminal is drawn by a thread of its own, while the build finishes stages
        later = sum(predicted for name, predicted in list(self._waiting.items()) if name != stage)
        planned = max(self._waiting.get(stage, 0.0) * factor - seconds, 0.0)
        at_this_rate = seconds * (1 - share) / share if share > 0 else planned
        return factor * later + share * at_this_rate + (1 - share) * planned
