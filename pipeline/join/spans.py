"""Parts of batches: consecutive lists, in the order of the batch's file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """Consecutive lists of one batch.

    Attributes
    ----------
    batch : int
    first, last : int
        Entries of the batch's directory: the first one, and the one after the last.
    """

    batch: int
    first: int
    last: int


def uncovered(whole: Span, done: Iterable[Span]) -> list[Span]:
    """Return the lists of `whole` that none of `done` has, which are of the same batch; ascending."""
    left, at = [], whole.first
    for span in sorted(done):
        if span.first > at:
            left.append(Span(whole.batch, at, span.first))
        at = max(at, span.last)
    if at < whole.last:
        left.append(Span(whole.batch, at, whole.last))
    return left
