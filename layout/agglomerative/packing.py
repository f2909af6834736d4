"""Pages of groups: the closest groups get the pages, and other vertices the places that are left."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.kernel import kernel
from indexmill.layout.agglomerative.merging import Groups
from indexmill.layout.agglomerative.near import Near
from indexmill.layout.agglomerative.pairs import NOBODY
from indexmill.layout.agglomerative.tally import new_tally, sum_up
from indexmill.reader.threads import run_blocks

#: Times that each vertex without a place asks for one on the page it is closest to, among those with room. One of four
#: of those that ask is late, and then one of two.
_TURNS = 3
#: Vertices or groups of a task.
_BLOCK = 2048


def packed(groups: Groups, near: Near, b: int, threads: int) -> NDArray[np.uint32]:
    """Return an order, pages of `b` vertices one after the other; the last page may have fewer. Groups are used up."""
    pages, room = _moved_in(groups, near, b, threads)
    homeless = np.flatnonzero(pages == NOBODY).astype(np.uint32)
    for _ in range(_TURNS):
        homeless = _seek(near, pages, room, homeless, threads)
    pages[homeless] = np.repeat(np.arange(len(room)), room)
    order: NDArray[np.uint32] = _by_page(pages, b)
    return order


def _moved_in(
    groups: Groups, near: Near, b: int, threads: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Give pages to the closest groups; return the page of each vertex, `NOBODY` of others, and the room of pages."""
    n, of = len(groups.of), groups.of
    names = np.flatnonzero(groups.sizes).astype(np.uint32)
    closeness = np.empty(len(names), np.int32)
    run_blocks(
        lambda first, last: _name(groups.following, names[first:last], of), len(names), _BLOCK, threads
    )
    run_blocks(
        lambda first, last: _inside(near, groups.following, of, names[first:last], closeness[first:last]),
        len(names), _BLOCK, threads,
    )  # fmt: skip
    pages, room = of, np.full(-(-n // b), b, np.int64)  # pages take the place of names
    pages[:] = NOBODY
    room[-1] = n - (len(room) - 1) * b
    _move_in(groups, names[_closest_first(closeness)], pages, room)
    return pages, room


def _seek(
    near: Near,
    pages: NDArray[np.uint32],
    room: NDArray[np.int64],
    homeless: NDArray[np.uint32],
    threads: int,
) -> NDArray[np.uint32]:
    """Move vertices to the pages they are closest to, the closest first; return those that found them full."""
    wanted, closeness = np.empty(len(homeless), np.uint32), np.empty(len(homeless), np.int32)

    def want(first: int, last: int) -> None:
        _want(near, pages, room, homeless[first:last], wanted[first:last], closeness[first:last])

    run_blocks(want, len(homeless), _BLOCK, threads)
    _settle(homeless, wanted, _closest_first(closeness), pages, room)
    left: NDArray[np.uint32] = homeless[pages[homeless] == NOBODY]
    return left


def _closest_first(closeness: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the places in descending order, equal ones ascending; `closeness` is used up."""
    np.negative(closeness, out=closeness)
    return np.argsort(closeness, kind="stable")


@kernel
def _name(following: Any, names: Any, of: Any) -> None:  # pragma: no cover - compiled
    """Tell the vertices of groups the name of theirs."""
    for name in names:
        v = name
        while v != NOBODY:
            of[v] = name
            v = following[v]


@kernel
def _inside(
    near: Any, following: Any, of: Any, names: Any, closeness: Any
) -> None:  # pragma: no cover - compiled
    """Write the sum of closeness within each group."""
    for i in range(names.size):
        total, v = np.int64(0), names[i]
        while v != NOBODY:
            for j in range(near.ids.shape[1]):
                if of[near.ids[v, j]] == names[i]:
                    total += np.int64(near.closeness[v, j])
            v = following[v]
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
    near: Any, pages: Any, room: Any, homeless: Any, wanted: Any, closeness: Any
) -> None:  # pragma: no cover - compiled
    """Write the page with room that each vertex is closest to, of equally close ones the first, and how close."""
    ids, closeness_of = near
    most = ids.shape[1]
    near_pages, amounts = np.empty(most, np.uint32), np.empty(most, np.int32)
    found, totals, (firsts, places) = np.empty(most, np.uint32), np.empty(most, np.int32), new_tally(most)
    for i in range(homeless.size):
        v, m = homeless[i], 0
        for j in range(most):
            page = pages[ids[v, j]]
            if page != NOBODY and room[page] > 0:
                near_pages[m], amounts[m] = page, closeness_of[v, j]
                m += 1
        n = sum_up(near_pages, amounts, m, firsts, places, found, totals)
        wanted[i], closeness[i] = NOBODY, 0
        for k in range(n):
            if totals[k] > closeness[i] or (totals[k] == closeness[i] and found[k] < wanted[i]):
                wanted[i], closeness[i] = found[k], totals[k]


@kernel
def _settle(
    vertices: Any, wanted: Any, by_closeness: Any, pages: Any, room: Any
) -> None:  # pragma: no cover - compiled
    for i in by_closeness:
        if wanted[i] != NOBODY and room[wanted[i]] > 0:
            room[wanted[i]] -= 1
            pages[vertices[i]] = wanted[i]


@kernel
def _by_page(pages: Any, b: int) -> Any:  # pragma: no cover - compiled
    """Return the vertices page by page, ascending on each, uint32 (n,); every page but the last is full."""
    order = np.empty(pages.size, np.uint32)
    at = np.arange(0, pages.size, b)
    for v in range(pages.size):
        page = np.int64(pages[v])
        order[at[page]] = v
        at[page] += 1
    return order
