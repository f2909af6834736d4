"""Replacement of parts of the arguments of tasks, which are trees of tuples, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Returned by a replacing function for what it leaves as it is.
KEEP = object()


def replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Return `value` with each part that `replace` knows in its place; a known part is not looked into.

    Parameters
    ----------
    value : tuple, named tuple, list, dict or anything else
        Containers are copied, with their type; other things are kept as they are.
    replace : callable
        Gets a part, containers first, and returns what to put there or `KEEP`.
    """
    new = replace(value)
    if new is not KEEP:
        return new
    if isinstance(value, dict):
        return {key: replaced(part, replace) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [replaced(part, replace) for part in value]
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    return value
