"""Publishing: a finished index or export appears at its destination all at once, or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError, ForeignFile, FormatError, OtherKind, OutputExistsError
from indexmill.formats.index.manifest import Manifest, parse_manifest, write_manifest
from indexmill.formats.index.names import EXPORT_NAME, MANIFEST_NAME, RUN_NAME
from indexmill.formats.pagefile.atomic import copy_file, exchange, fsync_dir, link_or_copy, write_json_atomic
from indexmill.pipeline.execution.failpoint import failpoint

#: File in a directory while it is filled.
_MARK = ".indexmill-unfinished"
#: The file that is written last, and what a directory that has it is.
_SEALS = {MANIFEST_NAME: "an index", EXPORT_NAME: "an export"}


@contextmanager
def output_lock(out: Path) -> Iterator[None]:
    """Keep other jobs away from `out` for the length of a block.

    Raises
    ------
    ConfigError
        If another job is at work on `out`, it lies inside an index, or nothing can be written beside it.
    """
    check_place(out)
    with _locked(out, "out: ", "name another directory with --out", "wait for it or name another --out"):
        yield


@contextmanager
def index_lock(index: Path) -> Iterator[None]:
    """Keep other jobs away from an index that is changed where it is, for the length of a block.

    Raises
    ------
    ConfigError
        If another job is at work on it, or nothing can be written beside it.
    """
    with _locked(index, "", "make it writable: the lock of the index is there", "wait for it and run again"):
        yield


@contextmanager
def _locked(path: Path, option: str, if_unwritable: str, if_busy: str) -> Iterator[None]:
    """Hold the lock beside `path`; messages begin with `option` and end with what to do."""
    name = _beside(path, "lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name.touch()
    except OSError as error:
        raise ConfigError(
            f"{option}{path.parent} cannot be written ({error.strerror}); {if_unwritable}"
        ) from error
    with open(name, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not name.exists() or os.stat(name).st_ino != os.fstat(lock.fileno()).st_ino:
                raise BlockingIOError  # its last holder took the file away between our two calls
        except BlockingIOError:
            raise ConfigError(f"{option}another job is writing {path}; {if_busy}") from None
        try:
            yield
        finally:
            name.unlink(missing_ok=True)


def check_place(out: Path) -> None:
    """Refuse an output inside an index, with which it would go when that is replaced.

    Raises
    ------
    ConfigError
        Naming the index.
    """
    folder = Path(os.path.realpath(out.parent))
    for above in (folder, *folder.parents):
        if _is_ours(above):
            raise ConfigError(
                f"out: {out} lies inside the index {above} and would be deleted when that is replaced; name a "
                "directory outside it"
            )


def _is_ours(directory: Path) -> bool:
    """Tell whether a directory is an index, even a damaged one or one of another version."""
    try:
        parse_manifest(directory)
    except (ForeignFile, PermissionError):
        return False
    except (FormatError, OtherKind):
        return True
    return True


def check_output(out: Path, force: bool, seal: str = MANIFEST_NAME) -> None:
    """Refuse to overwrite: without `force` a directory that is complete with file `seal`, anything else always.

    An index that was moved aside for a new one, which never came, is brought back.

    Raises
    ------
    ConfigError
        If `out` lies inside an index.
    OutputExistsError
    """
    check_place(out)
    if _is_aside(out, seal):
        _beside(out, "old").rename(out)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / seal).is_file():
        raise OutputExistsError(f"out: {out} exists and is not {_SEALS[seal]}; name another directory")
    if not force:
        raise OutputExistsError(f"out: {out} exists; add --force to replace it, or name another directory")


def bring_back(index: Path, seal: str = MANIFEST_NAME) -> None:
    """Give an index its name back that a publish took away, which was killed between its two renames.

    With another `seal`, such as that of an export, something else that was published so.

    Raises
    ------
    ConfigError
        If another job has the index, which may be such a publish at work, or its name cannot be written.
    """
    for path in dict.fromkeys((Path(os.path.abspath(index)), Path(os.path.realpath(index)))):
        if _is_aside(path, seal):
            with index_lock(path):
                if _is_aside(path, seal):  # still
                    _beside(path, "old").rename(path)


def _is_aside(out: Path, seal: str = MANIFEST_NAME) -> bool:
    """Tell whether a publish was killed between its two renames: nothing is lost."""
    return not os.path.lexists(out) and (_beside(out, "old") / seal).is_file()


def publish(
    emitted: Path,
    manifest: Manifest,
    run: dict[str, Any],
    out: Path,
    force: bool,
    keep: bool = True,
    fill: Callable[[Path], None] | None = None,
) -> None:
    """Lay the files of `emitted` beside `out`, write the manifest last, and rename the whole into place.

    `out` is the old index or the new one at every moment, and readers that have it open keep the files they opened.
    Only where names cannot be exchanged (`formats.pagefile.atomic.exchange`) the old index steps aside first, so that
    for a moment there is nothing. Unless `keep`, files are given a second name instead of a copy where that is
    possible, for `emitted` will be deleted. `fill` may give the new directory folders before it is published.
    """
    check_output(out, force)
    fresh = begin(out)
    try:
        for entry in manifest.files:
            target = fresh / entry.name
            if keep:
                copy_file(emitted / entry.name, target)
            else:
                link_or_copy(emitted / entry.name, target)
            with open(target, "rb") as file:
                os.fsync(file.fileno())
        if fill is not None:
            fill(fresh)
        failpoint("publish-copied")
        write_json_atomic(fresh / RUN_NAME, run)
        write_manifest(fresh, manifest)
        parse_manifest(fresh)  # what readers would refuse takes no place
    except BaseException:
        give_up(out)
        raise
    swap_in(fresh, out)


def begin(out: Path) -> Path:
    """Make and return an empty directory beside `out`, for `swap_in`; what a killed run left there goes first."""
    for part in ("new", "old"):
        remove_leftover(_beside(out, part))
    fresh = _beside(out, "new")
    fresh.mkdir(parents=True)
    (fresh / _MARK).touch()
    return fresh


def give_up(out: Path) -> None:
    """Remove the directory that `begin` made."""
    remove_leftover(_beside(out, "new"))


def swap_in(fresh: Path, out: Path) -> None:
    """Let a directory of `begin` take the name `out`; its files are durable, the last one written is its seal."""
    old = _beside(out, "old")
    fsync_dir(fresh)
    (fresh / _MARK).unlink()
    failpoint("publish-sealed")
    if out.exists() and exchange(fresh, out):
        failpoint("publish-aside")  # the old index has the new one's former name
    else:
        if out.exists():
            out.rename(old)
        failpoint("publish-aside")
        fresh.rename(out)
    fsync_dir(out.parent)
    failpoint("publish-done")
    for leftover in (fresh, old):
        remove_leftover(leftover)


def _beside(out: Path, part: str) -> Path:
    return out.with_name(f".{out.name}.indexmill-{part}")


def remove_leftover(leftover: Path) -> None:
    """Remove what a killed run left: a directory with our mark or a seal, or an empty one; never another."""
    if leftover.is_symlink():  # `out` was a link: its target is not ours to delete
        leftover.unlink()
    if not leftover.exists():
        return
    if not _is_leftover(leftover):
        raise OutputExistsError(f"out: {leftover} is in the way and holds other things; move it elsewhere")
    mark = leftover / _MARK
    mark.touch()
    for path in leftover.iterdir():  # the mark goes last: killed between, the rest is still known as ours
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != mark:
            path.unlink()
    mark.unlink()
    leftover.rmdir()


def leftovers(out: Path) -> list[Path]:
    """Return the directories beside `out` that a killed run left; the next one would remove them, too."""
    return [path for part in ("new", "old") if _is_leftover(path := _beside(out, part))]


def _is_leftover(path: Path) -> bool:
    """Tell whether a directory is empty or has our mark or a seal."""
    if path.is_symlink() or not path.is_dir():
        return False
    return any((path / name).is_file() for name in (_MARK, *_SEALS)) or not any(path.iterdir())
