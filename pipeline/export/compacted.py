"""A compaction in a scratch directory, of an index with deletions that is to be exported.

Graphs, lists and tables name vectors by their positions, so a target that holds them cannot just leave vectors out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.index.together import read_together
from indexmill.pipeline.compact.run import run_compact
from indexmill.pipeline.generations.run import RunOptions, replaced_meanwhile
from indexmill.pipeline.generations.scratch import EXPORT_KIND, scratch_directory
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.mill.store import StageStore

#: Name of the stage, and of the step that its progress is shown as.
STEP = "compact"
_VERSION = 1


@contextmanager
def compacted(
    index: str | os.PathLike[str], out: Path, options: RunOptions, progress: Progress
) -> Iterator[tuple[Path, int]]:
    """Yield the directory of a compaction of `index`, which is deleted at the end, and how many vectors it left out.

    It is `index` itself, of which none are left out, if deletions were removed from it meanwhile.

    Of a run that fails or is killed, the finished stages of the compaction or the compacted index stay in the scratch
    directory, and the next run with the same output resumes with them.

    Parameters
    ----------
    out : path
        Of the export; its lock is held.
    options : RunOptions
        Memory, threads, and the directory for scratch files.

    Raises
    ------
    IndexmillError
        As `run_compact`.
    """
    path = Path(index)
    store = StageStore(scratch_directory(out, options.work, EXPORT_KIND))
    with store.until_done():
        yield read_together(path, lambda: _made(store, path, options, progress))


def _made(store: StageStore, index: Path, options: RunOptions, progress: Progress) -> tuple[Path, int]:
    """Return what `compacted` yields, made in `store` if a run before did not make it."""
    manifest = parse_manifest(index)
    if manifest.deleted is None:
        return index, 0
    stage = store.path(STEP, store.key(STEP, _VERSION, {"index": manifest.state}, []))
    store.drop_others({stage})
    made = stage / "index"
    if not store.is_done(stage):
        store.begin(stage, resume=True)
        into = replace(options, out=made, work=None, force=True)
        removed = run_compact(index, into, progress, certified=False).removed
        # The stage is named after the state that was read above.
        if (parse_manifest(made).parents, removed) != ((manifest.build_id,), manifest.n_deleted):
            raise replaced_meanwhile(str(index))
        store.finish(stage)
    return made, manifest.n_deleted


def drop_compacted(out: Path, work: str | os.PathLike[str] | None) -> None:
    """Remove what a killed export to `out` left, whose lock is held, where nothing resumes with it."""
    directory = scratch_directory(out, work, EXPORT_KIND)
    if directory.is_dir():
        shutil.rmtree(directory)
