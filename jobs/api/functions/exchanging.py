"""Indexes of other programs, read and written: `import_index` and `export`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import local_path
from indexmill.jobs.api.functions.searching import open
from indexmill.jobs.api.keywords import ExportKeywords, RunKeywords, check_keywords
from indexmill.jobs.console.progress import shown_progress

if TYPE_CHECKING:
    from numpy.typing import NDArray


def import_index(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    program: Literal["diskann", "faiss", "svs", "jvector"] = "diskann",
    metric: Literal["l2", "ip", "cosine"] | None = None,
    dtype: Literal["float32", "uint8", "int8"] | None = None,
    ids: NDArray[Any] | Sequence[Any] | str | os.PathLike[str] | None = None,
    id_column: str | None = None,
    pq_bytes: int | None = None,
    order: str = "identity",
    repair: bool = True,
    progress: bool = False,
    **run: Unpack[RunKeywords],
) -> Any:
    """Turn an index of another program into an index of indexmill and open it.

    Parameters
    ----------
    path : path
        Of DiskANN the prefix of its files; of faiss and JVector the file; of SVS the directory.
    out : path
        The index directory to write; `force` replaces an index there.
    program : {"diskann", "faiss", "svs", "jvector"}
    metric : {"l2", "ip", "cosine"}, optional
        By default what the files say, l2 where they do not.
    dtype : {"float32", "uint8", "int8"}, optional
        Of DiskANN's vectors, where there is no ``PREFIX_metadata.bin``.
    ids : sequence of int, str or bytes, or path, optional
        User ids; of a .parquet file those in `id_column`.
    pq_bytes : int, optional
        Train codes of this size; by default codes of the other index are kept.
    order : str
        Page order, as in `build`; by default that of the other index.
    repair : bool
        Whether vertices that cannot be reached are linked.
    progress : bool
        Whether to show progress on stderr.
    **run
        ``memory``, the budget beside the page cache, by default the least that works; ``workers`` (2), threads, which
        do not change the bytes; ``force`` (False).

    Returns
    -------
    Index or IvfIndex
        IvfIndex for inverted lists of faiss, which become an index of kind ivf.

    Raises
    ------
    IndexmillError
        A subclass that says what to change; nothing is left behind.
    """
    from indexmill.jobs.api.importing import import_options, open_imported, run_imported

    check_keywords("import_index", run, RunKeywords)
    options = import_options(
        out, ids, id_column, metric=metric, pq_bytes=pq_bytes, order=order, repair=repair, **run
    )
    imported = open_imported(program, path, dtype, pq_bytes)
    with shown_progress(progress) as bars:
        run_imported(imported, options, bars)
    return open(options.out)


def export(
    index: str | os.PathLike[str],
    to: str,
    out: str | os.PathLike[str] | None = None,
    *,
    ids: Literal["user", "slot"] = "user",
    dataset: str | os.PathLike[str] | None = None,
    column: str | None = None,
    force: bool = False,
    progress: bool = False,
    **run: Unpack[ExportKeywords],
) -> dict[str, Any]:
    """Write an index in the files of another engine, or index a Lance dataset with its centroids and codebook.

    Deleted vectors are left out. Targets that hold a whole graph, all lists or all tables get what `compact` would
    write: the index is compacted in a scratch directory first, and stays as it is.

    Parameters
    ----------
    to : str
        A target: `indexmill export --list` shows them.
    out : path
        Directory to write; `force` replaces an export there.
    ids : {"user", "slot"}
        How the engine names the vectors, where it keeps names: user ids, or slots, which ``ids.parquet``
        translates.
    dataset : path, optional
        In place of `out`, with `to` "lance": an existing dataset, or its URL. It gets an index with the centroids
        and the codebook of `index`, in one transaction; `force` replaces an index called ``COLUMN_idx``.
        A killed call resumes with the remaining fragments when it runs again.
    column : str, optional
        Vectors of the dataset; by default the only column that fits.
    progress : bool
        Whether to show progress on stderr.
    **run
        Of a compaction: ``memory``, its budget beside the page cache ("1GiB" by default); ``workers`` (2), threads,
        which do not change the bytes; ``work``, a directory for scratch files, beside `out` by default. A call that
        was killed resumes there.
        With `dataset`: ``workers`` (2), fragments that are indexed at a time. ``executor`` ("local") and
        ``ray_address``, where they are indexed; "ray": on the nodes of a cluster. ``work``, a directory or URL for
        notes on finished fragments, which all nodes must see; beside the dataset by default.

    Returns
    -------
    dict
        What is in export.json, with ``out``, and of an index with deletions ``removed``, the number of vectors that are
        left out; of a dataset, what was made. ``open`` is code that opens the result in that engine.

    Raises
    ------
    IndexmillError
        A subclass that says what to change; nothing is left behind, except finished stages of a compaction and
        finished fragments of a dataset.
    """
    from indexmill.jobs.api.export import dataset_options, export_options

    check_keywords("export", run, ExportKeywords)
    if dataset is not None:
        from indexmill.pipeline.export.lance.run import run_dataset_index

        request = dataset_options(to, out, ids, dataset, column=column, force=force, **run)
        with shown_progress(progress) as bars:
            return run_dataset_index(local_path(index, "index"), request, bars)
    names = ", ".join([*["column"] * (column is not None), *sorted(run.keys() & {"executor", "ray_address"})])
    if names:
        raise ConfigError(f"dataset: missing; {names}: go with a dataset only; name it, or leave them out")
    if out is None:
        raise ConfigError("out: missing; name the directory to write")
    from indexmill.pipeline.export.run import run_export

    options = export_options(to, out, ids, force, run.get("memory"), run.get("workers", 2), run.get("work"))
    with shown_progress(progress) as bars:
        return run_export(local_path(index, "index"), options, bars)
