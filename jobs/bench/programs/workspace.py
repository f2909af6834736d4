"""Where a benchmark keeps its indexes, and the build parameters that both sides share."""

from __future__ import annotations

import json
import sysconfig
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.dataset import Dataset

#: Build parameters of both sides: DiskANN's published setting for SIFT-like data.
MAX_DEGREE = 32
BUILD_LIST_SIZE = 75
ALPHA = 1.2
PQ_BYTES = 32
SEED = 1
#: Threads of builds and searches on both sides; diskannpy's batches deadlock with one.
THREADS = 2
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
        """Directory of our index `name`: ``star``, ``identity``, ``star-64`` (64 entries) or ``float32``."""
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

    @property
    def results(self) -> Path:
        """The record that parts are added to."""
        return self.out / "results.json"

    @cached_property
    def halves(self) -> dict[str, tuple[int, int]]:
        """First query and the one after the last: of those that tune, and of those that are reported."""
        half, n_queries = self.data.halves()
        return {"tune": (0, half), "report": (half, n_queries)}

    def earlier(self, part: str) -> dict[str, Any] | None:
        """What an earlier part measured; None if it has not run."""
        if not self.results.exists():
            return None
        found: dict[str, Any] | None = json.loads(self.results.read_text())["parts"].get(part)
        return found

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
