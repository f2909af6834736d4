"""Where a benchmark keeps its indexes, and the build parameters that both sides share."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path

from dataset import Dataset

#: Build parameters of both sides: DiskANN's published setting for SIFT-like data.
MAX_DEGREE = 32
BUILD_LIST_SIZE = 75
ALPHA = 1.2
PQ_BYTES = 32
SEED = 1
#: Threads of builds and searches on both sides; diskannpy deadlocks with one.
THREADS = 2
BEAM_WIDTH = 4
#: Queries that a thread of indexmill interleaves, its default; a thread of DiskANN has one.
IN_FLIGHT = 8
BUILD_MEMORY = "8GiB"


@dataclass(frozen=True)
class Workspace:
    """One benchmark's data and scratch folder.

    Attributes
    ----------
    data : Dataset
    out : Path
        Holds everything the benchmark writes: environments, indexes, logs and ``results.json``.
    """

    data: Dataset
    out: Path

    def index(self, name: str) -> Path:
        """Directory of our index `name`: ``star``, ``identity`` or ``float32``."""
        return self.out / f"indexmill-{name}"

    @property
    def diskann_index(self) -> Path:
        """Directory of DiskANN's index, prefix ``ann``."""
        return self.out / "diskann"

    @property
    def diskann_env(self) -> Path:
        """Virtual environment of diskannpy, which needs an older numpy."""
        return self.out / "diskann-env"

    @property
    def diskann_python(self) -> Path:
        """Interpreter of `diskann_env`."""
        return self.diskann_env / "bin" / "python"

    def require(self, path: Path) -> Path:
        """Return `path` if it is there.

        Raises
        ------
        FileNotFoundError
            If the part that makes it has not run.
        """
        if not path.exists():
            raise FileNotFoundError(f"{path}: missing; run the part 'build' first (--parts build)")
        return path


def indexmill_command() -> Path:
    """Path of the ``indexmill`` script of the running environment."""
    return Path(sysconfig.get_path("scripts")) / "indexmill"
