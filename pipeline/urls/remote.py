"""The stage store in a work folder at a URL that all nodes see, of which each node keeps a mirror."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from indexmill.formats.errors import StorageError
from indexmill.formats.location import is_mirrored
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.execution.local import Task
from indexmill.pipeline.mill.store import LOCK_NAME, MARKER, StageStore, stage_of
from indexmill.pipeline.urls.lease import FOLDER, Lease
from indexmill.pipeline.urls.localised import run_localised, run_localised_directory
from indexmill.pipeline.urls.storage import Storage, open_storage


def store_at(work: str | Path) -> StageStore:
    """Return the store of stages in a work folder: a directory, or a URL that all nodes of a cluster see."""
    if is_mirrored(str(work)):
        return RemoteStore(open_storage(str(work)))
    return StageStore(Path(work))


class RemoteStore(StageStore):
    """Stage outputs on storage; paths are those of this node's mirror.

    A stage is finished when its marker is on storage, which comes last. A lock keeps other builds of this machine out,
    a lease those of others (`indexmill.pipeline.urls.lease`).

    Parameters
    ----------
    storage : Storage

    Raises
    ------
    ConfigError
        If another build is using the work folder, or the mirror cannot be written. While another one has taken the
        folder over, from `begin`, `finish` and `drop`, too.
    StorageError
        From every method.
    """

    def __init__(self, storage: Storage) -> None:
        storage.mirror.mkdir(parents=True, exist_ok=True)
        # Files that tasks of other builds left there are no foreign ones.
        (storage.mirror / LOCK_NAME).touch()
        super().__init__(storage.mirror)
        self.storage = storage
        self._known_bytes = 0
        try:
            self._lease = Lease(storage)
            self._lease.take()
        except BaseException:
            super().close()
            raise

    def is_done(self, path: Path) -> bool:
        """See `StageStore.is_done`: what counts is on storage."""
        there = self.storage.list(path.name)
        if f"{path.name}/{MARKER}" not in there:
            return False
        sizes = json.loads(self.storage.fetch(f"{path.name}/{MARKER}").read_text())["files"]
        return all(there.get(f"{path.name}/{name}") == size for name, size in sizes.items())

    def begin(self, path: Path, resume: bool) -> None:
        """See `StageStore.begin`."""
        self._lease.check()
        self.storage.delete(f"{path.name}/{MARKER}" if resume else path.name)
        super().begin(path, resume)

    def files(self, path: Path) -> set[str]:
        """See `StageStore.files`; a file that was not pushed to its end is none."""
        whole = self.storage.confirmed(path.name).items()
        return {name.rpartition("/")[2] for name, is_there in whole if is_there}

    def fetch(self, path: Path) -> Path:
        """See `StageStore.fetch`."""
        return self.storage.fetch(path.name)

    def drop_copies(self, path: Path) -> None:
        """See `StageStore.drop_copies`; `fetch` tells a copy of a replaced file by its size alone."""
        shutil.rmtree(path, ignore_errors=True)

    def file_task(self, task: Task, arguments: tuple[Any, ...], target: Path) -> tuple[Any, ...]:
        """See `StageStore.file_task`."""
        name = f"{target.parent.name}/{target.name}"
        return run_localised, self.storage.url, task, self.storage.pack(arguments), name

    def directory_task(self, task: Task, arguments: tuple[Any, ...], target: Path) -> tuple[Any, ...]:
        """See `StageStore.directory_task`."""
        return run_localised_directory, self.storage.url, task, self.storage.pack(arguments), target.name

    def finish(self, path: Path) -> None:
        """See `StageStore.finish`: what this machine wrote itself is pushed, the marker last.

        Raises
        ------
        StorageError
            If a file that a task has pushed is gone.
        """
        there = self.storage.list(path.name)
        for file in (p for p in path.rglob("*") if p.is_file() and p.name != MARKER):
            name = file.relative_to(self.root).as_posix()
            if there.get(name) != file.stat().st_size:
                self.storage.push(name)
        failpoint("stage-written", stage_of(path))
        self._lease.check()
        for name, is_there in self.storage.confirmed(path.name).items():
            if not is_there:
                raise StorageError(
                    f"{self.storage.place}/{name}: gone or cut since a task wrote it; expected that nothing else "
                    "writes or deletes there; run again: finished work is kept"
                )
        prefix = len(path.name) + 1
        sizes = {name[prefix:]: size for name, size in self.storage.list(path.name).items()}
        path.mkdir(exist_ok=True)
        (path / MARKER).write_text(json.dumps({"files": sizes}))
        self.storage.push(f"{path.name}/{MARKER}")

    def forget(self, file: Path) -> None:
        """See `StageStore.forget`."""
        self.storage.delete(f"{file.parent.name}/{file.name}")

    def drop(self, path: Path) -> None:
        """See `StageStore.drop`."""
        self._lease.check()
        self.storage.delete(f"{path.name}/{MARKER}")
        failpoint("stage-dropping", stage_of(path))
        self.storage.delete(path.name)

    def note(self, name: str) -> Any:
        """See `StageStore.note`."""
        found = self.storage.read(name)
        return None if found is None else json.loads(found)

    def write_note(self, name: str, value: Any) -> None:
        """See `StageStore.write_note`."""
        super().write_note(name, value)
        self.storage.push(name)

    def used_bytes(self) -> int:
        """Return the bytes of all files on storage."""
        self._known_bytes = sum(self.storage.list().values())
        return self._known_bytes

    def known_bytes(self) -> int:
        """See `StageStore.known_bytes`: as of the last listing."""
        return self._known_bytes

    def close(self) -> None:
        """See `StageStore.close`."""
        self._lease.release()
        super().close()

    def remove(self) -> None:
        """Delete the work folder and this node's mirror of it."""
        for name in {name.partition("/")[0] for name in self.storage.list()} - {FOLDER}:
            self.storage.delete(name)
        super().remove()
