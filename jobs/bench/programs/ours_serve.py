"""Search our indexes when asked to, in a process that stays.

    python -m indexmill.jobs.bench.programs.ours_serve DATA [NATIVE.so]

A question holds ``index`` (path), ``engine``, ``setting`` (keyword arguments of `Index.search`), ``size`` (L),
``first`` and ``last`` (queries), ``times`` (how often they are searched, in one call) and ``way``:

* ``batch``: all queries in one call;
* ``single``: a call for each query, timed from outside, as a caller in Python sees it;
* ``cold``: the same, with the index's ids dropped from the page cache before each call.

NATIVE.so stands in for the reader's installed module: the same code with the names of its functions, to profile.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from indexmill.jobs.bench.common.dataset import Dataset, K, count_both, read_bin
from indexmill.jobs.bench.common.serving import Calls, after_warm_ups, make_row, measured, serve

#: Index and engine of an index that is open, and what engines begin with that simulate a device.
Place: TypeAlias = tuple[str, str]
_SIMULATED = "simulated:"
#: Counters that are kept of each query; of the others the means are.
_EACH = ("pages_read", "hops", "latency_us")
#: Those that are kept of each query besides where queries are timed one by one.
_EACH_CALL = ("io_wait_us",)
_MEANS = (
    "bytes_read", "bytes_used", "distances", "code_distances", "expansions", "page_heap_hits", "io_wait_us",
)  # fmt: skip


def main() -> None:
    data = Dataset(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        use_native(sys.argv[2])
    from indexmill.reader.index import Index

    opened: dict[Place, Index] = {}

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        place = (question["index"], question["engine"])
        if place not in opened:
            let_go(opened, question["engine"])
            opened[place] = Index(*place)
        return search(opened[place], data, question)

    serve(answer)


def let_go(opened: dict[Place, Any], engine: str) -> None:
    """Close the indexes of the other simulated devices where `engine` is one: each holds its whole index in memory."""
    if engine.startswith(_SIMULATED):
        for place in [place for place in opened if place[1].startswith(_SIMULATED) and place[1] != engine]:
            del opened[place]


def use_native(path: str) -> None:
    """Load the reader's compiled module from `path`."""
    name = "indexmill.reader._native"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    import indexmill.reader

    indexmill.reader._native = module  # so that `from reader import _native` finds it


def search(index: Any, data: Dataset, question: dict[str, Any]) -> dict[str, Any]:
    """Search queries ``first`` to ``last`` as the question says; return a row of `make_row`.

    Parameters
    ----------
    index : indexmill.reader.Index
    data : Dataset
        Queries and their truth.
    question : dict
        As the module's docstring lists it, without ``engine``. ``times`` is ignored unless the way is ``batch``.

    Returns
    -------
    dict
        Of each query: pages read, hops and the reader's ``latency_us``; for ``batch`` also the means of the other
        counters, else also ``io_wait_us`` and the times of `Calls`.
    """
    return batch(index, data, question) if question["way"] == "batch" else one_by_one(index, data, question)


def batch(index: Any, data: Dataset, question: dict[str, Any]) -> dict[str, Any]:
    """Search all queries, as often as the question says, in one call; see `search`."""
    first, last, times = question["first"], question["last"], question["times"]
    queries = np.tile(np.ascontiguousarray(read_bin(data.query)[first:last]), (times, 1))
    with measured() as cost:
        found = index.search(queries, K, L=question["size"], **question["setting"])
    once = slice(0, last - first)
    hits = count_both(found.vector_ids[once], data, first, last)
    each = {name: found.counters[name][once] for name in _EACH}
    means = {name: float(np.mean(found.counters[name])) for name in _MEANS}
    return make_row(question["size"], cost, times, {**hits, **each}, **means)


def one_by_one(index: Any, data: Dataset, question: dict[str, Any]) -> dict[str, Any]:
    """Search and time the queries one after the other; see `search`."""
    from indexmill.formats.chunks.tally import forget

    first, last, is_cold = question["first"], question["last"], question["way"] == "cold"
    ids, options = Path(question["index"]) / "ids.imx", {"L": question["size"], **question["setting"]}
    warm_ups, queries = after_warm_ups(read_bin(data.query), first, last)
    for query in warm_ups:
        index.search(query, K, **options)
    found = []
    with measured() as cost, Calls() as calls:
        for query in queries:
            if is_cold:
                forget(ids)
            found.append(calls.time(index.search, query, K, **options))
    hits = count_both(np.concatenate([one.vector_ids for one in found]), data, first, last)
    each = {name: np.concatenate([one.counters[name] for one in found]) for name in (*_EACH, *_EACH_CALL)}
    return make_row(question["size"], cost, 1, {**hits, **each, **calls.columns()})


if __name__ == "__main__":
    main()
