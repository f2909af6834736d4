"""Memory, space and time of the index of all vectors that a candidate would make, as `plan` predicts them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.build import work_directory
from indexmill.pipeline.kinds.common.parameters import KindParameters
from indexmill.pipeline.kinds.size import Size
from indexmill.pipeline.plan import Plan, make_plan
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.choice import Cost

C = TypeVar("C")


class Prices(ABC, Generic[C]):
    """Prices of candidates, for all vectors of a job.

    Parameters
    ----------
    spec : BuildSpec
    source : VectorSource
    """

    def __init__(self, spec: BuildSpec, source: VectorSource) -> None:
        self.spec, self.source = spec, source

    @abstractmethod
    def parameters(self, candidate: C) -> KindParameters:
        """Return the parameters of the job with those of a candidate."""

    def job(self, candidate: C) -> BuildSpec:
        """Return the job that builds a candidate."""
        return self.spec.model_copy(update={"parameters": self.parameters(candidate)})

    @abstractmethod
    def size(self, candidate: C) -> Size[Any]:
        """Return the size of that job, which fits its memory.

        Raises
        ------
        BudgetError, ConfigError
        """

    @abstractmethod
    def cost(self, candidate: C, reads: float) -> Cost:
        """Return the costs of a candidate that can be built, and whose searches take so many reads."""

    def refusal(self, candidate: C) -> BudgetError | ConfigError | None:
        """Return why a candidate cannot be built; None if it fits memory and disk."""
        try:
            self.size(candidate).check_space(work_directory(self.spec), 0)
        except (BudgetError, ConfigError) as error:
            return error
        return None

    def plan(self, candidate: C) -> Plan:
        """Return the plan of the build."""
        return make_plan(self.job(candidate), self.source)
