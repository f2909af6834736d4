"""Parts of a set that are searched together: one list of candidates for the graphs of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.reader import _native
from indexmill.reader.choices import (
    DEFAULT_BEAM_WIDTH,
    DEFAULT_ENTRY,
    DEFAULT_INFLIGHT,
    DEFAULT_POLICY,
    Entry,
    Policy,
)
from indexmill.reader.index import Index, SearchResult, list_size_for


class Together:
    """Opened graphs with a codebook in common; several threads may search them at once.

    Parameters
    ----------
    parts : sequence of Index

    Raises
    ------
    InputError
        If the graphs cannot be searched together; the message names the part and the reason.
    """

    def __init__(self, parts: Sequence[Index]) -> None:
        self._parts = tuple(parts)
        self._native = _native.GraphSet.of([part.native for part in self._parts])

    @property
    def n_vectors(self) -> int:
        """Vectors of all parts, deleted ones included."""
        return sum(len(part) for part in self._parts)

    @property
    def default_entry(self) -> Entry:
        """Meaning of ``auto``: ``navigation`` if all parts have such a graph, else ``centroids``."""
        return "navigation" if all(part.native.n_navigation for part in self._parts) else "centroids"

    def search(
        self,
        queries: NDArray[Any],
        routes: NDArray[np.bool_],
        k: int,
        *,
        masks: Sequence[NDArray[np.bool_]] | None = None,
        L: int | None = None,
        beam_width: int | None = None,
        policy: Policy | None = None,
        entry: Entry = DEFAULT_ENTRY,
        threads: int = 1,
        inflight: int = DEFAULT_INFLIGHT,
        deterministic: bool = True,
    ) -> SearchResult:
        """Find the k nearest vectors of each query in the parts that it needs.

        Parameters
        ----------
        queries : array, shape (n_queries, dim)
            As `as_queries` converts them.
        routes : bool array, shape (n_queries, n_parts)
            Which parts each query needs.
        k : int
        masks : sequence of bool arrays, one a part, optional
            The vectors of each that may be returned.
        L : int, optional
            Number of candidates of all parts together; by default the larger of 64 and 2k.
        beam_width, policy, entry, threads, inflight, deterministic
            As of `Index.search`.

        Returns
        -------
        SearchResult
            Vector ids and slots count part after part.

        Raises
        ------
        InputError, ConfigError, CorruptFile
            As `Index.search`; an error of a file names it, and so the part.
        """
        allow = None
        if masks is not None:
            filters = [part.filter(mask) for part, mask in zip(self._parts, masks, strict=True)]
            allow = self._native.filter(filters)
        options: _native.Options = {
            "k": k,
            "search_list_size": list_size_for(k, self.n_vectors, L),
            "beam_width": DEFAULT_BEAM_WIDTH if beam_width is None else beam_width,
            "policy": policy or DEFAULT_POLICY,
            "entry": self.default_entry if entry == "auto" else entry,
            "threads": threads,
            "inflight": inflight,
            "deterministic": deterministic,
            "allow": allow,
        }
        found = self._native.search(queries, np.ascontiguousarray(routes).view(np.uint8), options)
        slots, vector_ids, scores = found.pop("slots"), found.pop("vector_ids"), found.pop("scores")
        ids = found.pop("user_ids").reshape(vector_ids.shape)
        return SearchResult(ids, scores, vector_ids, slots, found, id_type=self._parts[0].native.id_type)


def joined(parts: Sequence[Any]) -> Together | None:
    """Return parts as ones that are searched together; None where each is to be searched by itself.

    Those are parts that are no graphs, that are opened elsewhere, whose pages are at a URL, or whose codes do not
    compare.
    """
    if not all(isinstance(part, Index) for part in parts):
        return None
    try:
        return Together(parts)
    except InputError:
        return None
