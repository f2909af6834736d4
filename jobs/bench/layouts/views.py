"""Searches of an index as if it were laid out in another order: page reads are exact, times mean nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import Half, Row, Search
from indexmill.jobs.bench.layouts.cases import Case
from indexmill.jobs.bench.programs.ours import Setting
from indexmill.jobs.bench.programs.ours_serve import search


class Views:
    """An index in identity order; it stays open.

    Parameters
    ----------
    case : Case
    """

    def __init__(self, case: Case) -> None:
        from indexmill.reader.index import Index

        self._case = case
        self._index = Index(case.index, "pread")

    def view(self, order: Any) -> Any:
        """Return the index as if laid out in `order`, uint32 (n,): the vector id in each slot."""
        return self._index.remapped(np.asarray(order))

    def search(self, view: Any, setting: Setting) -> Search:
        """Return the search of a view with a setting."""

        def ask(size: int, half: Half) -> Row:
            first, last = self._case.space.halves[half]
            question = {
                "size": size,
                "setting": setting.to_dict(),
                "first": first,
                "last": last,
                "times": 1,
                "way": "batch",
            }
            row: Row = search(view, self._case.space.data, question)
            return row

        return ask
