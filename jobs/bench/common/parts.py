"""The parts of a benchmark: which ones are run, and what becomes of one that fails."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from indexmill.jobs.bench.common import record

Space = TypeVar("Space")


def names(parts: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """Return the type of an option that names parts, ``a,b``: a list of them in the order of `parts`."""

    def parse(text: str) -> list[str]:
        wanted = [part for part in text.split(",") if part]
        unknown = ", ".join(sorted(set(wanted) - set(parts)))
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown part {unknown}; choose from {', '.join(parts)}")
        return [part for part in parts if part in wanted]

    return parse


def run_all(
    parts: Mapping[str, Callable[[Space], dict[str, Any]]],
    chosen: Sequence[str],
    space: Space,
    found: dict[str, Any],
    results: Path,
) -> list[str]:
    """Measure the `chosen` parts and add each to the record `found` and its file; return those that failed."""
    return [part for part in chosen if not _run(part, parts[part], space, found, results)]


def _run(
    part: str, measure: Callable[[Space], dict[str, Any]], space: Space, found: dict[str, Any], results: Path
) -> bool:
    began = time.perf_counter()
    print(f"{part} ...", file=sys.stderr, flush=True)
    try:
        found["parts"][part] = record.start_part() | measure(space)
    except Exception:
        traceback.print_exc()
        return False
    seconds = round(time.perf_counter() - began, 1)
    found["parts"][part]["part_s"] = seconds
    record.save(found, results)
    print(f"{part}: {seconds} s", file=sys.stderr, flush=True)
    return True


def stop_after(failed: Sequence[str]) -> None:
    """End the program with an error if a part failed."""
    if failed:
        sys.exit(
            f"error: {', '.join(failed)}: not measured, see above; repeat with --parts {','.join(failed)}"
        )
