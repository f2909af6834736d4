"""Pages of groups: the closest groups get the pages, and other vertices the places that are left."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.agglomerative.merging import NOBODY, Groups
from indexmill.layout.agglomerative.near import NearLists
from indexmill.layout.agglomerative.tally import add, clear, new_tally
from indexmill.reader.threads import run_blocks

#: Times that each vertex without a place asks for one on the page it is closest to, among those with room. One of four
#: of those that ask is late, and then one of two.
_TURNS = 3
#: Pages that a vertex can tell apart.
_MOST_PAGES = 256
#: Vertices or groups of a task.
_BLOCK = 2048


def packed(groups: Groups, lists: NearLists, b: int, threads: int) -> NDArray[np.uint32]:
    """Return an order, pages of `b` vertices one after the other; the last page may have fewer."""
    n = len(groups.of)
    names = np.flatnonzero(groups.sizes).astype(np.uint32)
    closeness = np.empty(len(names), np.int64)
    run_blocks(
        lambda first, last: _inside(lists, groups, names[first:last], closeness[first:last]),
        len(names), _BLOCK, threads,
    )  # fmt: skip
    names = names[np.argsort(-closeness, kind="stable")]
    pages, room = np.full(n, NOBODY), np.full(-(-n // b), b, np.int64)
    room[-1] = n - (len(room) - 1) * b
    _move_in(groups, names, pages, room)
    homeless = np.flatnonzero(pages == NOBODY).astype(np.uint32)
    for _ in range(_TURNS):
        homeless = _seek(lists, pages, room, homeless, threads)
    pages[homeless] = np.repeat(np.arange(len(room)), room)
    return np.argsort(pages, kind="stable").astype(np.uint32)


def _seek(
    lists: NearLists,
    pages: NDArray[np.uint32],
    room: NDArray[np.int64],
    homeless: NDArray[np.uint32],
    threads: int,
) -> NDArray[np.uint32]:
    """Move vertices to the pages they are closest to, the closest first; return those that found them full."""
    wanted, closeness = np.empty(len(homeless), np.uint32), np.empty(len(homeless), np.int64)

    def want(first: int, last: int) -> None:
        _want(lists, pages, room, homeless[first:last], wanted[first:last], closeness[first:last])

    run_blocks(want, len(homeless), _BLOCK, threads)
    by_closeness = np.argsort(-closeness, kind="stable")
    _settle(homeless[by_closeness], wanted[by_closeness], pages, room)
    left: NDArray[np.uint32] = homeless[pages[homeless] == NOBODY]
    return left


@kernel
def _inside(lists: Any, groups: Any, names: Any, closeness: Any) -> None:  # pragma: no cover - compiled
    """Write the sum of closeness within each group."""
    for i in range(names.size):
        total, v = np.int64(0), names[i]
        while v != NOBODY:
            for j in range(lists.ids.shape[1]):
                if groups.of[lists.ids[v, j]] == names[i]:
                    total += np.int64(lists.closeness[v, j])
            v = groups.following[v]
        closeness[i] = total


@kernel
def _move_in(groups: Any, names: Any, pages: Any, room: Any) -> None:  # pragma: no cover - compiled
    """Give each group a page, as long as there are pages."""
    page = 0
    for name in names:
        if page < room.size and groups.sizes[name] <= room[page]:
            room[page] -= groups.sizes[name]
            v = name
            while v != NOBODY:
                pages[v] = page
                v = groups.following[v]
            page += 1


@kernel
def _want(
    lists: Any, pages: Any, room: Any, homeless: Any, wanted: Any, closeness: Any
) -> None:  # pragma: no cover - compiled
    """Write the page with room that each vertex is closest to, of equally close ones the first, and how close."""
    tally = new_tally(_MOST_PAGES)
    for i in range(homeless.size):
        v, n = homeless[i], 0
        first, last = lists.starts[v], lists.starts[v + 1]
        n = _add(pages, room, lists.ids[v], lists.closeness[v], tally, n)
        n = _add(pages, room, lists.sources[first:last], lists.of_sources[first:last], tally, n)
        wanted[i], closeness[i] = NOBODY, 0
        for k in range(n):
            page, total = tally.numbers[tally.places[k]], tally.sums[tally.places[k]]
            if total > closeness[i] or (total == closeness[i] and page < wanted[i]):
                wanted[i], closeness[i] = page, total
        clear(tally, n)


@kernel
def _add(
    pages: Any, room: Any, near: Any, closeness: Any, tally: Any, n: Any
) -> Any:  # pragma: no cover - compiled
    """Add the closeness of vertices to that of their pages, where these have room."""
    numbers, sums, places = tally
    for j in range(near.size):
        page = pages[near[j]]
        if page != NOBODY and room[page] > 0:
            n = add(numbers, sums, places, n, page, closeness[j])
    return n


@kernel
def _settle(vertices: Any, wanted: Any, pages: Any, room: Any) -> None:  # pragma: no cover - compiled
    for i in range(vertices.size):
        if wanted[i] != NOBODY and room[wanted[i]] > 0:
            room[wanted[i]] -= 1
            pages[vertices[i]] = wanted[i]
