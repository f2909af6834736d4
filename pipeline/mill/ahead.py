"""An iterator that makes the next piece while the current one is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")


def read_ahead(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield `pieces`, made by a thread of their own, each while the caller uses the previous one.

    Memory: one piece more. What making a piece raises is raised where the piece would come.
    """
    with ThreadPoolExecutor(1, "read-ahead") as thread:
        pending = thread.submit(_following, pieces)
        while piece := pending.result():
            pending = thread.submit(_following, pieces)
            yield piece[0]


def _following(pieces: Iterator[Piece]) -> tuple[Piece] | None:
    for piece in pieces:
        return (piece,)
    return None
