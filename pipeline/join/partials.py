"""Files of an unfinished join: the lists to probe, and the results of every batch, or of its pieces."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.builders.lists.scan import Nearest
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.formats.pagefile.writer import PageFileWriter
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.join.rows import CHOSEN_KIND, FOUND, PART_KIND, RowFile, as_rows, is_whole
from indexmill.pipeline.join.spans import Span, uncovered

_JOB = "job.json"


class Partials:
    """The folder of one join, found again by a join of the same job.

    Parameters
    ----------
    folder : Path
    n_queries, k : int
    """

    def __init__(self, folder: Path, n_queries: int, k: int) -> None:
        self.folder, self.n_queries, self.k = folder, n_queries, k
        self.facts: dict[str, Any] = {}
        self._job = ""

    def begin(self, job: dict[str, Any]) -> None:
        """Make the folder, and empty it if it belongs to another job.

        Parameters
        ----------
        job : dict
            What decides the results, JSON.
        """
        self._job = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
        try:
            stored = json.loads((self.folder / _JOB).read_text())
        except (FileNotFoundError, ValueError):
            stored = {}
        if (
            isinstance(stored, dict)
            and stored.get("job") == self._job
            and isinstance(stored.get("facts"), dict)
        ):
            self.facts = stored["facts"]
            return
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        self.remember({})

    def remember(self, facts: dict[str, Any]) -> None:
        """Keep what was learnt, for a join that resumes."""
        self.facts = facts
        write_json_atomic(self.folder / _JOB, {"job": self._job, "facts": facts})

    def part(self, batch: int) -> Path:
        """Return the file of the neighbours found in a batch."""
        return self.folder / f"{batch:06d}.part"

    def piece(self, span: Span) -> Path:
        """Return the file of the neighbours found in a part of a batch."""
        return self.folder / f"{span.batch:06d}-{span.first}-{span.last}.piece"

    def pieces(self) -> dict[int, list[Span]]:
        """Return the parts of batches whose results are whole, by batch."""
        found: dict[int, list[Span]] = {}
        for path in sorted(self.folder.glob("*.piece")):
            span = Span(*map(int, path.stem.split("-")))
            if self.has(path):
                found.setdefault(span.batch, []).append(span)
        return found

    def left(self, batches: int, lists: int) -> list[Span]:
        """Return the lists that are not searched yet, of so many batches with so many lists each."""
        pieces, found = self.pieces(), []
        for number in range(batches):
            if not self.has(self.part(number)):
                found += uncovered(Span(number, 0, lists), pieces.get(number, []))
        return found

    def merged(self, level: int, number: int) -> Path:
        """Return the file of the gathered neighbours of several batches."""
        return self.folder / f"merged-{level}-{number:06d}.part"

    def write(self, path: Path, blocks: Iterable[Nearest]) -> None:
        """Write what was found, block after block of queries; whole or not at all."""
        with PageFileWriter(path, PART_KIND, {"n_queries": self.n_queries, "k": self.k}) as file:
            with file.section("rows") as section:
                for found in blocks:
                    section.write(as_rows(found))
            failpoint("task-written")
        failpoint("task-done")

    def has(self, path: Path) -> bool:
        """Tell whether the results in a file are whole; a damaged file is deleted, so that it is made again."""
        return is_whole(path, PART_KIND, self.n_queries, FOUND, self.k)

    def open(self, path: Path) -> RowFile:
        """Open a file of what was found."""
        return RowFile(path, PART_KIND, self.n_queries, FOUND, self.k)

    @property
    def _chosen(self) -> Path:
        return self.folder / "chosen.cells"

    def keep_chosen(self, nprobe: int, choose: Callable[[], Iterator[Any]]) -> None:
        """Keep the lists that each query probes, uint32 (n, nprobe) blocks, unless they are there."""
        if is_whole(self._chosen, CHOSEN_KIND, self.n_queries, "<u4", nprobe):
            return
        fields = {"n_queries": self.n_queries}
        with PageFileWriter(self._chosen, CHOSEN_KIND, fields) as file, file.section("rows") as section:
            for rows in choose():
                section.write(np.ascontiguousarray(rows, "<u4"))

    def open_chosen(self, nprobe: int) -> RowFile:
        """Open the file of the lists that each query probes."""
        return RowFile(self._chosen, CHOSEN_KIND, self.n_queries, "<u4", nprobe)

    def remove(self) -> None:
        """Delete everything: the join is finished."""
        shutil.rmtree(self.folder)
