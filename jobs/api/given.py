"""The vectors and parameters that a caller gives, made a job and a source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.formats.sources.source import VectorSource
    from indexmill.formats.sources.stream import VectorStream
    from indexmill.pipeline.spec import BuildSpec

    Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class ArrowStream(Protocol):
    """What gives the Arrow C stream of a table."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of the stream, which is read once."""
        ...


#: Keys of a job file that are not parameters of the index: where files are and how the build runs.
_RUN_KEYS = (
    "centroids", "query_sample", "query_column", "label_column", "parts",
    "memory", "scratch", "workers", "executor", "ray_address", "work", "force",
)  # fmt: skip
_COLUMN_KEYS = ("column", "id_column", "metadata_columns")


def job_of(
    vectors: Any,
    out: str | os.PathLike[str],
    parameters: dict[str, Any],
    ids: Any = None,
    metadata: pa.Table | None = None,
) -> tuple[BuildSpec, VectorSource | None]:
    """Make a job of keyword arguments; beside it its vectors, unless they are in files.

    A frame or data set is read into memory; `stream_job_of` leaves it as it is.

    Raises
    ------
    IndexmillError
        Naming the keyword, or the vector, that cannot be used.
    """
    from indexmill.formats.sources.source import array_source

    spec, columns = _spec_of(vectors, out, parameters, ids, metadata)
    return spec, None if columns is None else array_source(vectors, ids=ids, metadata=metadata, **columns)


def stream_job_of(
    vectors: Any,
    out: str | os.PathLike[str],
    parameters: dict[str, Any],
    ids: Any = None,
    metadata: pa.Table | None = None,
) -> tuple[BuildSpec, VectorSource | VectorStream | None]:
    """As `job_of`, for a build: a frame or data set is a stream, which the build copies without holding all of it.

    Raises
    ------
    IndexmillError
        Naming the keyword, or the vector, that cannot be used.
    """
    from indexmill.formats.sources.arrow_columns import Wanted
    from indexmill.formats.sources.source import source_or_stream

    spec, columns = _spec_of(vectors, out, parameters, ids, metadata)
    if columns is None:
        return spec, None
    wanted = Wanted(spec.column, spec.id_column, spec.metadata_columns)
    return spec, source_or_stream(vectors, wanted, ids, metadata)


def _spec_of(
    vectors: Any, out: str | os.PathLike[str], parameters: dict[str, Any], ids: Any, metadata: Any
) -> tuple[BuildSpec, dict[str, Any] | None]:
    """Make a job of keyword arguments; beside it the names of columns, None for files."""
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.sources.source import ARRAY_NAME
    from indexmill.jobs.jobfile import make_spec

    beside = {key: parameters.pop(key) for key in _RUN_KEYS if key in parameters}
    columns = {key: parameters.pop(key) for key in _COLUMN_KEYS if key in parameters}
    paths = paths_of(vectors)
    if paths is not None and (ids is not None or metadata is not None):
        raise ConfigError("ids, metadata: go with an array; for files pass id_column and metadata_columns")
    named = {"input": [ARRAY_NAME] if paths is None else paths, "out": os.fspath(out)}
    spec = make_spec({**named, "parameters": parameters, **beside, **columns})
    return spec, columns if paths is None else None


def paths_of(vectors: Any) -> list[str] | None:
    """Return the paths if `vectors` is a path or a sequence of them; else None."""
    if isinstance(vectors, str | os.PathLike):
        return [os.fspath(vectors)]
    if (
        isinstance(vectors, list | tuple)
        and vectors
        and all(isinstance(v, str | os.PathLike) for v in vectors)
    ):
        return [os.fspath(v) for v in vectors]
    return None
