"""What every build knows before its first stage: sizes, room in the work directory, and then its recipe."""

from __future__ import annotations

from pathlib import Path

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.mill.room import check_free, check_scratch
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.spec import BuildSpec


class Blueprint:
    """A build whose sizes are known and found to fit its memory; each kind of index has one.

    Parameters
    ----------
    spec : BuildSpec
    source : VectorSource
    """

    def __init__(self, spec: BuildSpec, source: VectorSource) -> None:
        self.spec = spec
        self.source = source

    @property
    def keep(self) -> bool:
        """Whether stages stay for later builds."""
        return self.spec.work is not None

    def needed_scratch(self) -> tuple[int, dict[str, int]]:
        """Return the most bytes that the work directory will hold, and what each stage leaves there."""
        raise NotImplementedError

    def scratch_bound(self, need: int) -> int:
        """Return the most bytes that the work directory may hold where the job does not say; `need` are expected."""
        raise NotImplementedError

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> Recipe:
        """Return the stages after ingest."""
        raise NotImplementedError

    def hint(self, room: int) -> str:
        """Return what else would help where there are but `room` bytes, beginning with ", or"; empty if nothing."""
        return ""

    def check_room(self, place: Path, held: int) -> tuple[int, dict[str, int]]:
        """Return `needed_scratch`, having found room for it at `place`, which holds `held` bytes of it already.

        Raises
        ------
        BudgetError
            If the build needs more than the job allows, or than the file system has free.
        """
        need, files = self.needed_scratch()
        if self.spec.scratch is not None:
            check_scratch(need, self.spec.scratch, place, self.hint)
        check_free(place, need - held, hint=lambda free: self.hint(free + held))
        return need, files

    def scratch_limit(self, store: StageStore) -> int:
        """Return the bytes the work directory may take: what the job allows, else what a build of this kind may need.

        What is there already, of this build or of others, comes on top where the job names the work directory.

        Raises
        ------
        BudgetError
            As `check_room`.
        """
        held = store.used_bytes()
        need, _ = self.check_room(store.root, held)
        beside = held if self.keep else 0
        if self.spec.scratch is None:
            return self.scratch_bound(need) + beside + (need if self.keep else 0)
        return self.spec.scratch + beside
