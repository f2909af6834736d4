"""Searches that are compared, each a function of a list size and a half of the queries.

* `filtered`: with a filter, as the reader plans it;
* `longer`: along edges as if there were no filter, with a list of ``L * n / n_allowed`` candidates, the first K allowed
  of which are the results;
* `alone`: without a filter, in an index of the allowed vectors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import Half, Row
from indexmill.jobs.bench.common.dataset import DISTANCE_TOLERANCE, Dataset, K, read_bin
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.serving import Cost, make_row, measured
from indexmill.jobs.bench.filters.columns import Filters
from indexmill.reader.index import Index

#: Most queries of a half: lists of thousands of candidates read as many pages.
QUERIES = 300
#: Column of the labels of an index with edges within them.
LABEL = "label"
_COUNTERS = ("pages_read", "code_distances", "hops")


@dataclass(frozen=True)
class Searches:
    """One index, and the filters of its queries.

    Attributes
    ----------
    index : Index
    data : Dataset
    filters : Filters
    by_label : bool
        Whether filters are conditions on the column `LABEL`, within whose values the index has edges.
    """

    index: Index
    data: Dataset
    filters: Filters
    by_label: bool = False
    _made: dict[int, Any] = field(default_factory=dict)

    def filtered(self, size: int, half: Half) -> Row:
        """Search with the filters."""
        filters = {label: self._filter(label) for label in np.unique(self.filters.asked).tolist()}

        def search(label: int, queries: Any) -> tuple[Any, Any]:
            found = self.index.search(queries, K, L=size, threads=THREADS, allow=filters[label])
            return found.vector_ids, found.counters

        return self._by_label(search, size, half)

    def longer(self, size: int, half: Half) -> Row:
        """Search without the filters for more, and take the allowed ones."""
        asked = queries_of(self.data, half)
        n_candidates = min(ceil(size / self.filters.allowed), len(self.index))
        with measured() as cost:
            found = self.index.search(
                np.asarray(read_bin(self.data.query))[asked], n_candidates, L=n_candidates, threads=THREADS
            )
        ids = found.vector_ids
        wanted = (self.filters.labels[ids] == self.filters.asked[asked, None]) & (ids >= 0)
        first = np.argsort(~wanted, axis=1, kind="stable")[:, :K]
        ids = np.where(np.take_along_axis(wanted, first, axis=1), np.take_along_axis(ids, first, axis=1), -1)
        each = {name: found.counters[name] for name in _COUNTERS}
        return self._row(size, cost, ids, half, each, scanned=0.0)

    def alone(self, indexes: Mapping[int, Index], size: int, half: Half) -> Row:
        """Search for each label an index of its vectors alone, in their order in the base."""
        rows = {label: np.flatnonzero(self.filters.labels == label) for label in indexes}

        def search(label: int, queries: Any) -> tuple[Any, Any]:
            k, most = min(K, len(indexes[label])), min(size, len(indexes[label]))
            found = indexes[label].search(queries, k, L=most, threads=THREADS)
            return rows[label][found.vector_ids], found.counters

        return self._by_label(search, size, half)

    def _by_label(self, search: Callable[[int, Any], tuple[Any, Any]], size: int, half: Half) -> Row:
        """Search for the queries of one label after those of another.

        ``scanned`` is the share of the queries for which all allowed vectors were scored.
        """
        asked = queries_of(self.data, half)
        labels, queries = self.filters.asked[asked], np.asarray(read_bin(self.data.query))[asked]
        ids = np.full((len(asked), K), -1, np.int64)
        each = {name: np.zeros(len(asked)) for name in _COUNTERS}
        scanned, cost = np.zeros(len(asked)), Cost()
        for label in np.unique(labels).tolist():
            mine = np.flatnonzero(labels == label)
            with measured() as part:
                found, counters = search(label, queries[mine])
            ids[mine, : found.shape[1]] = found
            cost.wall_s += part.wall_s
            cost.cpu_s += part.cpu_s
            cost.user_s += part.user_s
            for name, values in each.items():
                values[mine] = counters[name]
            # With codes on the page a scan reads all that are allowed, and scores none.
            scanned[mine] = np.isin(counters["code_distances"], (0, (self.filters.labels == label).sum()))
        return self._row(size, cost, ids, half, each, scanned=float(scanned.mean()))

    def _filter(self, label: int) -> Any:
        if label not in self._made:
            allow = f"{LABEL} = {label}" if self.by_label else self.filters.labels == label
            self._made[label] = self.index.filter(allow)
        return self._made[label]

    def _row(self, size: int, cost: Cost, ids: Any, half: Half, each: Any, **means: float) -> Row:
        asked = queries_of(self.data, half)
        queries = np.asarray(read_bin(self.data.query))[asked].astype(np.float64)
        distances = ((read_bin(self.data.base)[ids] - queries[:, None]) ** 2).sum(axis=2)
        distances[ids < 0] = np.inf
        is_hit = distances <= self.filters.farthest[asked, None] * (1 + DISTANCE_TOLERANCE)
        hits = {"hits": is_hit.sum(axis=1), "hits1": is_hit[:, 0]}
        return make_row(size, cost, 1, {**hits, **each}, **means)


def queries_of(data: Dataset, half: Half) -> Any:
    """Return the first `QUERIES` queries of a half, int array."""
    first, last = data.both_halves()[half]
    return np.arange(first, min(last, first + QUERIES))
