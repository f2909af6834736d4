"""Indexes and files that update jobs brought into an index, as run.json names them: no job brings them twice.

Every later generation names them, too, until a build begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from indexmill.formats.index.names import RUN_NAME

#: Key of run.json: 32 hex digits for each index or file.
BROUGHT = "brought"


def brought_into(index: Path) -> list[str]:
    """Return what stands for each index and file that jobs brought into an index; nothing if run.json is damaged."""
    brought = read_run(index).get(BROUGHT)
    return [digest for digest in brought if isinstance(digest, str)] if isinstance(brought, list) else []


def with_brought(facts: dict[str, Any], before: Iterable[str]) -> dict[str, Any]:
    """Return facts of run.json with all that they name as brought and what was brought `before`."""
    brought = sorted({*facts.get(BROUGHT, []), *before})
    return {**facts, BROUGHT: brought} if brought else facts


def read_run(index: Path) -> dict[str, Any]:
    """Return run.json of an index; nothing if it is missing or damaged."""
    try:
        run = json.loads((index / RUN_NAME).read_text())
    except (OSError, ValueError):
        return {}
    return run if isinstance(run, dict) else {}
