"""Work folders of update jobs: each step notes the index that its job began with, for `gc`."""

from __future__ import annotations

import json
from pathlib import Path

from indexmill.formats.pagefile.atomic import write_json_atomic

#: What scratch directories of update jobs are called.
JOB_KIND = "job"
#: File in the folder of a step.
_BASE = "base.json"


def note_base(step: Path, state: str) -> None:
    """Note in the folder of a step that its job began with the index of this state (`Manifest.state`)."""
    write_json_atomic(step / _BASE, {"state": state})


def can_resume(work: Path, state: str) -> bool:
    """Tell whether a work folder has a step of a job that began with the index of this state."""
    return any(_noted(path) == state for path in work.glob(f"*/{_BASE}"))


def _noted(path: Path) -> str | None:
    """Return the state in a file of `note_base`, None if it is damaged."""
    try:
        state = json.loads(path.read_text()).get("state")
    except (OSError, ValueError, AttributeError):
        return None
    return state if isinstance(state, str) else None
