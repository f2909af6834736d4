"""Compactions of one index with other workers and memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.indexes.builds import data_files
from tests.support.processes.memory import least_budget

import indexmill


def assert_same_bytes(index: Path) -> None:
    """Check that a compaction writes the same bytes for 1 and 2 workers, with little memory and much."""
    least = least_budget(partial(indexmill.compact, index, out=index.with_name("none"), workers=2))
    written = []
    for i, (workers, memory) in enumerate([(1, "8GiB"), (2, "8GiB"), (2, least)]):
        out = index.with_name(f"out-{i}")
        indexmill.compact(index, out=out, workers=workers, memory=memory)
        written.append(data_files(out))
    assert written[0] == written[1] == written[2]
