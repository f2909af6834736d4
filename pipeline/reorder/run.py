"""`layout` of another engine's file: the same graph, or lists, and vectors in a new file, in another order."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError, OutputExistsError
from indexmill.formats.pagefile.atomic import atomic_write, remove_unfinished
from indexmill.formats.reordered.engine_file import EngineFile
from indexmill.formats.reordered.faiss_ivf import FaissIvf
from indexmill.formats.reordered.opening import open_engine_file
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.generations.scratch import emptied, scratch_directory
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.disk_space import check_free, check_room
from indexmill.pipeline.mill.progress import Progress, Silent, stage_progress
from indexmill.pipeline.mill.publish import output_lock
from indexmill.pipeline.relayout.fitting import FROM_FILE, read_order
from indexmill.pipeline.reorder.graphs import GraphArrangement
from indexmill.pipeline.reorder.lists import ListArrangement
from indexmill.pipeline.reorder.outcome import Reordered


def run_reorder(
    path: str | os.PathLike[str],
    order: str | None,
    order_file: str | os.PathLike[str] | None,
    options: RunOptions,
    progress: Progress | None = None,
) -> Reordered:
    """Write an HNSW file of faiss or hnswlib, or inverted lists of faiss, in another order to `options.out`.

    A search of the new file computes the same distances and finds the same ids; ties of equal distances may be broken
    in another way, and of inverted lists the last bits of distances may differ (see `FaissIvf`). The original is only
    read, and the new file appears when it is complete. What a killed run left beside `options.out` is removed first.

    Parameters
    ----------
    order : str, optional
        A key of `layout.portfolio.ORDERS`, of those that suit the file; by default kmeans-pages, or star for a graph
        whose file does not tell what its vectors mean.
    order_file : path, optional
        In place of `order`: a .npy file with the row, or list, of the original in each place.

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change, a `BudgetError` if a disk is full; nothing is left behind.
    OSError
        If the new file cannot be written for another reason; nothing is left behind.
    """
    hold_little()
    progress = progress or Silent()
    file = open_engine_file(Path(path))
    order_file = None if order_file is None else Path(order_file)
    out = _checked_output(file, order_file, options)
    name = FROM_FILE if order_file is not None else order
    how = ListArrangement(file, name) if isinstance(file, FaissIvf) else GraphArrangement(file, name)
    threads = how.threads_within(options.workers, options.memory)
    scratch = scratch_directory(out, options.work)
    with threadpool_limits(1), output_lock(out), told_when_full(partial(_disk_full_message, out)):
        remove_unfinished(out)
        check_free(scratch, how.scratch_bytes, "layout")
        check_room(out, file.size)
        with emptied(scratch):
            lists = how.lists(scratch, progress)
            if order_file is not None:
                chosen = read_order(order_file, file.n).order
            else:
                chosen = how.fit(lists, scratch, threads, progress)
            del lists
        with stage_progress(progress, "write", file.passes * file.n, file.unit), atomic_write(out) as new:
            file.write(chosen, new, progress.advance)
    return how.outcome(chosen)


def _disk_full_message(out: Path, path: str, reason: str) -> str:
    """Say that a disk is full, and what to do."""
    return (
        f"{path or out}: {reason}; no file was written; free some space, or name another --work or --out, and run "
        "again"
    )


def _checked_output(file: EngineFile, order_file: Path | None, options: RunOptions) -> Path:
    """Return the new file, which must be none of those that are read.

    Raises
    ------
    ConfigError
        If there is none, or it is a file that is read, even with `--force`.
    OutputExistsError
        If it is a directory, or exists and may not be replaced.
    """
    if options.out is None:
        raise ConfigError(
            f"out: a file is not replaced; name the new one with --out, and {file.path} stays as it is"
        )
    out = Path(os.path.realpath(options.out))
    if out in [Path(os.path.realpath(path)) for path in file.files]:
        raise ConfigError(f"out: {out} is the file to read; name another one")
    if order_file is not None and out == Path(os.path.realpath(order_file)):
        raise ConfigError(f"out: {out} is the order file; name another one")
    if out.is_dir():
        raise OutputExistsError(f"out: {out} is a directory; name a file")
    if out.exists() and not options.force:
        raise OutputExistsError(f"out: {out} exists; add --force to replace it, or name another file")
    return out
