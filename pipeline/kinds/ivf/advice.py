"""When inverted lists suit: a join of many queries at once reads all vectors once."""

from __future__ import annotations

from indexmill.pipeline.cost.recommend import LAST_RESORT, Advice, Cost, Task, join_breakeven

#: Bytes of vectors that a build assigns a second.
_RATE_BYTES = 8e6
#: Memory of the smallest join.
_JOIN_BYTES = 64 << 20


def advice(task: Task) -> Advice:
    """Say what inverted lists with default parameters cost, and why they suit: not for single queries."""
    vectors = task.n_vectors * task.vector_bytes
    cost = Cost(_JOIN_BYTES, vectors, vectors / _RATE_BYTES)  # batches are cut for the memory there is
    because = (
        f"Inverted lists suit (--kind ivf, indexmill join): {task.at_once:,} queries read"
        f" {vectors:,} bytes of vectors once."
    )
    reads_less = task.at_once >= join_breakeven(task)
    place = 0 if reads_less else LAST_RESORT if task.at_once > 1 else None
    return Advice("inverted lists", cost, place, because)
