"""The build that would make the result of an update anew, which the update is compared with; and its rates."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from indexmill.formats.errors import BudgetError
from indexmill.pipeline.kinds.common.parameters import KindParameters
from indexmill.pipeline.kinds.common.seconds import starting_seconds
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.update.source import OutlinedSource
from indexmill.pipeline.update.spec import UpdateSpec

#: Memory in which any build fits, where the job's is too small for one and rates alone are wanted.
_AMPLE = 1 << 50


class Rebuild:
    """A build of all vectors of the result, with the parameters of the index.

    Attributes
    ----------
    size : Size
        Of the build.
    """

    def __init__(
        self, parameters: KindParameters, source: OutlinedSource, spec: UpdateSpec, place: Path
    ) -> None:
        self._place, self._refusal = place, ""
        job = BuildSpec.model_validate(
            {
                "input": source.paths,
                "out": spec.out or spec.base[0],
                "parameters": parameters.model_dump(),
                "memory": spec.memory,
                "workers": spec.workers,
            }
        )
        try:
            self.size: Any = kind_of(parameters).resolve(job, source)
        except BudgetError as error:
            self._refusal = str(error)
            self.size = kind_of(parameters).resolve(job.model_copy(update={"memory": _AMPLE}), source)
        self.size.settle(place)

    @cached_property
    def rates(self) -> Any:
        """Rates of the tasks of the build on this machine, timed once."""
        return self.size.timed(self._place)

    def foretold(self) -> tuple[float | None, str]:
        """Return the seconds of the build, None if it does not fit, and then why."""
        if self._refusal:
            return None, self._refusal
        _, files = self.size.needed_scratch()
        seconds = self.size.seconds_at(self.rates)
        return float(starting_seconds(self.size.start_seconds) + sum(seconds[name] for name in files)), ""
