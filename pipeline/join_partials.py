"""What a join keeps on the disk until it is finished: the k nearest of each query in each batch that was searched."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.scan import Nearest
from indexmill.formats.atomic import write_json_atomic
from indexmill.formats.errors import FormatError
from indexmill.formats.pagefile import PageFile, PageFileWriter
from indexmill.pipeline.failpoint import failpoint

KIND = "PART"
_JOB = "job.json"


class Partials:
    """Partial results of one join in a directory of their own, found again by a join of the same job.

    Parameters
    ----------
    folder : Path
        Made if it is missing, emptied if it belongs to another job.
    job : dict
        What decides the results, JSON.
    """

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        self.folder = folder
        self._job = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
        self.facts: dict[str, Any] = {}
        try:
            found = json.loads((folder / _JOB).read_text())
        except (FileNotFoundError, ValueError):
            found = {}
        if isinstance(found, dict) and found.get("job") == self._job and isinstance(found.get("facts"), dict):
            self.facts = found["facts"]
        else:
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
            self.remember({})

    def remember(self, facts: dict[str, Any]) -> None:
        """Keep what was learnt for a join that goes on."""
        self.facts = facts
        write_json_atomic(self.folder / _JOB, {"job": self._job, "facts": facts})

    def write(self, batch: int, found: Nearest) -> None:
        """Keep what was found in a batch; whole or not at all."""
        n_queries, k = found.ids.shape
        fields = {"batch": batch, "n_queries": n_queries, "k": k}
        with PageFileWriter(self._path(batch), KIND, fields) as file:
            with file.section("keys") as section:
                section.write(np.ascontiguousarray(found.keys, "<f8"))
            with file.section("ids") as section:
                section.write(np.ascontiguousarray(found.ids, "<u4"))
            failpoint("task-written")
        failpoint("task-done")

    def read(self, batch: int, n_queries: int, k: int) -> Nearest | None:
        """Return what was found in a batch; None where it is missing or damaged, so that it is searched again."""
        path = self._path(batch)
        try:
            with PageFile(path, KIND) as file:
                file.field("batch", batch, batch)
                keys = np.frombuffer(file.section("keys", 8 * n_queries * k), "<f8")
                ids: NDArray[np.uint32] = np.frombuffer(file.section("ids", 4 * n_queries * k), "<u4")
        except FileNotFoundError:
            return None
        except FormatError:
            path.unlink(missing_ok=True)
            return None
        return Nearest(keys.reshape(n_queries, k), ids.reshape(n_queries, k))

    def remove(self) -> None:
        """Delete everything: the join is finished."""
        shutil.rmtree(self.folder)

    def _path(self, batch: int) -> Path:
        return self.folder / f"{batch:06d}.part"
