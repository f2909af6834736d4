"""The Python interface, which `indexmill` exports: `build`, `append`, `merge`, `delete`, and so on to `open`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import local_path
from indexmill.jobs.api.given import job_of, paths_of, stream_job_of
from indexmill.jobs.api.keywords import (
    DatasetKeywords,
    JoinKeywords,
    RunKeywords,
    ScratchKeywords,
    check_keywords,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from indexmill.formats.sources.source import VectorSource
    from indexmill.formats.sources.truth import Truth
    from indexmill.jobs.api.given import ArrowStream, Paths
    from indexmill.pipeline.join.options import JoinReport
    from indexmill.pipeline.mill.progress import Progress
    from indexmill.pipeline.tune.report import TuneReport
    from indexmill.reader.choices import Place
    from indexmill.reader.index import Index
    from indexmill.reader.ivf import IvfIndex
    from indexmill.reader.lsh import LshIndex
    from indexmill.reader.set import IndexSet


def build(
    vectors: NDArray[Any] | ArrowStream | Paths,
    out: str | os.PathLike[str],
    *,
    ids: NDArray[Any] | Sequence[Any] | None = None,
    metadata: pa.Table | None = None,
    progress: bool = False,
    **parameters: Any,
) -> Any:
    """Build an index and open it.

    Parameters
    ----------
    vectors : array of shape (n_vectors, dim), table, or path(s)
        float32, float16, uint8 or int8; float64 is narrowed to float32, bfloat16 read as float16. Paths may be globs
        and URLs. A table is one of pyarrow, any object with the Arrow C stream (frames of Polars and pandas, relations
        of DuckDB, ``pyarrow.RecordBatchReader``), or a data set of ``ray.data`` or Hugging Face: all except the first
        are read once, a batch at a time, into a copy in the work directory.
    out : path
        The index directory to write, or its URL, such as ``s3://bucket/index``.
    ids : sequence of n_vectors int, str or bytes, optional
        User ids of an array; default: positions.
    metadata : pyarrow.Table, optional
        n_vectors rows kept beside an array.
    progress : bool
        Whether to show progress on stderr.
    **parameters
        Keys of a job file: ``metric``, ``R``, ``L``, ``alpha``, ``pq_bytes``, ``order``, ``node_dtype``,
        ``seed`` and the others of `indexmill.pipeline.spec.Parameters`; with ``kind="lsh"`` those of
        `LshParameters`, ``c``, ``w``, ``success``, ``probes`` among them; with ``kind="ivf"`` those of
        `IvfParameters`, and ``centroids``; of a graph also ``query_sample`` and ``query_column``;
        ``parts`` for a set of indexes;
        ``memory``, ``scratch``, ``workers``, ``executor``, ``ray_address``,
        ``work``, ``force``; for files and tables ``column``, ``id_column``, ``metadata_columns``.

    Returns
    -------
    Index, LshIndex, IvfIndex or IndexSet
        By ``kind``; IndexSet with ``parts``.

    Raises
    ------
    IndexmillError
        A subclass that says what to change.

    Examples
    --------
    >>> index = indexmill.build(vectors, "words.index", ids=words, metric="cosine")
    >>> index.search(vectors[:3], k=5).ids
    """
    from indexmill.pipeline.sets.build import run_build_or_set

    spec, source = stream_job_of(vectors, out, parameters, ids, metadata)
    with _listener(progress) as bars:
        run_build_or_set(spec, source, bars)
    return open(spec.out)


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
    **run: Unpack[ScratchKeywords],
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
        for scratch files; by default they lie beside the output.

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

    check_keywords("append", run, ScratchKeywords)
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
    with _listener(progress) as bars:
        run_append(index, open_more, options, bars, replace)
    return open(options.out or index)


def merge(
    first: str | os.PathLike[str],
    second: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **run: Unpack[ScratchKeywords],
) -> Any:
    """Join indexes of one kind without their deleted vectors; open the result, by default in the place of the first.

    Parameters
    ----------
    first, second, *more : path
        Of graphs, the result has the parameters and the codebook of the largest. Inverted lists must have equal
        centroids, hash tables equal functions. Vector ids of `first` stay, those of `second` and the others follow in
        this order.
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

    check_keywords("merge", run, ScratchKeywords)
    run.setdefault("memory", "8GiB")
    first, second = local_path(first, "first"), local_path(second, "second")
    others = [local_path(path, "more") for path in more]
    options = run_options(out, **run)
    with _listener(progress) as bars:
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
        What to do about ids that are not there.

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
    **run: Unpack[ScratchKeywords],
) -> Any:
    """Remove the deleted vectors of an index for good and open its next generation.

    Lists and hash tables lose the entries of deleted vectors, and added tables become part of the tables. In graphs
    neighbour lists that name deleted vectors are repaired, nodes laid out again by the order of the index, and the
    certificate measured. Vector ids close up: they are positions in an input without the deleted vectors. Of a graph
    without deletions this is `lay_out` by the order of the index. The generation before stays on the disk for
    `rollback`, until `gc` removes it.

    Parameters
    ----------
    out, progress
        As in `append`.
    **run
        ``memory`` ("1GiB" by default), ``workers`` and ``force`` as in `append`; ``work``, a directory for scratch
        files of about four times the index, beside the output by default. A call that was killed resumes there.

    Returns
    -------
    Index, IvfIndex or LshIndex
        By the kind of the index. If there was nothing to do, as it is.

    Raises
    ------
    InputError
        If every vector was deleted.
    IndexmillError
        A subclass that says what to change; the index is left as it was.
    """
    from indexmill.jobs.api.run_options import run_options
    from indexmill.pipeline.compact.run import run_compact

    check_keywords("compact", run, ScratchKeywords)
    run.setdefault("memory", "1GiB")
    index, options = local_path(index, "index"), run_options(out, **run)
    with _listener(progress) as bars:
        result = run_compact(index, options, bars)
    return open(index if options.out is None or result.manifest is None else options.out)


def rollback(index: str | os.PathLike[str], to: int | None = None) -> dict[str, Any]:
    """Undo a change: make an earlier generation of an index the present one again, as a new generation.

    Parameters
    ----------
    to : int, optional
        The generation; by default the one that the present one was made from.

    Returns
    -------
    dict
        ``generation``, the new one; ``restored``, the one it is like; ``vectors`` and ``deleted``; ``damaged``,
        what was wrong with the manifest that it replaces, or None.

    Raises
    ------
    ConfigError
        If there is no such generation, or `gc` removed it.
    """
    from indexmill.pipeline.generations.rollback import run_rollback

    return run_rollback(local_path(index, "index"), to)


def gc(
    index: str | os.PathLike[str], keep_generations: int = 1, *, work: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Remove all but the newest generations of an index, and what killed runs left in its directory and beside it.

    Parameters
    ----------
    keep_generations : int
        How many stay, the present one among them.
    work : path, optional
        The `work` of runs that were killed, to be cleaned, too. Where a run was killed before it published an index,
        `index` is the ``out`` that it had.

    Returns
    -------
    dict
        Names of the files and directories ``removed``, the ``bytes`` that this frees, and the ``generations`` that are
        left.
    """
    from indexmill.pipeline.generations.gc import run_gc

    scratch = None if work is None else local_path(work, "work")
    return run_gc(local_path(index, "index"), keep_generations, scratch)


def upgrade(index: str | os.PathLike[str]) -> dict[str, Any]:
    """Rewrite an index of an older format in the present one, as its next generation; nothing is computed anew.

    Returns
    -------
    dict
        ``from`` and ``to``, the formats of its files before and now (equal if there was nothing to do), and the present
        ``generation``.
    """
    from indexmill.pipeline.generations.upgrade import run_upgrade

    return run_upgrade(local_path(index, "index"))


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
    **run: Unpack[ScratchKeywords],
) -> Index:
    """Lay an index out again for fewer page reads and open its next generation.

    Parameters
    ----------
    order : str
        An order of the portfolio (``indexmill layout --help`` lists them); ``"auto"``: the one with the fewest page
        reads at equal recall.
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
        pages of their own if that saves the last fifth of the log page reads; ``"auto"`` tunes with the others.
    prune_edges : bool
        Experimental: choose neighbour lists anew for the pages of the order, and keep them if that saves page reads.
    certify : bool
        Measure recall and page reads again, as a build does; that holds the codes in memory.
    out, progress
        As in `append`.
    **run
        ``memory`` ("1GiB" by default), ``workers`` and ``force`` as in `append`; ``work``, a directory for scratch
        files of three to four times the index, beside the output by default.

    Returns
    -------
    Index
        If the index was laid out so already, as it is.

    Raises
    ------
    NothingToGain
        If no order can help, naming what can; if pruned edges save nothing.
    IndexmillError
        A subclass that says what to change; the index is left as it was.
    """
    from indexmill.jobs.api.layout import as_log, layout_request
    from indexmill.jobs.api.run_options import run_options
    from indexmill.pipeline.relayout.run import run_layout
    from indexmill.pipeline.relayout.tuning import as_given

    check_keywords("lay_out", run, ScratchKeywords)
    run.setdefault("memory", "1GiB")
    index, options = local_path(index, "index"), run_options(out, **run)
    chosen = None if order_file is not None and order == "auto" else order
    given = as_given(queries, truth)
    log = as_log(query_log)
    request = layout_request(chosen, order_file, effort, given, log, prune_edges, certify)
    with _listener(progress) as bars:
        result = run_layout(index, request, options, bars)
    return _open_graph(index if options.out is None or result.manifest is None else options.out)


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
    """Turn an index of another program into one of ours and open it.

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
    with _listener(progress) as bars:
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
    **run: Unpack[DatasetKeywords],
) -> dict[str, Any]:
    """Write an index in the files of another engine, or index a Lance dataset by it.

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
        In place of `out`, with `to` "lance": a dataset that exists, or its URL. It gets an index with the centroids
        and the codebook of `index`, in one transaction; `force` replaces an index called ``COLUMN_idx``.
        Run again, a call that was killed resumes with the fragments that are left.
    column : str, optional
        Vectors of the dataset; by default the only column that fits.
    progress : bool
        Whether to show progress on stderr.
    **run
        With `dataset`: ``workers`` (2), fragments that are indexed at a time. ``executor`` ("local") and
        ``ray_address``, where they are indexed; "ray": on the nodes of a cluster. ``work``, a directory or URL for
        notes on finished fragments, which all nodes must see; beside the dataset by default.

    Returns
    -------
    dict
        What is in export.json, with ``out``; of a dataset, what was made. ``open`` is code that opens the result in
        that engine.

    Raises
    ------
    IndexmillError
        A subclass that says what to change; nothing is left behind, except finished fragments of a dataset.
    """
    from indexmill.jobs.api.export import dataset_options, export_options

    check_keywords("export", run, DatasetKeywords)
    if dataset is not None:
        from indexmill.pipeline.export.lance.run import run_dataset_index

        request = dataset_options(to, out, ids, dataset, column=column, force=force, **run)
        with _listener(progress) as bars:
            return run_dataset_index(local_path(index, "index"), request, bars)
    if column is not None or run:
        names = ", ".join([*(["column"] if column is not None else []), *run])
        raise ConfigError(
            f"dataset: missing; {names}: of use with a dataset alone; name it, or leave them out"
        )
    if out is None:
        raise ConfigError("out: missing; name the directory to write")
    from indexmill.pipeline.export.run import run_export

    options = export_options(to, out, ids, force)
    with _listener(progress) as bars:
        return run_export(local_path(index, "index"), options, bars)


def join(
    queries: NDArray[Any] | str | os.PathLike[str],
    index: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    k: int = 10,
    nprobe: int | None = None,
    recall: float | None = None,
    column: str | None = None,
    id_column: str | None = None,
    platform: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **run: Unpack[JoinKeywords],
) -> JoinReport:
    """Write the nearest vectors of many queries in an index of kind ivf to a Parquet file.

    Every batch of the index is read once. Run again, a join that was killed, or that found a batch damaged,
    resumes with what is left.

    Parameters
    ----------
    queries : array of shape (n_queries, dim), or path
    out : path
        Ends in ``.parquet``; `force` replaces a file there.
    nprobe : int, optional
        Lists that a query probes in every batch; all of them: exact.
    recall : float, optional
        In its place: the recall to reach; `nprobe` is learnt from 200 of the queries.
    column, id_column : str, optional
        Of a file of queries: the vectors, and ids that the result calls the queries by.
    platform : path, optional
        TOML file of workers to divide the batches among.
    progress : bool
        Whether to show progress on stderr.
    **run
        ``memory`` ("8GiB"), the budget beside the page cache: two batches, the queries, and as many of them as are
        searched at a time. ``workers`` (2), threads, which do not change the bytes. ``work``, a directory for partial
        results, beside `out` by default. ``executor`` ("local") and ``ray_address``, where batches are searched; "ray":
        on the nodes of a cluster, which all need `index` and `work`. ``force`` (False).

    Returns
    -------
    JoinReport

    Raises
    ------
    IndexmillError
        A subclass that says what to change.
    """
    from indexmill.jobs.api.joining import JoinRequest, join_files

    check_keywords("join", run, JoinKeywords)
    request = JoinRequest(
        k=k, nprobe=nprobe, recall=recall, column=column, id_column=id_column, platform=platform, **run
    )  # fmt: skip
    with _listener(progress) as bars:
        return join_files(queries, index, out, request, bars)


def truth(
    base: Paths,
    queries: NDArray[Any] | str | os.PathLike[str],
    *,
    k: int = 100,
    metric: Literal["l2", "ip", "cosine"] | None = None,
    column: str | None = None,
    memory: int | str = "8GiB",
    workers: int = 2,
    progress: bool = False,
) -> Truth:
    """Return the true nearest vectors of queries, ties by the smaller vector id.

    Parameters
    ----------
    base : path(s)
        Files of vectors, which are streamed, or one index of kind ivf with flat lists.
    metric : {"l2", "ip", "cosine"}, optional
        Of files; l2 by default.
    column, memory, workers, progress
        As in `join`.

    Returns
    -------
    Truth
        ``ids`` and ``distances``, arrays of shape (n_queries, k).

    Raises
    ------
    IndexmillError
        A subclass that says what to change.
    """
    from indexmill.jobs.api.joining import truth_of

    with _listener(progress) as bars:
        return truth_of(
            paths_of(base) or [], queries, k=k, metric=metric, column=column, memory=memory, workers=workers,
            progress=bars,
        )  # fmt: skip


def tune(
    vectors: NDArray[Any] | ArrowStream | Paths,
    *,
    target_recall: float = 0.95,
    k: int = 10,
    max_reads: float | None = None,
    queries: NDArray[Any] | None = None,
    effort: Literal["low", "normal", "high"] = "normal",
    work: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **parameters: Any,
) -> TuneReport:
    """Find parameters of a graph for a recall, on samples of the vectors.

    Parameters
    ----------
    vectors : array of shape (n_vectors, dim), table, or path(s)
        As in `build`; a frame is held in memory.
    target_recall : float
        Share of the `k` nearest that searches are to find.
    max_reads : float, optional
        Page reads a query at most: the least memory and space within it is recommended; by default the fewest reads.
    queries : array, shape (n_queries, dim), optional
        By default vectors of the input, which the samples then leave out.
    effort : {"low", "normal", "high"}
        Vectors of the largest sample: 25,000, 100,000 or 400,000.
    work : path, optional
        Directory for scratch files; default: where the system keeps such files.
    progress : bool
        Whether to show progress on stderr.
    **parameters
        As in `build`; what is given of ``R``, ``L``, ``alpha``, ``pq_bytes``, ``pq_rotation`` and ``node_dtype`` stays
        as it is. ``search_memory`` limits the codes, as ``"2GB"`` or ``"64/vector"``; by default nothing does.

    Returns
    -------
    TuneReport
        ``parameters`` are the recommended ones, for `build`; None if no setting does, and ``failure()`` says why.
        ``rows`` has what was tried, ``to_dict()`` all of it.

    Raises
    ------
    IndexmillError
        A subclass that says what to change.

    Examples
    --------
    >>> found = indexmill.tune(vectors, target_recall=0.95, metric="cosine")
    >>> index = indexmill.build(vectors, "my.index", **found.parameters)
    """
    from indexmill.jobs.api.tuning import tune_request
    from indexmill.pipeline.build import open_input
    from indexmill.pipeline.tune.run import run_tune

    spec, source = job_of(vectors, "tuned.index", parameters)
    request = tune_request(spec, target_recall, k, max_reads, effort, queries, work)
    with _listener(progress) as bars:
        return run_tune(request, source or open_input(spec), bars)


def open(
    path: str | os.PathLike[str],
    engine: str = "auto",
    vectors: Place | None = None,
    tables: Place | None = None,
    ids: Place | None = None,
) -> Index | LshIndex | IvfIndex | IndexSet:
    """Open the index at `path`, or the set of indexes, for search.

    Parameters
    ----------
    path : path
        A directory, or the URL of an index, which is fetched into a local cache if it has room for the index
        (docs/guides/object-storage.md).
    engine : {"auto", "io_uring", "sqpoll", "pread", "mmap", "ranges"} or "simulated:PROFILE.json"
        How pages are read; `auto` is io_uring where the system allows it, else pread. Of kinds ``lsh`` and
        ``ivf`` also ``"memory"``, which loads all of it. ``"ranges"`` searches a graph or inverted lists at a URL by
        requests for ranges of their files; so does `auto` if the cache has no room for the index.
    vectors, tables : {"memory", "storage"}, optional
        Where vectors, and pointers to buckets, of an index of kind ``lsh`` are while it is open; default: vectors in
        memory and pointers on storage.
    ids : {"memory", "storage"}, optional
        Where ids are while the index is open: loaded (4 bytes a vector of a graph; 8 more for whole numbers, or 8 and
        the text), or read with the results, the default.

    Returns
    -------
    Index, LshIndex, IvfIndex or IndexSet
        By the kind of the index; IndexSet for a set.

    Raises
    ------
    InputError
        If there is no index at `path`.
    FormatError
        If there is one that cannot be used; of a set, naming the part that is missing or of another build.
    ConfigError
        If the index does not know the engine, `vectors`, `tables` or `ids`.
    """
    from indexmill.jobs.kinds.opening import open_any, placed
    from indexmill.jobs.search.engines import check_engine

    engine = check_engine(engine, "engine", with_memory=True, with_ranges=True)
    at, remote = placed(path, engine)
    return open_any(at, engine, remote, vectors=vectors, tables=tables, ids=ids)


def _open_graph(path: str | os.PathLike[str]) -> Index:
    """Open what a job for graphs has written."""
    from indexmill.jobs.kinds.opening import open_index

    return open_index(Path(path))


def _listener(progress: bool) -> AbstractContextManager[Progress | None]:
    """Bars on stderr, or none."""
    from indexmill.jobs.console.progress import stderr_progress

    return stderr_progress() if progress else nullcontext()
