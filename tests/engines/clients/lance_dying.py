"""A task whose worker dies once: the segment lies in the dataset, and nobody was told."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from indexmill.pipeline.export.lance import tasks

#: Names the file that says that a worker died.
VARIABLE = "LANCE_DYING"


def segment_task(*arguments: Any) -> None:
    """Write a segment; the first time that this is called, die after it."""
    tasks.segment_task(*arguments)
    marker = Path(os.environ[VARIABLE])
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
