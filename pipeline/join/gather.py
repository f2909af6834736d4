"""The result of a join from the results of its batches: the paper's k-MinDistSort, a block of queries at a time.

Neighbours are ordered by (distance, id), which leaves no ties, so parts may be merged in any order and in any tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from indexmill.builders.lists.scan import Nearest, nothing, united
from indexmill.pipeline.execution.local import Executor
from indexmill.pipeline.join.partials import Partials
from indexmill.pipeline.join.rows import as_nearest

#: Parts that one task merges.
FAN_IN = 8
#: Bytes of a block while two parts are merged, a query and neighbour: both parts, together, their order, the result.
_MERGE_BYTES, MERGE_BLOCK_BYTES = 92, 16 << 20


def gather(partials: Partials, executor: Executor, batches: int) -> Path:
    """Merge what was found in all batches, in a tree of tasks; returns the one part that is left.

    Raises
    ------
    FormatError, OSError
        If a part cannot be read or written.
    """
    level, parts = 0, [str(partials.part(number)) for number in range(batches)]
    while len(parts) > 1:
        groups = [parts[at : at + FAN_IN] for at in range(0, len(parts), FAN_IN)]
        tasks = [
            (str(partials.folder), partials.n_queries, partials.k, group, str(partials.merged(level, number)))
            for number, group in enumerate(groups)
        ]
        parts = list(executor.map(merge_parts, tasks, memory=MERGE_BLOCK_BYTES))
        level += 1
    return Path(parts[0])


def merge_parts(folder: str, n_queries: int, k: int, parts: Sequence[str], out: str) -> str:
    """Merge some parts into one file, unless it is there; returns its path. A task."""
    partials = Partials(Path(folder), n_queries, k)
    if not partials.has(Path(out)):
        partials.write(Path(out), _merged([Path(part) for part in parts], partials))
    return out


def _merged(parts: Sequence[Path], partials: Partials) -> Iterator[Nearest]:
    step = max(1, MERGE_BLOCK_BYTES // (_MERGE_BYTES * partials.k))
    for first in range(0, partials.n_queries, step):
        last = min(first + step, partials.n_queries)
        best = nothing(last - first, partials.k)
        for path in parts:
            with partials.open(path) as part:
                best = united([best, as_nearest(part.read(first, last))], partials.k)
        yield best


def read_blocks(partials: Partials, part: Path, step: int) -> Iterator[Nearest]:
    """Yield the neighbours that a part holds, `step` queries at a time."""
    with partials.open(part) as file:
        for first in range(0, partials.n_queries, step):
            yield as_nearest(file.read(first, min(first + step, partials.n_queries)))
