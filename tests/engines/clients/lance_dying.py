"""Deaths: of a worker, once, after it wrote a segment of which nobody was told; of a command that deletes segments."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

from indexmill.pipeline.export.lance import tasks

#: Names the file that says that a worker died.
VARIABLE = "LANCE_DYING"
_remove = shutil.rmtree


def segment_task(*arguments: Any) -> None:
    """Write a segment; the first time that this is called, die after it."""
    tasks.segment_task(*arguments)
    marker = Path(os.environ[VARIABLE])
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def rmtree(folder: Path, *arguments: Any, **keywords: Any) -> None:
    """Remove a folder; die after the first one of a segment."""
    _remove(folder, *arguments, **keywords)
    if Path(folder).parent.name == "_indices":
        os.kill(os.getpid(), signal.SIGKILL)
