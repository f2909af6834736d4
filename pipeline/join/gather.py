"""The result of a join from the results of its batches: the paper's k-MinDistSort, a block of queries at a time.

Neighbours are ordered by (distance, id), which leaves no ties, so parts may be merged in any order and in any tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from indexmill.builders.lists.scan import Nearest, nothing, once, united
from indexmill.pipeline.execution.local import Executor
from indexmill.pipeline.join.partials import Partials
from indexmill.pipeline.join.rows import as_nearest
from indexmill.pipeline.join.spans import Span, uncovered

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


def join_pieces(partials: Partials, lists: int) -> None:
    """Merge the pieces of each batch whose `lists` are all searched into its part.

    Raises
    ------
    FormatError, OSError
        If a piece cannot be read or the part cannot be written.
    """
    for number, spans in partials.pieces().items():
        if uncovered(Span(number, 0, lists), spans):
            continue
        pieces, part = [partials.piece(span) for span in spans], partials.part(number)
        if not partials.has(part):
            partials.write(part, _merged(pieces, partials, repeated=True))
        for piece in pieces:
            piece.unlink()


def _merged(parts: Sequence[Path], partials: Partials, *, repeated: bool = False) -> Iterator[Nearest]:
    """Yield the neighbours of all parts, a block of queries at a time.

    Parameters
    ----------
    repeated : bool
        Whether two parts may hold the same vector, as pieces of a batch with copies do.
    """
    k, copies = partials.k, 1 + repeated
    step = max(1, MERGE_BLOCK_BYTES // (_MERGE_BYTES * k * copies))
    for first in range(0, partials.n_queries, step):
        last = min(first + step, partials.n_queries)
        best = nothing(last - first, k)
        for path in parts:
            with partials.open(path) as part:
                both = united([best, as_nearest(part.read(first, last))], copies * k)
                best = once(both, k) if repeated else both
        yield best


def read_blocks(partials: Partials, part: Path, step: int) -> Iterator[Nearest]:
    """Yield the neighbours that a part holds, `step` queries at a time."""
    with partials.open(part) as file:
        for first in range(0, partials.n_queries, step):
            yield as_nearest(file.read(first, min(first + step, partials.n_queries)))
