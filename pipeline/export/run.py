"""One export: an index is opened and checked, written as another engine's files beside the output, and published.

Everything is relabelled to layout order on the way: slot s of the index is number s in the engine, and ``ids.parquet``
says what stands there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from indexmill.formats.errors import ConfigError
from indexmill.formats.exports.idmap import write_id_map
from indexmill.formats.exports.rows import ExportedIndex, Ids
from indexmill.formats.exports.target import Target
from indexmill.formats.exports.targets import TARGETS
from indexmill.formats.index.manifest import file_sha256
from indexmill.formats.index.names import EXPORT_NAME
from indexmill.formats.pagefile.atomic import fsync_dir
from indexmill.pipeline.export.compacted import STEP, compacted, drop_compacted
from indexmill.pipeline.export.opened import OpenedExport, open_exported
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.progress import Prefixed, Progress, Silent, stage_progress
from indexmill.pipeline.mill.publish import begin, check_output, give_up, output_lock, swap_in

#: Metadata in slot order needs lookups at random: an uncompressed copy, gone before the export is there.
_SCRATCH_NAME = ".metadata.arrow"
#: Version of export.json.
_VERSION = 1
#: Bytes beside the page cache that a compaction has by default.
DEFAULT_MEMORY = 1 << 30


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes
    ----------
    to : str
        Name of a target.
    out : path
        Directory to write.
    ids : {"user", "slot"}
        What the engine is to call the vectors, where it keeps names at all.
    force : bool
        Whether an export at `out` is replaced.
    memory, workers : int
        Bytes beside the page cache, and threads, of the compaction of an index with deletions.
    work : path, optional
        Directory for scratch files of the compaction; by default they lie beside `out`.
    """

    to: str
    out: str | os.PathLike[str]
    ids: Ids = "user"
    force: bool = False
    memory: int = DEFAULT_MEMORY
    workers: int = 2
    work: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.to not in TARGETS:
            raise ConfigError(f"to: expected one of {', '.join(TARGETS)}, got {self.to!r}")
        if self.ids not in get_args(Ids):
            raise ConfigError(f"ids: expected user or slot, got {self.ids!r}")
        _ = self.compaction  # which refuses limits that no run has

    @property
    def compaction(self) -> RunOptions:
        """Limits of a compaction."""
        return RunOptions(memory=self.memory, workers=self.workers, work=self.work)


def run_export(
    index: str | os.PathLike[str], options: ExportOptions, progress: Progress | None = None
) -> dict[str, Any]:
    """Write and publish an export of the index at `index`.

    Of an index with deletions, a target that writes no rows gets what `run_compact` would write, byte for byte.

    Memory: what Python with its libraries takes, the ids, and blocks of a few MiB; before, that of the compaction.

    Returns
    -------
    dict
        export.json (docs/guides/export.md), with ``out`` and with ``open``: code that opens it in the engine. Of an
        index with deletions also ``removed``: how many vectors are left out.

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change; nothing is left behind, except scratch files of a compaction, with which
        the next run resumes.
    """
    listener = progress or Silent()
    target, out = TARGETS[options.to], Path(os.path.abspath(options.out))
    place = Path(os.path.realpath(out))  # what `gc` locks, and names scratch files after
    with _locked(out, place), told_when_full(partial(_disk_full_message, out)):
        while True:  # again where vectors are deleted after it was seen that none has to be
            with open_exported(index, target, options.ids) as opened:
                check_output(out, options.force, EXPORT_NAME)
                target.check(opened.described())
                if not opened.needs_compaction:
                    drop_compacted(place, options.work)
                    return _exported(opened, opened.n_deleted, target, out, listener)
            del opened  # its ids: the compaction has the memory
            first = Prefixed(listener, STEP, ["ids", target.name])
            with (
                compacted(index, place, options.compaction, first) as (directory, n_removed),
                open_exported(directory, target, options.ids) as left,
            ):
                if not left.needs_compaction:
                    target.check(left.described())
                    return _exported(left, n_removed, target, out, listener)
            del left


@contextmanager
def _locked(out: Path, place: Path) -> Iterator[None]:
    """Keep other jobs away from `out` and, where it is a link, from its target: both have the same scratch files."""
    with output_lock(out):
        is_link = Path(os.path.realpath(out.parent)) / out.name != place
        with output_lock(place) if is_link else nullcontext():
            yield


def _disk_full_message(out: Path, path: str, reason: str) -> str:
    """Say that a disk is full, and what to do."""
    whole = "the export there is as it was" if out.exists() else "nothing was published"
    remedy = "free some space, or name another --out or --work, and run again"
    return f"{path or out}: {reason}; {whole}; {remedy}"


def _exported(
    opened: OpenedExport, n_removed: int, target: Target[Any], out: Path, listener: Progress
) -> dict[str, Any]:
    """Write and publish an opened index, of which `n_removed` vectors are left out; return what `run_export` does."""
    fresh = begin(out)
    try:
        with opened.view(fresh / _SCRATCH_NAME) as view:
            with stage_progress(listener, "ids", view.n, "vectors"):
                write_id_map(view, fresh, listener.advance)
            with stage_progress(listener, target.name, target.passes * view.n_rows, "vectors"):
                target.write(view, fresh, listener.advance)
            record = _seal(fresh, view, target)
        swap_in(fresh, out)
    except BaseException:
        give_up(out)
        raise
    removed = {"removed": n_removed} if n_removed else {}
    return {**record, "out": str(out), "open": target.snippet(view, out), **removed}


def _seal(folder: Path, view: ExportedIndex, target: Target[Any]) -> dict[str, Any]:
    """Make the files durable and write export.json, which names them; return it."""
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            fsync_dir(path)
            continue
        name = str(path.relative_to(folder))
        if name.startswith("."):
            continue  # the mark of an unfinished directory
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        files.append({"name": name, "bytes": path.stat().st_size, "sha256": file_sha256(path)})
    listed = target.to_dict()
    del listed["kinds"]
    record = {
        "version": _VERSION,
        **listed,
        "kind": view.KIND,
        "index_build_id": view.build_id,
        "index_generation": view.generation,
        "n_vectors": view.n,
        "dim": view.dim,
        "metric": view.metric,
        "ids": view.ids,
        "files": files,
    }
    with open(folder / EXPORT_NAME, "x") as sealed:
        json.dump(record, sealed, indent=2)
        sealed.write("\n")
        sealed.flush()
        os.fsync(sealed.fileno())
    return record
