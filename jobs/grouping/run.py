"""One measured run of `indexmill bench assign`: assign and merge by one policy, and leave nothing behind."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.builders.leaders.base import LeaderIndex
from indexmill.formats.chunks.tally import create, forget, sync
from indexmill.formats.sources.source import VectorSource
from indexmill.jobs.console.progress import Bar, Lines
from indexmill.jobs.console.tables import human_bytes
from indexmill.pipeline.grouping.assignment import Policy, assign, in_buffer_rows
from indexmill.pipeline.grouping.policies import ChunkFiles, TempFiles, naming

_PREFIX = "indexmill-assign-"


@dataclass(frozen=True)
class Run:
    """One policy, one in-buffer, one scratch path; merged files go to `home`."""

    policy: str
    in_buffer: int
    scratch: Path
    home: Path
    workers: int

    def measure(self, source: VectorSource, index: LeaderIndex, progress: Bar | Lines) -> dict[str, Any]:
        """Assign and merge; returns seconds, calls and bytes, and leaves no file."""
        forget_input(source)
        name = f"{self.policy} {human_bytes(self.in_buffer)}"
        progress.start(name, source.n_vectors, "vectors")
        with scratch_folder(self.home) as home:
            with scratch_folder(self.scratch) as folder:
                policy = self._policy(folder, source, len(index.leaders))
                times = assign(source, index, policy, self.in_buffer, self.workers, progress.advance)
                policy.forget()
                began = time.perf_counter()
                clusters = home / "clusters"
                with naming(clusters), create(clusters, policy.merging) as out:
                    sizes = policy.merge(out)
                sync(clusters, policy.merging)
                merge_s = time.perf_counter() - began
                began = time.perf_counter()
            remove_s = time.perf_counter() - began
            digest = _sha256(clusters)
        progress.finish(f"assign {times.assign_s:.1f} s, merge {merge_s:.1f} s")
        return {
            "policy": self.policy,
            "in_buffer_bytes": self.in_buffer,
            "in_buffers": times.in_buffers,
            "total_s": round(times.assign_s + merge_s, 3),
            "distance_s": round(times.distance_s, 3),
            "assign_s": round(times.assign_s - times.distance_s, 3),
            "merge_s": round(merge_s, 3),
            "read_s": round(times.read_s, 3),
            "add_s": round(times.add_s, 3),
            "remove_s": round(remove_s, 3),
            "assigning": policy.assigning.as_dict(),
            "merging": policy.merging.as_dict(),
            "empty_leaders": int(np.count_nonzero(sizes == 0)),
            "largest_cluster": int(sizes.max()),
            "sha256": digest,
        }

    def _policy(self, folder: Path, source: VectorSource, n_leaders: int) -> Policy:
        if self.policy == "temp":
            return TempFiles(folder, n_leaders)
        rows = in_buffer_rows(source, self.in_buffer)
        most = -(-source.n_vectors // rows) + len(source.paths)  # the last of each file may be short
        return ChunkFiles(folder, n_leaders, source.dim * source.dtype.itemsize, self.in_buffer, most)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in `parent`, and remove it with all that is in it.

    Raises
    ------
    OSError
        Of the block or of the folder itself, with a name that outlives the folder, or naming what was left.
    """
    folder: str | None = None
    try:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        yield Path(folder)
    except OSError as error:
        where = str(error.filename or "")
        if folder is None or where.startswith(folder):
            what = f"{error.strerror}; nothing was left there; name another --scratch"
            raise type(error)(error.errno, what, str(parent)) from error
        raise
    finally:
        if folder is not None:
            shutil.rmtree(folder)


def forget_input(source: VectorSource) -> None:
    """Drop local files from the page cache."""
    for path in source.paths:
        if os.path.isfile(path):
            forget(path)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
