"""The Python interface: `indexmill.build` and `indexmill.open`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from indexmill.reader.index import Index

    Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Keys of a job file that are no parameters of the index: where things lie and how they run.
_RUN_KEYS = ("memory", "scratch", "workers", "executor", "ray_address", "work", "force")
_COLUMN_KEYS = ("column", "id_column", "metadata_columns")


def build(
    vectors: NDArray[Any] | pa.Table | Paths,
    out: str | os.PathLike[str],
    *,
    ids: NDArray[Any] | Sequence[Any] | None = None,
    metadata: pa.Table | None = None,
    progress: bool = False,
    **parameters: Any,
) -> Index:
    """Build an index and open it.

    Parameters
    ----------
    vectors : array of shape (n_vectors, dim), pyarrow.Table, or path(s)
        float32, float16, uint8 or int8; float64 is narrowed to float32. Paths may be globs and URLs.
    out : path
        The index directory to write.
    ids : sequence of n_vectors int, str or bytes, optional
        User ids of an array; default: positions.
    metadata : pyarrow.Table, optional
        n_vectors rows kept beside an array.
    progress : bool
        Whether to show progress on stderr.
    **parameters
        Keys of a job file: ``metric``, ``R``, ``L``, ``alpha``, ``pq_bytes``, ``order``, ``node_dtype``,
        ``seed`` and the others of `indexmill.pipeline.spec.Parameters`; ``memory``, ``scratch``,
        ``workers``, ``executor``, ``ray_address``, ``work``, ``force``; for files and tables
        ``column``, ``id_column``, ``metadata_columns``.

    Returns
    -------
    Index

    Raises
    ------
    IndexmillError
        Of the kind that tells what to change.

    Examples
    --------
    >>> index = indexmill.build(vectors, "words.index", ids=words, metric="cosine")
    >>> index.search(vectors[:3], k=5).ids
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.source import ARRAY_NAME, array_source
    from indexmill.jobs.jobfile import make_spec
    from indexmill.jobs.progress import stderr_progress
    from indexmill.pipeline.build import run_build

    beside = {key: parameters.pop(key) for key in _RUN_KEYS if key in parameters}
    columns = {key: parameters.pop(key) for key in _COLUMN_KEYS if key in parameters}
    paths = _paths(vectors)
    if paths is not None and (ids is not None or metadata is not None):
        raise ConfigError("ids, metadata: go with an array; for files pass id_column and metadata_columns")
    spec = make_spec(
        {
            "input": paths if paths is not None else [ARRAY_NAME],
            "out": os.fspath(out),
            "parameters": parameters,
            **beside,
            **columns,
        }
    )
    source = None if paths is not None else array_source(vectors, ids=ids, metadata=metadata, **columns)
    if progress:
        with stderr_progress() as bars:
            run_build(spec, source, bars)
    else:
        run_build(spec, source)
    return open(spec.out)


def open(path: str | os.PathLike[str], engine: str = "auto") -> Index:
    """Open the index at `path` for search.

    Parameters
    ----------
    engine : {"auto", "io_uring", "sqpoll", "pread", "mmap"} or "simulated:PROFILE.json"
        How pages are read; `auto` is io_uring where the system allows it, else pread.

    Raises
    ------
    InputError
        If there is no index at `path`.
    FormatError
        If there is one that cannot be used.
    """
    from indexmill.jobs.choices import check_engine
    from indexmill.jobs.opening import open_index

    return open_index(Path(path), check_engine(engine, "engine"))


def _paths(vectors: Any) -> list[str] | None:
    """Paths if that is what `vectors` is: one, or a sequence of them."""
    if isinstance(vectors, (str, os.PathLike)):
        return [os.fspath(vectors)]
    if (
        isinstance(vectors, (list, tuple))
        and vectors
        and all(isinstance(v, (str, os.PathLike)) for v in vectors)
    ):
        return [os.fspath(v) for v in vectors]
    return None
