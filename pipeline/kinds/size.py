"""The size of a build of any kind, which is known before the first stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from indexmill.formats.errors import BudgetError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.execution.schedule import Work
from indexmill.pipeline.kinds.common.ingest import InputSummary, check_metric
from indexmill.pipeline.kinds.common.memory import KERNEL_BYTES, LOADED_BYTES, workers_bytes
from indexmill.pipeline.kinds.common.shape import Shape
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.kinds.rehearsal import Rehearsal
from indexmill.pipeline.kinds.scratch import inputs_of, played, side_columns
from indexmill.pipeline.mill.disk_space import check_free, check_scratch
from indexmill.pipeline.mill.stages import Mill, Stage
from indexmill.pipeline.mill.store import StageStore


class Job(Protocol):
    """The fields of a `BuildSpec` that sizes depend on."""

    @property
    def parameters(self) -> Any:
        """Parameters of the kind."""

    @property
    def centroids(self) -> str | None:
        """A file of given centroids, for a kind that takes them."""

    @property
    def query_sample(self) -> str | None:
        """A file of queries, for a kind that they may shape."""

    @property
    def query_column(self) -> str | None:
        """Column of their vectors."""

    @property
    def label_column(self) -> str | None:
        """A metadata column of labels, for a kind that they may shape."""

    @property
    def memory(self) -> int:
        """The budget, in bytes."""

    @property
    def scratch(self) -> int | None:
        """Bytes that the work directory may hold."""

    @property
    def workers(self) -> int:
        """Threads, or Ray workers."""

    @property
    def executor(self) -> str:
        """Name of the executor."""

    @property
    def work(self) -> str | None:
        """The work directory, if it is to be kept."""


S = TypeVar("S", bound=Shape)


class Size(ABC, Generic[S]):
    """Everything known of a build before its first stage. The build fits its memory, cut into as many pieces as needed.

    Parameters
    ----------
    job : Job
    source : VectorSource

    Attributes
    ----------
    shape : Shape
        Vectors and parameters; each kind sets its own class.
    side : SideColumns

    Raises
    ------
    ConfigError, InputError
        If parameters and input do not go together.
    BudgetError
        If the build does not fit, naming the smallest budget that does.
    """

    #: Stages in which a process has no compiled kernels yet.
    before_kernels: ClassVar[frozenset[str]] = frozenset({"ingest", "sample"})
    #: Seconds of the interpreter, imports, and kernels out of their cache, on the machine of `starting_seconds`; before
    #: the first build on a machine they are compiled.
    start_seconds: ClassVar[float] = 1.0
    #: The stages that choose and that train the codes which the parts of a set have in common; empty where none does.
    chosen_in: ClassVar[str] = ""
    trained_in: ClassVar[str] = ""

    shape: S

    def __init__(self, job: Job, source: VectorSource) -> None:
        check_metric(source, job.parameters.metric)
        self.job = job
        self.source = source
        self.side = side_columns(source)

    @classmethod
    @abstractmethod
    def rehearsals(cls, job: Job, source: VectorSource) -> list[Rehearsal]:
        """Return tiny builds that use all kernels of a job; nothing is compiled for that."""

    def check_given(self) -> None:
        """Refuse values of files beside the vectors, before the first stage, that a later one would refuse.

        Raises
        ------
        InputError
            Naming file and row.
        """

    @property
    def keep(self) -> bool:
        """Whether stages are kept for later builds."""
        return self.job.work is not None

    @abstractmethod
    def stage_bytes(self) -> dict[str, int]:
        """Return the peak memory of each stage, without the memory that processes take before any vector."""

    @abstractmethod
    def stage_files(self) -> dict[str, int]:
        """Return the bytes that each stage leaves in the work directory, perhaps also of stages that are not made."""

    @abstractmethod
    def timed(self, place: Path) -> Any:
        """Return the rates of a build on this machine, after a short trial.

        Parameters
        ----------
        place : Path
            An existing directory, where files are written and removed.
        """

    @abstractmethod
    def seconds_at(self, rates: Any) -> dict[str, float]:
        """Return the predicted seconds of each stage of `stage_files` at rates that `timed` found."""

    def seconds(self, place: Path) -> dict[str, float]:
        """Return the predicted seconds of each stage of `stage_files`; `place` is as of `timed`."""
        return self.seconds_at(self.timed(place))

    def inputs(self) -> dict[str, tuple[str, ...]]:
        """Return the stages in the order they are made, each with the stages whose files it reads."""
        return inputs_of(self.last_stage, self.stage_files(), self.shape)

    @property
    def pieces(self) -> int:
        """Pieces that nodes can build side by side."""
        return 1

    @property
    def index_bytes(self) -> int:
        """Bytes of the finished index."""
        return self.stage_files()["emit"]

    def for_codes(self, parts: int) -> Self:
        """Return the size by which the codes of a set of so many parts like this one are trained."""
        return self

    def training_seconds(self, rates: Any) -> float:
        """Return the seconds that stage `trained_in` trains codes, which a part of a set takes as they are."""
        return 0.0

    def chosen(self) -> dict[str, Any]:
        """Return the parameters that `settle` chose: those that are chosen once for all parts of a set."""
        return {}

    def refitted(self, job: Job) -> Self | None:
        """Return the size of the same index by a job of another memory; None where there is none."""
        return None

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the facts that a plan shows beside its stages."""

    @abstractmethod
    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> Recipe:
        """Return the stages after ingest, which is `first` and is finished.

        Where the first of these stages decide the others, as parameters that are solved for do, those are made here.

        Raises
        ------
        ConfigError, BudgetError
            If what they decide does not go together, or does not fit.
        """

    def last_stage(self, mill: Mill, first: Stage, summary: InputSummary) -> Stage:
        """Return the last stage of a build that is played through on paper; parameters as of `recipe`."""
        return self.recipe(mill, first, summary).certify

    def settle(self, place: Path) -> None:
        """Decide for a prediction what the first stages of the build will decide, on rows read from the source.

        Parameters
        ----------
        place : Path
            An existing directory, where files are written and removed.
        """

    def look_closer(self) -> bool:
        """Look at rows of the source for a better prediction; return whether there is one that was not there before."""
        return False

    def know_as(self, other: Self) -> None:
        """Take over what `other`, the size of an index of the same vectors, found as it looked closer."""

    @abstractmethod
    def scratch_bound(self, need: int) -> int:
        """Return the most bytes of the work directory if the job states no limit; `need` are expected."""

    def hint(self, space: int) -> str:
        """Return further advice for a disk of `space` bytes, beginning with ", or"; empty if there is none."""
        return ""

    def peak_bytes(self) -> dict[str, int]:
        """Return the memory of all processes during each stage."""
        loaded = LOADED_BYTES + workers_bytes(self.job.executor, self.job.workers)
        return {
            name: loaded + own + KERNEL_BYTES * (name not in self.before_kernels)
            for name, own in self.stage_bytes().items()
        }

    def needed_scratch(self) -> tuple[int, dict[str, int]]:
        """Return the most bytes that the work directory will hold, and those that each stage leaves, in order."""
        return played(self.last_stage, self.stage_files(), self.shape, self.keep)

    def check_space(self, place: Path, held: int) -> tuple[int, dict[str, int]]:
        """Return `needed_scratch`; raise BudgetError unless `place` has the space, less the `held` bytes there.

        A build that seems to have no room is looked at more closely.

        Raises
        ------
        BudgetError
            If the build needs more than the job allows, or than the file system has free.
        """
        need, files = self.needed_scratch()
        try:
            self._check_room(need, place, held)
        except BudgetError:
            if not self.look_closer():
                raise
            need, files = self.needed_scratch()
            self._check_room(need, place, held)
        return need, files

    def _check_room(self, need: int, place: Path, held: int) -> None:
        if self.job.scratch is not None:
            check_scratch(need, self.job.scratch, place, self.hint)
        check_free(place, need - held, hint=lambda free: self.hint(free + held))

    def scratch_limit(self, store: StageStore) -> int:
        """Return the limit of the work directory in bytes: that of the job, else the most that such a build may need.

        If the job names the work directory, files of all builds that lie there already come on top.

        Raises
        ------
        BudgetError
            As `check_space`.
        """
        held = store.used_bytes()
        need, _ = self.check_space(store.root, held)
        beside = held if self.keep else 0
        if self.job.scratch is None:
            return self.scratch_bound(need) + beside + (need if self.keep else 0)
        return self.job.scratch + beside


class ClusterSize(Size[S]):
    """The size of a build that can also be planned on a cluster.

    Attributes
    ----------
    has_cuts : bool
        Whether less memory may cut the same index into more pieces, which nodes build side by side.
    """

    has_cuts: ClassVar[bool] = False

    @abstractmethod
    def node_rates(self, place: Path) -> Any:
        """Time the tasks of a build here, and return their rates on a node of as many cores as the job has workers."""

    @abstractmethod
    def works(self, rates: Any) -> dict[str, Work]:
        """Return the work of each stage of `inputs` on such nodes."""
