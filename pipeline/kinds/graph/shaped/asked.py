"""Stages *asked*, *nearest* and *bridge*: a sample of queries, and what it shapes of a graph.

*asked* reads the queries once, *nearest* finds the vectors nearest to each by comparing all, *bridge* links those in
the finished graph (`builders.vamana.bridges`). *nearest* also adds up in which directions queries lie, by which
*encode* chooses codes (`builders.quantize.asked`). *navigation* takes half of its vertices from the nearest vectors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import BLOCK_BYTES, ExactSearch
from indexmill.builders.quantize.asked import query_spread
from indexmill.builders.vamana.bridges import add_bridges
from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.prune import PruneRule
from indexmill.formats.errors import InputError
from indexmill.formats.sources.source import VectorSource, open_queries
from indexmill.formats.sources.validate import check_batch
from indexmill.pipeline.kinds.common.metric import as_asked
from indexmill.pipeline.kinds.graph.shape import QUERY_BLOCK
from indexmill.pipeline.kinds.graph.tasks import SAMPLE, copied_graph, load_graph, shard_sizes, write_facts

ASKED_VERSION = 1
NEAREST_VERSION = 1
BRIDGE_VERSION = 1
#: Of the nearest vectors of a query, the first, which tell the directions in which it lies.
_FIRST = 10
#: Different queries of a sample at least: fewer do not tell in which directions queries lie.
LEAST_QUERIES = 100
#: Files of stage *nearest*.
NEAREST, SPREAD = "nearest.npy", "spread.npy"
#: What is known of the queries, in the directory of stage *asked*.
_FACTS = "asked.json"


def opened_sample(path: str, column: str | None, source: VectorSource) -> VectorSource:
    """Open a sample of queries of the vectors in `source`.

    Raises
    ------
    InputError
        If there are too few queries, or they have another dimension.
    """
    sample = open_queries(path, column)
    if sample.dim != source.dim:
        raise InputError(
            f"query_sample: {path} has queries of {sample.dim} dimensions, but the vectors have {source.dim}; name "
            "queries of these vectors, or leave it out"
        )
    if sample.n_vectors < LEAST_QUERIES:
        raise _too_few(path, sample.n_vectors)
    return sample


def _too_few(path: str, found: int) -> InputError:
    return InputError(
        f"query_sample: {path}: expected at least {LEAST_QUERIES} different queries, got {found}; name a larger "
        "sample, or leave it out"
    )


def check_sample(sample: VectorSource, metric: str, dtype: np.dtype[Any]) -> None:
    """Refuse a sample that cannot be read, before the first stage of a build; reads it once, a batch at a time.

    Parameters
    ----------
    dtype : numpy dtype
        Of the vectors as they are stored, which the queries must fit.

    Raises
    ------
    InputError
        On the first bad query, with its file and row; or if there are too few different ones.
    """
    different: set[bytes] = set()
    for rows in _checked(sample, metric, dtype):
        if len(different) < LEAST_QUERIES:
            different.update(row.tobytes() for row in rows)
    if len(different) < LEAST_QUERIES:
        raise _too_few(sample.paths[0], len(different))


def _checked(sample: VectorSource, metric: str, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Yield the queries of a sample in the type of the vectors, C-contiguous; raises errors as `check_sample`."""
    for batch in sample.batches():
        check_batch(batch, metric)
        with np.errstate(over="ignore", invalid="ignore"):  # such values are refused
            queries = batch.vectors.astype(dtype, order="C", copy=False)
        if dtype.kind in "iu":
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            is_wrong, expected = queries != batch.vectors, f"whole numbers from {least} to {most}"
        else:
            is_wrong, expected = ~np.isfinite(queries), f"numbers of at most {float(np.finfo(dtype).max):g}"
        wrong = np.flatnonzero(is_wrong.any(axis=1))
        if len(wrong):
            raise InputError(
                f"query_sample: {batch.path}: row {batch.first_row + wrong[0]}: expected {expected}, which {dtype} "
                "vectors hold; convert the queries as the vectors were, or leave them out"
            )
        yield queries


def read_sample(
    sample: VectorSource, metric: str, dtype: np.dtype[Any], out: Path, advance: Callable[[int], None]
) -> None:
    """Write ``queries.npy``: the different queries of a sample, in the order of their bytes, as they are compared.

    Parameters and errors are as of `check_sample`.
    """
    queries, first = np.empty((sample.n_vectors, sample.dim), dtype), 0
    for rows in _checked(sample, metric, dtype):
        queries[first : first + len(rows)] = rows
        first += len(rows)
        advance(len(rows))
    whole = queries.view(np.dtype((np.void, queries[0].nbytes))).reshape(-1)
    different = queries[np.unique(whole, return_index=True)[1]]
    if len(different) < LEAST_QUERIES:
        raise _too_few(sample.paths[0], len(different))
    asked = as_asked(different, metric)
    np.save(out / "queries.npy", asked)
    facts = {
        "given": len(queries),
        "queries": len(asked),
        "fingerprint": hashlib.sha256(np.ascontiguousarray(asked).data).hexdigest(),
    }
    (out / _FACTS).write_text(json.dumps(facts))


def nearest_task(vectors: str, asked: str, k: int, out: str, threads: int) -> None:
    """Write ``nearest.npy``, the k rows nearest to each query, and ``spread.npy``, as of `query_spread`."""
    rows, queries = np.load(vectors, mmap_mode="r"), np.load(Path(asked) / "queries.npy")
    search = ExactSearch(queries, k, threads, query_block=QUERY_BLOCK)
    step = max(1, BLOCK_BYTES // (rows.shape[1] * rows.dtype.itemsize))
    for first in range(0, len(rows), step):
        search.add(first, np.asarray(rows[first : first + step]))
    nearest = search.found.ids.astype(np.uint32, copy=False)
    np.save(Path(out) / NEAREST, nearest)
    np.save(Path(out) / SPREAD, query_spread(queries, rows, nearest[:, :_FIRST]))


def bridge_task(
    vectors: str,
    graph: str,
    asked: str,
    nearest: str,
    rule: PruneRule,
    list_size: int,
    out: str,
    threads: int,
) -> None:
    """Write the graph with edges between the vectors nearest to each query, as `tasks.save_graph` does."""
    directory, old = Path(out), load_graph(Path(graph))
    neighbours, degrees = copied_graph(old, directory)
    rows, wanted = np.load(vectors, mmap_mode="r"), np.load(Path(nearest) / NEAREST)
    bridges = add_bridges(rows, neighbours, degrees, wanted, rule, threads)
    added = old.edges_added + connect_unreachable(rows, neighbours, degrees, old.entry, list_size)
    neighbours.flush()
    degrees.flush()
    sample = json.loads((Path(asked) / _FACTS).read_text())
    is_near = np.zeros(len(degrees), np.bool_)
    for rank in wanted.T:
        is_near[rank] = True
    sample |= {"linked": wanted.shape[1], "vectors": int(is_near.sum()), "edges": bridges}
    write_facts(directory, old.entry, added, shard_sizes(Path(graph)), old.misses, {SAMPLE: sample})
