"""A k-d tree over points of a few dimensions that gives the points in order of their distance, one after another.

Best first (Hjaltason and Samet, 1999): what is not exhausted waits in a heap by its distance to the query, nodes by
that of their box, opened leaves by that of their nearest point that was not given yet. A heap of leaves in place of one
of points keeps it small: a leaf's next point is found by one pass over its distances. Exact; one thread.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from indexmill.formats.kernel import kernel

#: Points of a leaf at most: so few that a pass over them is cheaper than a step of the heap.
LEAF = 32


class Tree(NamedTuple):
    """Points in the order of the leaves, and a box for each node of a complete binary tree.

    Attributes
    ----------
    points : float32 array, shape (n_dims, n)
    rows : int32 array, shape (n,)
        Which row each point was.
    starts : int32 array, shape (n_leaves + 1,)
    boxes : float32 array, shape (2 n_leaves, 2, n_dims)
        Least and greatest coordinates; node 1 is the root, 2i and 2i + 1 are the children of i, leaves come last.
    """

    points: Any
    rows: Any
    starts: Any
    boxes: Any


class Front(NamedTuple):
    """State of a traversal.

    Attributes
    ----------
    keys, items : float32 and int32 array, shape (2 n_leaves,)
        The heap: squared distances; nodes, or -1 - leaf once it is open.
    size : int64 array, shape (1,)
    apart : float32 array, shape (n,)
        Squared distances of the points of open leaves; infinite once given.
    """

    keys: Any
    items: Any
    size: Any
    apart: Any


def build(points: Any) -> Tree:
    """Split at the median of the widest dimension until leaves have at most `LEAF` of the `points`, (n, n_dims)."""
    points = np.array(points, np.float32, order="C")
    n_leaves = 1
    while n_leaves * LEAF < len(points):
        n_leaves *= 2
    rows, starts = _split(points, n_leaves)
    ordered = points[rows]
    return Tree(np.ascontiguousarray(ordered.T), rows, starts, _boxes(ordered, starts))


def front(tree: Tree) -> Front:
    """Return room for a traversal; `begin` makes it ready for a query, any number of times."""
    n_nodes = len(tree.boxes)
    return Front(
        np.empty(n_nodes, np.float32),
        np.empty(n_nodes, np.int32),
        np.zeros(1, np.int64),
        np.empty(len(tree.rows), np.float32),
    )


@kernel
def _split(points: Any, n_leaves: int) -> Any:
    n, n_dims = points.shape
    rows = np.arange(n).astype(np.int32)
    firsts, lasts = np.zeros(2 * n_leaves, np.int32), np.zeros(2 * n_leaves, np.int32)
    lasts[1] = n
    for node in range(1, n_leaves):
        first, last = firsts[node], lasts[node]
        mine = rows[first:last]
        widest, spread = 0, -1.0
        for j in range(n_dims):
            values = points[mine, j]
            width = values.max() - values.min()
            if width > spread:
                widest, spread = j, width
        rows[first:last] = mine[np.argsort(points[mine, widest], kind="mergesort")]
        middle = (first + last) // 2
        firsts[2 * node], lasts[2 * node] = first, middle
        firsts[2 * node + 1], lasts[2 * node + 1] = middle, last
    starts = np.empty(n_leaves + 1, np.int32)
    starts[:n_leaves] = firsts[n_leaves:]
    starts[n_leaves] = n
    return rows, starts


@kernel
def _boxes(points: Any, starts: Any) -> Any:
    n_leaves, n_dims = len(starts) - 1, points.shape[1]
    boxes = np.empty((2 * n_leaves, 2, n_dims), np.float32)
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf
    for node in range(2 * n_leaves - 1, 0, -1):
        for j in range(n_dims):
            if node >= n_leaves:
                for i in range(starts[node - n_leaves], starts[node - n_leaves + 1]):
                    boxes[node, 0, j] = min(boxes[node, 0, j], points[i, j])
                    boxes[node, 1, j] = max(boxes[node, 1, j], points[i, j])
            else:
                boxes[node, 0, j] = min(boxes[2 * node, 0, j], boxes[2 * node + 1, 0, j])
                boxes[node, 1, j] = max(boxes[2 * node, 1, j], boxes[2 * node + 1, 1, j])
    return boxes


@kernel
def begin(front: Front, tree: Tree, query: Any) -> None:
    """Make a traversal ready for `query`, float32 (n_dims,)."""
    front.size[0] = 0
    _push(front.keys, front.items, front.size, _to_box(tree.boxes, 1, query), 1)


@kernel
def advance(front: Front, tree: Tree, query: Any) -> tuple[int, float]:
    """Return the next point (its place in the tree) and its squared distance; -1 after the last."""
    keys, items, size = front.keys, front.items, front.size
    while size[0] and items[0] >= 0:
        node = items[0]
        _drop(keys, items, size)
        leaf = _descend(keys, items, size, tree.boxes, len(tree.starts) - 1, node, query)
        first, last = tree.starts[leaf], tree.starts[leaf + 1]
        _measure(front.apart, tree.points, query, first, last)
        _push(keys, items, size, _least(front.apart, first, last), -1 - leaf)
    if not size[0]:
        return -1, np.inf
    distance, leaf = keys[0], -1 - items[0]
    first, last = tree.starts[leaf], tree.starts[leaf + 1]
    place = first
    while front.apart[place] != distance:
        place += 1
    front.apart[place] = np.inf
    following = _least(front.apart, first, last)
    if following < np.inf:
        _sink(keys, items, size[0], following, items[0])
    else:
        _drop(keys, items, size)
    return place, distance


@kernel
def _descend(keys: Any, items: Any, size: Any, boxes: Any, n_leaves: int, node: int, query: Any) -> int:
    """Go down from a node to its nearest leaf; the other children wait."""
    while node < n_leaves:
        left, right = _to_box(boxes, 2 * node, query), _to_box(boxes, 2 * node + 1, query)
        farther = 2 * node + (left <= right)
        _push(keys, items, size, max(left, right), farther)
        node = 4 * node + 1 - farther
    return node - n_leaves


@kernel(fastmath={"reassoc", "contract"})
def _to_box(boxes: Any, node: int, query: Any) -> Any:
    """Return the squared distance of `query` to a node's box."""
    distance = np.float32(0)
    for j in range(len(query)):
        outside = max(np.float32(0), max(boxes[node, 0, j] - query[j], query[j] - boxes[node, 1, j]))
        distance += outside * outside
    return distance


@kernel(fastmath={"contract"})
def _measure(apart: Any, points: Any, query: Any, first: int, last: int) -> None:
    apart[first:last] = 0
    for j in range(len(query)):
        for i in range(first, last):
            difference = points[j, i] - query[j]
            apart[i] += difference * difference


@kernel(fastmath={"nnan", "nsz"})
def _least(apart: Any, first: int, last: int) -> Any:
    least = np.float32(np.inf)
    for i in range(first, last):
        least = min(least, apart[i])
    return least


@kernel
def _push(keys: Any, items: Any, size: Any, key: float, item: int) -> None:
    at = size[0]
    size[0] += 1
    while at:
        parent = (at - 1) >> 1
        if keys[parent] <= key:
            break
        keys[at], items[at] = keys[parent], items[parent]
        at = parent
    keys[at], items[at] = key, item


@kernel
def _drop(keys: Any, items: Any, size: Any) -> None:
    """Take the nearest out of the heap."""
    size[0] -= 1
    _sink(keys, items, size[0], keys[size[0]], items[size[0]])


@kernel
def _sink(keys: Any, items: Any, size: int, key: float, item: int) -> None:
    """Put an item in the place of the nearest of `size`."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[at], items[at] = keys[child], items[child]
        at = child
    keys[at], items[at] = key, item
