"""The nearest vectors of queries: `open`, `join` and `truth`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, Unpack

from indexmill.jobs.api.given import paths_of
from indexmill.jobs.api.keywords import JoinKeywords, check_keywords
from indexmill.jobs.console.progress import shown_progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from indexmill.formats.sources.truth import Truth
    from indexmill.jobs.api.given import Paths
    from indexmill.pipeline.join.options import JoinReport
    from indexmill.reader.choices import Place
    from indexmill.reader.index import Index
    from indexmill.reader.ivf import IvfIndex
    from indexmill.reader.lsh import LshIndex
    from indexmill.reader.set import IndexSet


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
    at, remote = placed(path, engine, ids)
    return open_any(at, engine, remote, vectors=vectors, tables=tables, ids=ids)


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

    Every batch of the index is read once. A join that was killed, or that found a batch damaged, resumes with the rest
    when it runs again.

    Parameters
    ----------
    queries : array of shape (n_queries, dim), or path
    out : path
        Ends in ``.parquet``; `force` replaces a file there.
    nprobe : int, optional
        Lists that a query probes in every batch; all lists are exact.
    recall : float, optional
        In place of `nprobe`: the recall to reach; 200 of the queries choose `nprobe`.
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
    with shown_progress(progress) as bars:
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

    with shown_progress(progress) as bars:
        return truth_of(
            paths_of(base) or [], queries, k=k, metric=metric, column=column, memory=memory, workers=workers,
            progress=bars,
        )  # fmt: skip
