"""Building an index and finding its parameters: `build` and `tune`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from indexmill.jobs.api.functions.searching import open
from indexmill.jobs.api.given import job_of, stream_job_of
from indexmill.jobs.console.progress import shown_progress

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from indexmill.jobs.api.given import ArrowStream, Paths


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
        `IvfParameters`, and ``centroids``; of a graph also ``query_sample``, ``query_column`` and ``label_column``;
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
    from indexmill.pipeline.cut import cut_for_cluster
    from indexmill.pipeline.sets.build import run_build_or_set

    spec, source = stream_job_of(vectors, out, parameters, ids, metadata)
    with shown_progress(progress) as bars:
        run_build_or_set(spec, source, bars, cut_for_cluster)
    return open(spec.out)


def tune(
    vectors: NDArray[Any] | ArrowStream | Paths,
    *,
    target_recall: float | None = None,
    target_ratio: float | None = None,
    k: int = 10,
    max_reads: float | None = None,
    queries: NDArray[Any] | None = None,
    effort: Literal["low", "normal", "high"] = "normal",
    work: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **parameters: Any,
) -> Any:
    """Find parameters of a graph or of hash tables on samples of the vectors, or of searches of hash tables.

    Parameters
    ----------
    vectors : array of shape (n_vectors, dim), table, or path(s)
        As in `build`; a frame is held in memory. Or the path of an index of hash tables, whose searches are tuned.
    target_recall : float, optional
        Share of the `k` nearest that searches are to find; by default 0.95 for a graph.
    target_ratio : float, optional
        Overall ratio of found to true distances that searches of hash tables are to have, in place of a recall; by
        default 1.05.
    max_reads : float, optional
        Page reads a query at most: the least memory and space within it is recommended; by default the fewest reads.
        Of hash tables, distances count by their bytes: 64 KiB as a read.
    queries : array, shape (n_queries, dim), optional
        By default vectors of the input, which the samples then leave out; or of the index, each left out of its own
        results.
    effort : {"low", "normal", "high"}
        Vectors of the largest sample: 25,000, 100,000 or 400,000.
    work : path, optional
        Directory for scratch files; default: where the system keeps such files.
    progress : bool
        Whether to show progress on stderr.
    **parameters
        As in `build`; of searches of an index, ``memory`` and ``workers``. Those that are given stay as they are: of a
        graph ``R``, ``L``, ``alpha``, ``pq_bytes``, ``pq_rotation`` and ``node_dtype``, and ``search_memory`` limits
        the codes, as ``"2GB"`` or ``"64/vector"`` (by default there is no limit); with ``kind="lsh"`` ``gamma``, ``w``,
        ``probes`` and ``S``.

    Returns
    -------
    GraphsReport, TablesReport or SearchesReport
        ``parameters`` are the recommended ones, for `build` or for `LshIndex.search`; None if no setting reaches what
        was asked, and ``failure()`` says why. ``rows`` has what was tried, ``to_dict()`` the whole report.

    Raises
    ------
    IndexmillError
        A subclass that says what to change.

    Examples
    --------
    >>> found = indexmill.tune(vectors, target_recall=0.95, metric="cosine")
    >>> index = indexmill.build(vectors, "my.index", **found.parameters)
    """
    from indexmill.jobs.api.tuning import Wanted, is_index, tune_index, tune_request
    from indexmill.pipeline.build import open_input
    from indexmill.pipeline.tune.kinds import tuner_of

    wanted = Wanted(target_recall, target_ratio, k, max_reads, effort, queries, work)
    if is_index(vectors):
        with shown_progress(progress) as bars:
            return tune_index(os.fspath(cast("str", vectors)), wanted, parameters, bars)
    spec, source = job_of(vectors, "tuned.index", parameters)
    request = tune_request(spec, wanted)
    with shown_progress(progress) as bars:
        return tuner_of(spec.parameters.kind).build(request, source or open_input(spec), bars)
