"""Text that is HTML, told apart from text that is not: only the first is put into a page as it is."""

from __future__ import annotations

import html
import json
import math
from typing import Any


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: Any) -> Markup:
    """Make an element; children and attributes that are no `Markup` are escaped, None is left out.

    Of an attribute's name a trailing ``_`` is dropped (``class_``) and any other becomes ``-``; numbers get at most two
    decimals, and True makes an attribute without a value.
    """
    words = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = name.rstrip("_").replace("_", "-")
        words.append(spelled if value is True else f'{spelled}="{html.escape(number(value), quote=True)}"')
    inside = join(*children)
    return Markup(f"<{' '.join(words)}>{inside}" + ("" if tag in _VOID else f"</{tag}>"))


def join(*children: str | None) -> Markup:
    """Put children one after the other, escaping those that are no `Markup`."""
    parts = [child if isinstance(child, Markup) else html.escape(child) for child in children if child]
    return Markup("".join(parts))


def number(value: Any) -> str:
    """Print a number with at most two decimals; anything else as it is."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def embedded_json(value: Any) -> Markup:
    """Print JSON that may stand inside a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def finite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None; a manifest from elsewhere may hold them."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_VOID = frozenset({"br", "col", "hr", "input", "link", "meta"})
