"""Requests of joins and truth, which are checked and their files opened: for the commands and the Python functions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.location import local_path, path_or_url
from indexmill.jobs.choices import one_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from indexmill.formats.sources.truth import Truth
    from indexmill.pipeline.join.options import JoinOptions, JoinReport
    from indexmill.pipeline.join.plan import JoinPlan
    from indexmill.pipeline.mill.progress import Progress
    from indexmill.pipeline.spec import ExecutorName

_METRICS = ("l2", "ip", "cosine")
EXECUTORS: tuple[ExecutorName, ...] = ("local", "ray")
#: Rows of an array of queries that are looked at together.
_CHECKED = 4096


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """Request of a join, as its caller gave it: see `indexmill.join`."""

    k: int = 10
    nprobe: int | None = None
    recall: float | None = None
    column: str | None = None
    id_column: str | None = None
    memory: int | str = "8GiB"
    workers: int = 2
    work: str | os.PathLike[str] | None = None
    executor: str = "local"
    ray_address: str | None = None
    platform: str | os.PathLike[str] | None = None
    force: bool = False

    def options(self) -> JoinOptions:
        """Check the request.

        Raises
        ------
        ConfigError, InputError
            Naming the option, or the file of the platform.
        """
        size = _memory(self.memory)
        from indexmill.pipeline.join.options import JoinOptions
        from indexmill.pipeline.join.platform import read_platform

        where = one_of(self.executor, EXECUTORS, "executor")
        work = None if self.work is None else local_path(self.work, "work")
        crew = () if self.platform is None else tuple(read_platform(local_path(self.platform, "platform")))
        return JoinOptions(
            self.k, self.nprobe, self.recall, size, self.workers, work, where, self.ray_address, crew
        )


def join_files(
    queries: NDArray[Any] | str | os.PathLike[str],
    index: str | os.PathLike[str],
    out: str | os.PathLike[str],
    request: JoinRequest,
    progress: Progress | None = None,
) -> JoinReport:
    """Check a join, read the queries, and run it.

    Raises
    ------
    IndexmillError
        A subclass that says what to change.
    """
    from indexmill.jobs.kinds.opening import check_is_index
    from indexmill.jobs.search.results import check_writable

    target, index = Path(local_path(out, "out")), local_path(index, "index")
    if target.suffix != ".parquet":
        raise ConfigError(f"out: {target}: expected a name that ends in .parquet")
    check_writable(target, request.force)
    options = request.options()
    from indexmill.pipeline.join.run import run_join

    check_is_index(Path(index))
    rows, ids = _read_queries(queries, request.column, request.id_column)
    return run_join(rows, index, target, options, ids, progress)


def plan_files(
    queries: NDArray[Any] | str | os.PathLike[str], index: str | os.PathLike[str], request: JoinRequest
) -> JoinPlan:
    """Return how the workers of the request's platform would divide a join.

    Raises
    ------
    IndexmillError
        A subclass that says what to change.
    """
    from indexmill.jobs.kinds.opening import check_is_index
    from indexmill.pipeline.join.plan import plan_join

    options = request.options()
    index = local_path(index, "index")
    check_is_index(Path(index))
    return plan_join(_read_queries(queries, request.column, None)[0], index, options)


def truth_of(
    base: list[str],
    queries: NDArray[Any] | str | os.PathLike[str],
    *,
    k: int,
    metric: str | None,
    column: str | None = None,
    memory: int | str,
    workers: int,
    progress: Progress | None,
) -> Truth:
    """Return the truth of queries over vector files, or over the one IVF index that `base` names.

    Raises
    ------
    IndexmillError
        A subclass that says what to change.
    """
    size = _memory(memory)
    from indexmill.formats.index.names import MANIFEST_NAME
    from indexmill.formats.sources.source import open_source
    from indexmill.pipeline.join.truth import truth_of_index, truth_of_vectors

    base = [path_or_url(one, "base") for one in base]
    rows, _ = _read_queries(queries, column, None)
    if len(base) == 1 and (Path(base[0]) / MANIFEST_NAME).is_file():
        if metric is not None:
            raise ConfigError("metric: an index has its own; leave it out")
        return truth_of_index(base[0], rows, k, workers, size, progress)
    source = open_source(base, column=column)
    return truth_of_vectors(
        source, rows, k, one_of(metric or "l2", _METRICS, "metric"), workers, size, progress
    )


def _memory(memory: int | str) -> int:
    from indexmill.jobs.api.run_options import run_options

    return run_options(None, memory, 1, False).memory


def _read_queries(
    queries: Any, column: str | None, id_column: str | None
) -> tuple[NDArray[Any], pa.Array | None]:
    """Return query vectors, and the ids of a column if one is named."""
    import pyarrow as pa

    from indexmill.formats.sources.bfloat16 import numeric
    from indexmill.formats.sources.source import open_source, read_queries

    if not isinstance(queries, (str, os.PathLike)):
        if id_column is not None:
            raise ConfigError(
                "id_column: an array of queries has no columns; name a file, or leave id_column out"
            )
        return _checked(numeric(np.asarray(queries))), None
    if id_column is None:
        return read_queries(os.fspath(queries), column=column), None
    source = open_source(os.fspath(queries), column=column, id_column=id_column)
    ids = [batch.ids for batch in source.batches()]
    return read_queries(os.fspath(queries), column=column), pa.chunked_array(ids).combine_chunks()


def _checked(queries: NDArray[Any]) -> NDArray[Any]:
    """Refuse what no distance can be computed for, as it is refused in a file.

    Raises
    ------
    InputError
        Naming the row.
    """
    from indexmill.formats.sources.source import VectorBatch
    from indexmill.formats.sources.validate import check_batch

    if queries.dtype.kind not in "fiu":
        raise InputError(f"queries: dtype {queries.dtype} is not numeric; pass an array of numbers")
    if queries.dtype.kind == "f" and queries.ndim == 2:  # other shapes are refused beside the index
        for first in range(0, len(queries), _CHECKED):
            with np.errstate(over="ignore"):
                rows = queries[first : first + _CHECKED].astype(np.float32, copy=False)
            check_batch(VectorBatch(first, rows, None, None, "queries", first), "l2")
    return queries
