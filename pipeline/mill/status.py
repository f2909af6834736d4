"""The state of a build in a small file in its work directory, written once a second for ``indexmill status``.

Durations come from a monotonic clock in the building process, so that a clock that is set does no harm; the file
holds no time of day.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from indexmill.formats.errors import IndexmillError
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Foreseeing, Progress
from indexmill.pipeline.mill.store import LOCK_NAME, StageStore

STATUS_NAME = "status.json"
#: Seconds between two writes.
_INTERVAL_S = 1.0


class StatusFile:
    """Passes progress on, and keeps the status file of a build while the block lasts.

    Parameters
    ----------
    progress : Progress
        Another listener, told everything as well.
    store : StageStore
    memory : PeakMemory
    memory_budget : int
        Bytes.
    clock : callable
        Seconds that only grow.

    Attributes
    ----------
    note : str or None
        Why the file is no longer written, if it is not: a status that cannot be written must not fail the build.
    """

    def __init__(
        self,
        progress: Progress,
        store: StageStore,
        memory: PeakMemory,
        memory_budget: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.note: str | None = None
        self._progress = progress
        self._store = store
        self._memory = memory
        self._budget = memory_budget
        self._clock = clock
        self._stages: list[dict[str, Any]] = []
        self._waiting: list[str] = ["ingest"]
        self._whole = False
        self._began = self._stage_began = clock()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="status", daemon=True)

    def __enter__(self) -> Self:
        self.write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._whole = kind is None
        self.write()

    def expect(self, stages: Sequence[str]) -> None:
        """Name the stages that are still to come, in order; see `Foreseeing.expect`."""
        with self._lock:
            started = {stage["name"] for stage in self._stages}
            self._waiting = [name for name in stages if name not in started]
        if isinstance(self._progress, Foreseeing):
            self._progress.expect(stages)

    def start(self, stage: str, total: int, unit: str) -> None:
        """Begin `stage`."""
        with self._lock:
            if stage in self._waiting:
                self._waiting.remove(stage)
            self._stage_began = self._clock()
            self._stages.append(
                {"name": stage, "state": "running", "done": 0, "total": total, "unit": unit, "seconds": 0.0}
            )
        self._progress.start(stage, total, unit)

    def advance(self, steps: int) -> None:
        """Count `steps` of the current stage as done."""
        with self._lock:
            self._stages[-1]["done"] += steps
        self._progress.advance(steps)

    def finish(self, note: str = "") -> None:
        """End the current stage."""
        with self._lock:
            stage = self._stages[-1]
            stage.update(state="done", done=stage["total"], seconds=self._clock() - self._stage_began)
        self._progress.finish(note)

    def write(self) -> None:
        """Write the file now."""
        with self._lock:
            stages = [dict(stage) for stage in self._stages]
            waiting = list(self._waiting)
            now = self._clock()
        for stage in stages:
            if stage["state"] == "running":
                stage["seconds"] = now - self._stage_began
            stage["seconds"] = round(stage["seconds"], 3)
        # what a build that ended well never began was not needed: a later stage was there from an earlier build
        rest = "reused" if self._whole else "waiting"
        facts = {
            "pid": os.getpid(),
            "seconds": round(now - self._began, 3),
            "stages": [*stages, *({"name": name, "state": rest} for name in waiting)],
            "memory_bytes": self._memory.bytes,
            "memory_budget_bytes": self._budget,
            "scratch_limit_bytes": self._store.scratch,
        }
        try:
            facts["scratch_bytes"] = self._store.known_bytes()
            write_json_atomic(self._store.root / STATUS_NAME, facts)
        except (OSError, IndexmillError) as error:
            self.note = f"no status: {error}"
            self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self.write()


def read_status(out: Path, work: Path, removed: bool = False) -> dict[str, Any]:
    """Return the state of the build of `out`, or of a run on it, in the work directory `work`.

    Parameters
    ----------
    removed : bool
        Whether such a run removes the directory at its end: one that is there is that of a run which was stopped.

    Returns
    -------
    dict
        ``state``: ``"running"``, ``"stopped"``, ``"published"`` or ``"none"``. Of a build that left a status file
        also what `StatusFile` wrote, with ``rate`` (steps a second) and ``eta_seconds`` of the running stage.
    """
    running = _is_locked(work / LOCK_NAME)
    published = (out / MANIFEST_NAME).is_file()
    try:
        facts: dict[str, Any] = json.loads((work / STATUS_NAME).read_text())
    except FileNotFoundError:
        facts = {}
    unfinished = removed and bool(facts)
    unfinished |= any(stage["state"] not in ("done", "reused") for stage in facts.get("stages", []))
    if running:
        state = "running"
    elif published and not unfinished:
        state = "published"
    elif facts:
        state = "stopped"
    else:
        state = "none"
    for stage in facts.get("stages", []):
        if stage["state"] == "running":
            stage["state"] = "running" if running else "stopped"
            rate = stage["done"] / stage["seconds"] if stage["seconds"] > 0 else 0.0
            stage["rate"] = rate
            stage["eta_seconds"] = (stage["total"] - stage["done"]) / rate if rate else None
    return {"out": str(out), "work": str(work), "state": state, **facts}


def _is_locked(path: Path) -> bool:
    """Tell whether a build holds the lock; a build that begins in the same instant finds it taken."""
    try:
        with open(path) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
