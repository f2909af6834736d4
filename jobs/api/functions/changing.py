"""Changes of an index, each its next generation: `append`, `merge`, `delete`, `compact` and `lay_out`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import local_path
from indexmill.jobs.api.functions.searching import open
from indexmill.jobs.api.given import paths_of
from indexmill.jobs.api.keywords import ChangeKeywords, check_keywords
from indexmill.jobs.console.progress import shown_progress

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from indexmill.formats.sources.source import VectorSource
    from indexmill.jobs.api.given import ArrowStream, Paths
    from indexmill.reader.index import Index


def append(
    index: str | os.PathLike[str],
    vectors: NDArray[Any] | ArrowStream | Paths,
    *,
    ids: NDArray[Any] | Sequence[Any] | None = None,
    metadata: pa.Table | None = None,
    column: str | None = None,
    id_column: str | None = None,
    replace: bool = False,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **run: Unpack[ChangeKeywords],
) -> Any:
    """Add vectors to an index of any kind, and open the next generation.

    Parameters
    ----------
    index : path
        The index; readers that have it open keep the generation they opened.
    vectors, ids, metadata, column, id_column
        As in `build`; a file or table has the metadata columns that the index has. A frame is held in memory.
    replace : bool
        Whether vectors with the same user ids are deleted in the same generation; else such ids are refused.
    out : path, optional
        Another directory for the result.
    progress : bool
        Whether to show progress on stderr.
    **run
        ``memory``, the budget beside the page cache, in bytes or as text ("8GiB" by default). ``workers`` (2), threads,
        which do not change the bytes. ``force`` (False), whether an index at `out` is replaced. ``work``, a directory
        for scratch files; by default they lie beside the output. ``keep_generations``, how many stay of an index that
        is replaced, as `gc` counts them; by default the new one, the one before, and those that share its files.

    Returns
    -------
    Index, IvfIndex or LshIndex
        By the kind of the index.

    Raises
    ------
    IndexmillError
        A subclass that says what to change; the index is left as it was.
    """
    from indexmill.formats.sources.source import array_source, held
    from indexmill.jobs.api.append import open_files
    from indexmill.jobs.api.run_options import run_options
    from indexmill.pipeline.append.run import run_append

    check_keywords("append", run, ChangeKeywords)
    run.setdefault("memory", "8GiB")
    paths = paths_of(vectors)
    if paths is not None and (ids is not None or metadata is not None):
        raise ConfigError("ids, metadata: go with an array; for files pass id_column")

    rows = None if paths is not None else held(vectors)

    def open_more(names: Sequence[str]) -> VectorSource:
        if paths is not None:
            return open_files(paths, column, id_column, names)
        columns = {"column": column, "id_column": id_column}
        kept = names if hasattr(rows, "column_names") else ()  # an array has no columns
        return array_source(rows, ids=ids, metadata=metadata, metadata_columns=kept, **columns)

    index, options = local_path(index, "index"), run_options(out, **run)
    with shown_progress(progress) as bars:
        run_append(index, open_more, options, bars, replace)
    return open(options.out or index)


def merge(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **run: Unpack[ChangeKeywords],
) -> Any:
    """Join indexes of one kind without their deleted vectors; open the result, by default in the place of the first.

    A merge of inverted lists or of hash tables that was killed resumes when it is run again.

    Parameters
    ----------
    first, second, *more : path
        The result has the parameters of the largest. Vectors of inverted lists with other centroids and of hash tables
        with other functions are assigned or hashed anew; lists of codes without exact vectors are refused then. Pq
        codes are written by a new codebook where that of the largest errs too much: those of lists if the indexes hold
        their vectors and more than a quarter are of others, those of graphs that are laid out anew. Vector ids of
        `first` stay, those of `second` and the others follow in this order.
    out, progress, **run
        As in `append`.

    Returns
    -------
    Index, IvfIndex or LshIndex
        By the kind of the indexes.

    Raises
    ------
    IndexmillError
        A subclass that says what to change; all indexes are left as they were.
    """
    from indexmill.jobs.api.run_options import run_options
    from indexmill.pipeline.merge.run import run_merge

    check_keywords("merge", run, ChangeKeywords)
    run.setdefault("memory", "8GiB")
    first, second = local_path(first, "first"), local_path(second, "second")
    others = [local_path(path, "more") for path in more]
    options = run_options(out, **run)
    with shown_progress(progress) as bars:
        run_merge([first, second, *others], options, bars)
    return open(options.out or first)


def delete(
    index: str | os.PathLike[str],
    ids: NDArray[Any] | pa.Array | Sequence[Any] | str | os.PathLike[str],
    *,
    id_column: str | None = None,
    by: Literal["user", "vector"] = "user",
    missing: Literal["error", "ignore"] = "error",
) -> dict[str, Any]:
    """Delete vectors of an index of any kind; the result is its next generation, which `open` opens.

    Parameters
    ----------
    index : path
        Readers that have it open keep the generation they opened.
    ids : sequence of int, str or bytes, or path
        As in `import_index`; also the lines of a .txt file. All vectors with one of them are deleted.
    id_column : str, optional
        Column of a Parquet or Arrow file; by default the only one.
    by : {"user", "vector"}
        Whether they are user ids (if the index has some), or vector ids: positions in the input.
    missing : {"error", "ignore"}
        Whether ids that are not there are an error, and nothing is deleted, or counted.

    Returns
    -------
    dict
        ``generation``; ``deleted`` now, ``deleted_before`` and ``vectors`` left; different ``ids`` given, and of them
        ``missing``, ``gone`` (deleted before) and ``shared`` (by several vectors).

    Raises
    ------
    InputError
        If ids are of another type than the index's, or missing.
    IndexmillError
        A subclass that says what to change; the index is left as it was.
    """
    from indexmill.jobs.api.deleting import ids_to_delete
    from indexmill.pipeline.generations.delete import DeleteOptions, run_delete

    given = ids_to_delete(ids, id_column)
    return run_delete(local_path(index, "index"), given, DeleteOptions(by, missing))


def compact(
    index: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **run: Unpack[ChangeKeywords],
) -> Any:
    """Remove the deleted vectors of an index for good and open its next generation.

    Lists and hash tables lose the entries of deleted vectors, and added tables become part of the tables. In graphs
    neighbour lists that name deleted vectors are repaired, and nodes laid out again by the order of the index. The
    certificate is measured, except that of codes without exact vectors. Vector ids close up: they are positions in an
    input without the deleted vectors. Of a graph without deletions this is `lay_out` by the order of the index. The
    generation before stays on the disk for `rollback`, until `gc` or a later change removes it; ``keep_generations``
    says how many stay.

    Parameters
    ----------
    out, progress
        As in `append`.
    **run
        ``memory`` ("1GiB" by default), ``workers``, ``force`` and ``keep_generations`` as in `append`; ``work``, a
        directory for scratch files of about four times the index, beside the output by default. A call that was killed
        resumes there.

    Returns
    -------
    Index, IvfIndex or LshIndex
        By the kind of the index; the unchanged one if there was nothing to do.

    Raises
    ------
    InputError
        If every vector was deleted.
    IndexmillError
        A subclass that says what to change; the index is left as it was.
    """
    from indexmill.jobs.api.run_options import run_options
    from indexmill.pipeline.compact.run import run_compact

    check_keywords("compact", run, ChangeKeywords)
    run.setdefault("memory", "1GiB")
    index, options = local_path(index, "index"), run_options(out, **run)
    with shown_progress(progress) as bars:
        result = run_compact(index, options, bars)
    return open(index if options.out is None or result.manifest is None else options.out)


def lay_out(
    index: str | os.PathLike[str],
    order: str = "auto",
    *,
    order_file: str | os.PathLike[str] | None = None,
    effort: str | None = None,
    queries: NDArray[Any] | None = None,
    truth: NDArray[Any] | None = None,
    query_log: NDArray[Any] | None = None,
    prune_edges: bool = False,
    out: str | os.PathLike[str] | None = None,
    certify: bool = False,
    progress: bool = False,
    **run: Unpack[ChangeKeywords],
) -> Index:
    """Lay an index out again for fewer page reads and open its next generation.

    Parameters
    ----------
    order : str
        An order by name, such as ``"star"`` (``indexmill build --help`` lists them); ``"auto"``: the one with the
        fewest page reads at equal recall.
    order_file : path, optional
        In place of `order`: a .npy file with the vector id in each slot.
    effort : {"low", "normal", "high"}, optional
        Limit of what is tried, in units of work; the default of ``"auto"`` is "normal", an order by name has none.
    queries : array, shape (n_queries, dim), optional
        Queries that ``"auto"`` tunes with and that judge pruned edges; default: vectors of the index.
    truth : integer array, shape (n_queries, at least 10), optional
        Vector ids of their true neighbours, nearest first; default: computed.
    query_log : array, shape (n_queries, dim), optional
        At least 50 queries in the order in which they were asked. Vertices that repeated queries read together get
        pages of their own if that saves the last fifth of the log page reads; ``"auto"`` tunes with the others. Queries
        that look as if they were meant for another index are used with a warning.
    prune_edges : bool
        Experimental: choose neighbour lists anew for the pages of the order, and keep them if that saves page reads.
    certify : bool
        Measure recall and page reads again, as a build does; that holds the codes in memory.
    out, progress
        As in `append`.
    **run
        ``memory`` ("1GiB" by default), ``workers``, ``force`` and ``keep_generations`` as in `append`; ``work``, a
        directory for scratch files of three to four times the index, beside the output by default.

    Returns
    -------
    Index
        The unchanged one if it was laid out so already.

    Raises
    ------
    NothingToGain
        If no order can help (the message says what can), or if pruned edges save nothing.
    IndexmillError
        A subclass that says what to change; the index is left as it was.
    """
    from indexmill.jobs.api.layout import as_log, layout_request
    from indexmill.jobs.api.run_options import run_options
    from indexmill.jobs.kinds.opening import open_index
    from indexmill.pipeline.relayout.run import run_layout
    from indexmill.pipeline.relayout.tuning import as_given

    check_keywords("lay_out", run, ChangeKeywords)
    run.setdefault("memory", "1GiB")
    index, options = local_path(index, "index"), run_options(out, **run)
    chosen = None if order_file is not None and order == "auto" else order
    given = as_given(queries, truth)
    log = as_log(query_log)
    request = layout_request(chosen, order_file, effort, given, log, prune_edges, certify)
    with shown_progress(progress) as bars:
        result = run_layout(index, request, options, bars)
    if log is not None and result.query_log is not None and "warning" in result.query_log:
        warnings.warn(f"query_log: {result.query_log['warning']}", stacklevel=2)
    return open_index(Path(index if options.out is None or result.manifest is None else options.out))
