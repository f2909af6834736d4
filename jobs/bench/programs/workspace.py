"""Places of the indexes of one set of vectors, indexmill's and DiskANN's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Half, Span
from indexmill.jobs.bench.common.dataset import Dataset


@dataclass(frozen=True)
class Workspace:
    """One set of vectors and a folder.

    Attributes
    ----------
    data : Dataset
    out : Path
        Holds environments, indexes and logs.
    results : Path
        The record that parts are added to.
    """

    data: Dataset
    out: Path
    results: Path = Path("none")

    def index(self, name: str) -> Path:
        """Directory of our index `name`: ``star``, ``identity``, ``star-64`` (64 entries) or ``float32``."""
        return self.out / f"indexmill-{name}"

    @property
    def diskann_index(self) -> Path:
        """Directory of DiskANN's index, prefix ``ann``."""
        return self.out / "diskann"

    @cached_property
    def halves(self) -> dict[str, tuple[int, int]]:
        """First query and the one after the last: of those that tune, and of those that are reported."""
        return self.data.both_halves()

    def span(self, queries: Half | Span) -> Span:
        """Return the span of a half, or the given one."""
        return self.halves[queries] if isinstance(queries, str) else queries

    def earlier(self, part: str) -> dict[str, Any] | None:
        """Return the figures of an earlier part; None if it has not run."""
        found: dict[str, Any] | None = record.load(self.results).get("parts", {}).get(part)
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


def workspace(run: Run) -> Workspace:
    """Return where a benchmark of sift1m alone works."""
    return Workspace(run.sets["sift1m"], run.out, run.results)
