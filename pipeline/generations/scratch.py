"""Scratch directories of runs: their names, and notes of the index that a run would replace, for `gc`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indexmill.formats.pagefile.atomic import write_json_atomic

#: Kinds of runs, which name their scratch directories. This one is of runs that begin anew after they were killed.
SCRATCH_KIND = "scratch"
#: Scratch of update jobs.
JOB_KIND = "job"
#: Scratch of compactions, and of merges of lists and of tables, which compact several indexes. A run drops what is left
#: of another one.
COMPACT_KIND = "compact"
#: Scratch of exports, which compact an index first.
EXPORT_KIND = "export"
#: Scratch of exports to data sets of Lance.
LANCE_KIND = "lance"
#: Scratch of joins.
JOIN_KIND = "join"
#: Scratch of trials for `explain`.
EXPLAIN_KIND = "explain"
#: File in a scratch directory.
_REPLACED = "replaced.json"


def scratch_directory(
    out: Path, work: str | os.PathLike[str] | None = None, kind: str = SCRATCH_KIND
) -> Path:
    """Return where a run on `out` keeps its scratch files: always the same, so that the next run of a kind finds them.

    In `work`, where other outputs of that name may have theirs, the name holds a hash of the whole path.
    """
    if work is None:
        return out.with_name(f".{out.name}.indexmill-{kind}")
    path_hash = hashlib.sha256(os.fsencode(out)).hexdigest()[:8]
    return Path(os.path.abspath(work)) / f"{out.name}-{path_hash}.indexmill-{kind}"


def shown_directories(out: Path, work: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return where runs on `out` keep their status files, those of runs that have others within first."""
    return [scratch_directory(out, work, kind) for kind in (JOB_KIND, COMPACT_KIND, SCRATCH_KIND)]


@contextmanager
def emptied(scratch: Path) -> Iterator[None]:
    """Make a directory for the length of a block; what a killed run left there goes first."""
    if scratch.exists():
        shutil.rmtree(scratch)
    scratch.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(scratch)


def note_replaced(scratch: Path, state: str) -> None:
    """Note that the stages in a scratch directory are of a run which would replace the index of this state.

    The state is that of the output (`Manifest.state`), from which the run need not read.
    """
    write_json_atomic(scratch / _REPLACED, {"state": state})


def can_resume(scratch: Path, state: str) -> bool:
    """Tell whether the stages in a scratch directory are of a run which would replace the index of this state."""
    try:
        noted = json.loads((scratch / _REPLACED).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(noted, dict) and noted.get("state") == state
