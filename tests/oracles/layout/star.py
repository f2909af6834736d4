"""Star packing and first-fit-decreasing as the paper writes them: lists, sets and loops."""

from __future__ import annotations


def pack(lists: list[list[int]], b: int) -> list[list[int]]:
    """Stars of a graph given as neighbour lists, nearest first.

    The next centre is the homeless vertex with the most homeless neighbours; among equals the one whose count
    changed last (at first: the smallest number).
    """
    n = len(lists)
    homeless = set(range(n))
    count = {v: len(lists[v]) for v in range(n)}
    stamp = {v: -v for v in range(n)}
    clock = 0
    sources: list[list[int]] = [[] for _ in range(n)]
    for v in range(n):
        for u in lists[v]:
            sources[u].append(v)
    stars = []
    while homeless:
        centre = max(homeless, key=lambda v: (count[v], stamp[v]))
        star = [centre]
        homeless.remove(centre)
        for u in lists[centre]:
            if len(star) < b and u in homeless:
                star.append(u)
                homeless.remove(u)
        for v in star:
            for w in sources[v]:
                if w in homeless:
                    clock += 1
                    count[w] -= 1
                    stamp[w] = clock
        stars.append(star)
    return stars


def first_fit_decreasing(sizes: list[int], capacity: int) -> list[list[int]]:
    """Bins of items: each item, in order of falling size, goes into the first bin with room."""
    bins: list[list[int]] = []
    rooms: list[int] = []
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        for at, room in enumerate(rooms):
            if sizes[item] <= room:
                bins[at].append(item)
                rooms[at] -= sizes[item]
                break
        else:
            bins.append([item])
            rooms.append(capacity - sizes[item])
    return bins
