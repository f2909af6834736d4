"""Scratch directories with which a next run resumes: each notes the index that its run would replace, for `gc`."""

from __future__ import annotations

import json
from pathlib import Path

from indexmill.formats.pagefile.atomic import write_json_atomic

#: What scratch directories of update jobs are called.
JOB_KIND = "job"
#: What scratch directories of compactions are called, and of merges of lists and of tables: compactions of several
#: indexes. A run of either drops what is left of another one.
COMPACT_KIND = "compact"
#: File in a scratch directory.
_REPLACED = "replaced.json"


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
