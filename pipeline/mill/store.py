"""The content-addressed stage store: a finished stage is found again by what went into it.

The outputs of a stage live in ``<root>/<stage>-<key>``, where the key is the SHA-256 of (stage, its code
version, its parameters, the keys of its inputs). The last thing written there is ``stage.json``, the list of the
stage's files with their sizes: a directory without it, or with a file of another size, is unfinished. A build
that was killed resumes where it stopped, and two orders of one graph share every stage before the order.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.pagefile.atomic import UNFINISHED_FILES, fsync_dir, write_json_atomic
from indexmill.formats.pagefile.mapped import SCRATCH_FILES
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.execution.local import Task, write_file
from indexmill.pipeline.mill.disk_space import used_bytes

#: Packages whose code decides bytes.
_SOFTWARE = ("indexmill", "numpy", "numba", "pyarrow")
LOCK_NAME = "lock"
#: File in every finished stage.
MARKER = "stage.json"
#: The copy of an input that can be read once. No stage made it, so it does not count as one's files.
COPY_NAME = "stream.parquet"


@cache
def software_versions() -> dict[str, str]:
    """Return the versions that stand in every key and in the manifest."""
    return {name: version(name) for name in _SOFTWARE}


class StageStore:
    """Stage outputs under one directory, locked against a second build.

    Parameters
    ----------
    root : Path
        Made if it is missing.
    scratch : int, optional
        Bytes its files may take; see `check_space`.

    Raises
    ------
    ConfigError
        If another build is using `root`, it holds other things, or it cannot be written.
    """

    def __init__(self, root: Path, scratch: int | None = None) -> None:
        self.root = root
        self.scratch = scratch
        #: Most bytes that `check_space` saw.
        self.peak_bytes = 0
        try:
            root.mkdir(parents=True, exist_ok=True)
            if any(root.iterdir()) and not (root / LOCK_NAME).is_file():
                raise ConfigError(
                    f"work: {root} holds other things; name an empty or new directory with --work"
                )
            self._lock = open(root / LOCK_NAME, "w")  # noqa: SIM115 - held until close
        except OSError as error:
            raise ConfigError(
                f"work: {root} cannot be written ({error.strerror}); name another directory with --work"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ConfigError(
                f"work: {root} is in use by another build; wait for it or name another --work"
            ) from None

    def key(self, stage: str, code_version: int, parameters: Mapping[str, Any], inputs: Sequence[str]) -> str:
        """Return the hex key of a stage; `parameters` must be JSON."""
        text = json.dumps(
            [stage, code_version, dict(parameters), list(inputs), software_versions()], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def path(self, stage: str, key: str) -> Path:
        """Return the directory of a stage, which need not exist yet."""
        return self.root / f"{stage}-{key[:16]}"

    @property
    def copy_of_stream(self) -> Path:
        """The file for a copy of an input that can be read once, which only the build that holds the store writes."""
        return self.root / COPY_NAME

    def drop_copy(self) -> None:
        """Delete the copy of an input, and what is left of one that was not finished."""
        for path in [self.copy_of_stream, *self.root.glob(f".{COPY_NAME}.*")]:
            path.unlink(missing_ok=True)

    def is_done(self, path: Path) -> bool:
        """Tell whether a stage is finished and its files have the sizes they had then."""
        try:
            sizes = json.loads((path / MARKER).read_text())["files"]
            return all((path / name).stat().st_size == size for name, size in sizes.items())
        except (FileNotFoundError, ValueError):
            return False

    def begin(self, path: Path, resume: bool) -> None:
        """Make a stage's directory; with `resume`, keep whole files that a killed run left there."""
        (path / MARKER).unlink(missing_ok=True)
        if not resume and path.exists():
            shutil.rmtree(path)
        path.mkdir(exist_ok=True)
        for stale in [*path.glob("*.partial"), *path.glob(UNFINISHED_FILES), *path.glob(SCRATCH_FILES)]:
            stale.unlink()

    def files(self, path: Path) -> set[str]:
        """Return the names of the whole files in a stage's directory."""
        return {file.name for file in path.iterdir()}

    def fetch(self, path: Path) -> Path:
        """Return `path`, with a stage's files on this machine."""
        return path

    def drop_copies(self, path: Path) -> None:
        """Delete this machine's copies of a stage's files, in case another machine replaced a file; here are none."""

    def file_task(self, task: Task, arguments: tuple[Any, ...], target: Path) -> tuple[Any, ...]:
        """Return what an executor runs so that `task` writes file `target`, whole or not at all."""
        return write_file, task, arguments, str(target)

    def directory_task(self, task: Task, arguments: tuple[Any, ...], target: Path) -> tuple[Any, ...]:
        """Return what an executor runs so that `task` writes into directory `target`."""
        return task, *arguments, str(target)

    def finish(self, path: Path) -> None:
        """Make a stage's files durable and mark it finished."""
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != MARKER)
        for file in files:
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        failpoint("stage-written", stage_of(path))
        sizes = {str(file.relative_to(path)): file.stat().st_size for file in files}
        write_json_atomic(path / MARKER, {"files": sizes})
        fsync_dir(self.root)

    def forget(self, file: Path) -> None:
        """Delete a damaged file, which makes its stage unfinished."""
        file.unlink(missing_ok=True)

    def drop_others(self, kept: Collection[Path]) -> None:
        """Delete all stages except `kept`: other inputs or parameters left the others in this build's directory."""
        for path in [path for path in self.root.iterdir() if path.is_dir() and path not in kept]:
            self.drop(path)

    def drop(self, path: Path) -> None:
        """Delete a stage that no other will read; if killed halfway, the stage is merely unfinished."""
        (path / MARKER).unlink(missing_ok=True)
        failpoint("stage-dropping", stage_of(path))
        shutil.rmtree(path, ignore_errors=True)

    def note(self, name: str) -> Any:
        """Return what a run noted under the name of a file, as JSON has it; None if none has."""
        path = self.root / name
        return json.loads(path.read_text()) if path.exists() else None

    def write_note(self, name: str, value: Any) -> None:
        """Note `value`, as JSON has it, for runs that resume."""
        write_json_atomic(self.root / name, value)

    def used_bytes(self) -> int:
        """Return the bytes of all files of stages, each counted once however many names it has."""
        return used_bytes(self.root, skip=COPY_NAME)

    def known_bytes(self) -> int:
        """Return `used_bytes`, or its last value where measuring is slow."""
        return self.used_bytes()

    def check_space(self) -> None:
        """Measure the store against its budget.

        Raises
        ------
        BudgetError
            If its files take more than `scratch` bytes.
        """
        used = self.used_bytes()
        self.peak_bytes = max(self.peak_bytes, used)
        if self.scratch is not None and used > self.scratch:
            raise BudgetError(
                f"scratch: {self.root} holds {used:,} bytes, more than the {self.scratch:,} allowed; raise --scratch "
                "and run again, finished stages are kept"
            )

    @contextmanager
    def until_done(self) -> Iterator[None]:
        """Remove this store at the end; after a failure close it, so that the next run resumes with what is there."""
        try:
            yield
        except BaseException:
            if any(self.root.glob("*/*")):
                self.close()
            else:
                self.remove()
            raise
        self.remove()

    def close(self) -> None:
        """Release the lock; the outputs stay."""
        self._lock.close()

    def remove(self) -> None:
        """Delete the store, which no other build can take meanwhile; a build after a kill resumes there."""
        for path in sorted(self.root.iterdir()):
            if path.name != LOCK_NAME:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                failpoint("store-removing")
        (self.root / LOCK_NAME).unlink()
        self.root.rmdir()
        self.close()


@contextmanager
def held(store: StageStore, keep: bool) -> Iterator[StageStore]:
    """Hold a store for the length of a block; delete it at the end unless `keep`, or the block fails."""
    try:
        yield store
    except BaseException:
        store.close()
        raise
    if keep:
        store.close()
    else:
        store.remove()


def stage_of(path: Path) -> str:
    """Return the name of the stage that lives at `path`."""
    return path.name.rpartition("-")[0]
