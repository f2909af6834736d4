"""Districts of an order, one vector and one edge at a time."""

from __future__ import annotations

from collections.abc import Sequence


def district_of(
    directions: Sequence[Sequence[float]], places: Sequence[float], vector: Sequence[float]
) -> tuple[int, float]:
    """Return the district of a vector, and its least distance to a border on the way, as a product."""
    first, last, nearest = 0, len(places) + 1, float("inf")
    while last - first > 1:
        middle = (first + last) // 2
        beyond = sum(a * b for a, b in zip(directions[middle - 1], vector, strict=True)) - places[middle - 1]
        nearest = min(nearest, abs(beyond))
        first, last = (first, middle) if beyond < 0 else (middle, last)
    return first, nearest


def inside(lists: list[list[int]], members: list[int]) -> list[list[int]]:
    """Return the lists of members among themselves, a member being its place among them."""
    places = {v: place for place, v in enumerate(members)}
    return [[places[u] for u in lists[v] if u in places and u != v] for v in members]
