"""Units larger than a page: how many aligned reads of so many bytes a query takes.

Object storage and spinning disks are read in large blocks, because a read costs time more than its bytes do. A unit is
such a block of node pages, counted from the page of slot 0. A query reads a unit when it first reads one of its pages,
and keeps it until it ends. Its steps stay those of the search by pages: other nodes of a unit are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.jobs.choices import size_of
from indexmill.jobs.compare.costs import show, show_ratio
from indexmill.jobs.console.tables import human_bytes

if TYPE_CHECKING:
    from indexmill.reader.index import Index

#: Queries whose trace is in memory at a time, unless each begins where the one before ended.
QUERIES_AT_ONCE = 200
#: Bits of the number of a unit; the rest of 64 are for the query.
_UNIT_BITS = 40
_NAMES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def split_units(sizes: Sequence[str]) -> list[int]:
    """Return units such as ``"64KiB"`` in bytes, ascending, each once.

    Raises
    ------
    ConfigError
        If one is no size, or no multiple of a page.
    """
    units = [size_of(size, "--unit") for size in sizes]
    for size, unit in zip(sizes, units, strict=True):
        if unit < PAGE_BYTES or unit % PAGE_BYTES:
            raise ConfigError(
                f"--unit: expected a multiple of the page, {PAGE_BYTES} bytes, such as 64KiB or 1MiB; got {size!r}"
            )
    return sorted(set(units))


def unit_name(unit: int) -> str:
    """Return the name of a unit of so many bytes: ``"64KiB"``."""
    divisor, name = next((d, name) for d, name in _NAMES if unit % d == 0)
    return f"{unit // divisor}{name}"


def unit_cost(unit: int) -> str:
    """Return the counter of a unit of so many bytes, also a key of rows: ``"units_64KiB"``."""
    return f"units_{unit_name(unit)}"


def units_read(
    index: Index, vectors: NDArray[Any], k: int, L: int, options: Mapping[str, Any], units: Sequence[int]
) -> dict[str, NDArray[np.uint32]]:
    """Search `vectors` and count the units that each query reads.

    Exact vectors that are read at the end, from pages of their own, are not among them.

    Parameters
    ----------
    options : mapping
        Keyword arguments of `Index.search`.
    units : sequence of int
        Bytes, multiples of a page.

    Returns
    -------
    dict of uint32 arrays, shape (n_queries,)
        By `unit_cost`.
    """
    counts = {unit_cost(unit): np.zeros(len(vectors), np.uint32) for unit in units}
    pages_per_node = index.native.pages_per_node
    for query, page in _reads(index, vectors, k, L, options):
        begin = page * pages_per_node * PAGE_BYTES
        last = begin + pages_per_node * PAGE_BYTES - 1
        for unit in units:
            counts[unit_cost(unit)] += _distinct(query, begin // unit, last // unit, len(vectors))
    return counts


def _reads(
    index: Index, vectors: NDArray[Any], k: int, L: int, options: Mapping[str, Any]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield query and page of each read, of some queries at a time."""
    at_once = len(vectors) if options.get("entry") == "previous" else QUERIES_AT_ONCE
    for first in range(0, len(vectors), at_once):
        trace = index.search(vectors[first : first + at_once], k, L=L, trace=True, **options).trace
        assert trace is not None
        is_read = trace["kind"].to_numpy() == "read"
        query, page = (trace[name].to_numpy()[is_read].astype(np.int64) for name in ("query", "page"))
        yield first + query, page


def _distinct(
    query: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64], n_queries: int
) -> NDArray[np.uint32]:
    """Count the different units of each query, uint32 (n_queries,); a read has those from `first` to `last`."""
    lengths = last - first + 1
    steps = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    keys = np.unique((np.repeat(query, lengths) << _UNIT_BITS) + np.repeat(first, lengths) + steps)
    return np.bincount(keys >> _UNIT_BITS, minlength=n_queries).astype(np.uint32)


def unit_cells(lines: Sequence[Mapping[str, Any]], units: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table of units at equal recall, from the lines of `compare_rows`."""
    headings = ["recall", "policy", "index"]
    for unit in units:
        headings += [unit_name(unit), "ratio", "read"]
    cells = []
    for line in lines:
        row = [f"{line['recall']:.2f}", line["policy"], line["index"]]
        for cost, unit in ((unit_cost(unit), unit) for unit in units):
            value, bound = line[cost], line[f"{cost}_bound"]
            read = "-" if value is None else ("≤ " if bound else "") + human_bytes(value * unit)
            row += [show(value, bound), show_ratio(line[f"{cost}_ratio"]), read]
        cells.append(row)
    return headings, cells
