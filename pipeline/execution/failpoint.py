"""Named places where a build can be made to fail, so that recovery is tested as users will meet it.

``INDEXMILL_FAILPOINT=NAME`` kills the process with SIGKILL when it passes the place called NAME,
``NAME:3`` when it passes there for the third time; ``NAME=ENOSPC`` (any name of `errno`) raises that
`OSError` instead, and ``NAME=SIGINT`` sends the process that signal. Unset, a failpoint is one comparison.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal

#: Every failpoint, in the order a build meets them. ``stage-*`` are passed by each stage, under its own name too
#: (``emit-written``), ``task-*`` by each task that writes a file of its own; ``generation-linked`` for each folder of
#: earlier generations; ``gc-removing`` is passed by `gc` alone, ``put-written`` where a file goes to storage that shows
#: it while it is written.
FAILPOINTS = (
    "stage-begun",
    "task-written",
    "task-done",
    "stage-written",
    "stage-done",
    "stage-dropping",
    "generation-linked",
    "publish-copied",
    "publish-sealed",
    "publish-aside",
    "publish-done",
    "store-removing",
    "gc-removing",
    "put-written",
)

_armed = os.environ.get("INDEXMILL_FAILPOINT", "")
_passes = itertools.count(1)


def arm(place: str) -> None:
    """Fail at `place`, written as in the environment, from now on; nowhere if it is empty."""
    global _armed, _passes
    _armed, _passes = place, itertools.count(1)


def failpoint(name: str, stage: str | None = None) -> None:
    """Fail here if the environment says so; `stage` gives ``stage-*`` failpoints a second name."""
    if not _armed:
        return
    place, _, error = _armed.partition("=")
    wanted, _, turn = place.partition(":")
    if wanted not in (name, name.replace("stage", stage, 1) if stage else name):
        return
    if next(_passes) != int(turn or 1):
        return
    if number := getattr(errno, error, None):
        raise OSError(number, os.strerror(number), f"failpoint {place}")
    os.kill(os.getpid(), signal.Signals[error or "SIGKILL"])
