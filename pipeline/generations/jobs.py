"""Scratch directories with which a next run resumes: each notes the index that its run would replace, for `gc`."""

from __future__ import annotations

import json
from pathlib import Path

from indexmill.formats.pagefile.atomic import write_json_atomic

#: What scratch directories of update jobs are called.
JOB_KIND = "job"
#: File in a scratch directory.
_BASE = "base.json"


def note_base(scratch: Path, state: str) -> None:
    """Note that a run began while its output was the index of this state (`Manifest.state`)."""
    write_json_atomic(scratch / _BASE, {"state": state})


def can_resume(scratch: Path, state: str) -> bool:
    """Tell whether the run that left a scratch directory began while its output was the index of this state."""
    try:
        noted = json.loads((scratch / _BASE).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(noted, dict) and noted.get("state") == state
