"""Searches of an index of any kind in this process, as a user opens it: what they find and what they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import indexmill
from indexmill.jobs.bench.common.curves import Half, Row, Search
from indexmill.jobs.bench.common.dataset import Dataset, K, count_both, read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.serving import make_row, measured

#: Counters that are kept of each query, of those that an index has.
_EACH = ("pages_read", "bytes_read", "parts")


def search_of(data: Dataset, index: Path, effort: str = "L", **how: Any) -> Search:
    """Return the search of one half of the queries with a number that is called L in its rows.

    Parameters
    ----------
    effort : str
        The option that takes this number, such as ``nprobe``.
    **how
        Further options.
    """
    opened: Any = indexmill.open(index)

    def search(size: int, half: Half) -> Row:
        first, last = data.both_halves()[half]
        with measured() as cost:
            found = opened.search(
                read_bin(data.query)[first:last], K, threads=THREADS, **{effort: size}, **how
            )
        each: dict[str, Any] = {name: found.counters[name] for name in _EACH if name in found.counters}
        return make_row(size, cost, 1, {**count_both(found.ids, data, first, last), **each})

    return search
