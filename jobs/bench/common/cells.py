"""Pieces of Markdown: tables, and numbers that may not have been reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOT_REACHED = "not reached"


def table(names: Sequence[str], rows: Iterable[Sequence[Any]], sides: str) -> str:
    """Return a table; `sides` has an l or an r for each column."""
    rules = ["---" if side == "l" else "---:" for side in sides]
    lines = [names, rules, *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    """Return a number with thousands separated."""
    return NOT_REACHED if value is None else f"{value:,.{digits}f}{unit}"


def share(part: float | None, whole: float | None = 1.0) -> str:
    """Return a share in percent."""
    return NOT_REACHED if part is None or not whole else f"{part / whole:.0%}"


def figure(found: Mapping[str, float | None] | None, digits: int = 0, unit: str = "") -> str:
    """Return a figure with its interval: ``27.5 (26.9 to 28.1)``."""
    if found is None or found["value"] is None:
        return NOT_REACHED
    text = number(found["value"], digits, unit)
    if found["low"] is None or found["high"] is None or found["low"] == found["high"]:
        return text
    return f"{text} ({number(found['low'], digits)} to {number(found['high'], digits)})"


def value(found: Mapping[str, float | None] | None, digits: int = 0, unit: str = "") -> str:
    """Return a figure without its interval."""
    return NOT_REACHED if found is None else number(found["value"], digits, unit)


def setting(used: Mapping[str, Any]) -> str:
    """Say how our reader searched."""
    text = (
        f"policy {used['policy']}, entry {used['entry']}, beam width {used['beam_width']}, {used['threads']}"
        f" thread{'s' if used['threads'] > 1 else ''} x {used['inflight']} quer{'ies' if used['inflight'] > 1 else 'y'}"
    )
    return text if used["deterministic"] else text + ", reads taken up as they arrive"
