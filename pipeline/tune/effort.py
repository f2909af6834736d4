"""Effort of a tuning, counted in vectors and queries, so that a slow machine tries the same, and in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from indexmill.pipeline.tune.request import TuneRequest
from indexmill.pipeline.tune.sample import LEAST_SAMPLE, RATIO, check_k, sample_sizes

#: Vectors of the largest sample at least.
LEAST_LARGEST = RATIO * LEAST_SAMPLE


@dataclass(frozen=True)
class Effort:
    """Effort of a tuning: most vectors of the largest sample, and most queries."""

    sample: int
    queries: int


EFFORTS = {"low": Effort(25_000, 1_000), "normal": Effort(100_000, 2_000), "high": Effort(400_000, 2_000)}


def more_effort(effort: str, sizes: tuple[int, ...], most: int) -> str:
    """Return the advice to make more effort, empty if the input of `most` vectors or the memory limits the samples."""
    is_limit = sizes[-1] == EFFORTS[effort].sample < most
    return ", or --effort high for larger samples" if is_limit and effort != "high" else ""


def samples_of(request: TuneRequest, n: int, most: int) -> tuple[tuple[int, ...], int]:
    """Return the sizes of the samples of `n` vectors, of at most `most`, and how many queries.

    Raises
    ------
    InputError
        If there are too few queries, or too many neighbours for these samples.
    """
    given = None if request.queries is None else len(request.queries)
    sizes, n_queries = sample_sizes(n, most, EFFORTS[request.effort].queries, given)
    check_k(request.k, sizes, more_effort(request.effort, sizes, n - n_queries))
    return sizes, n_queries


def samples_within(
    request: TuneRequest, n: int, need: Callable[[int, int], int]
) -> tuple[tuple[int, ...], int, int]:
    """Return the sizes of the samples that the job's memory holds, how many queries, and the workers of the trials.

    There are as many workers, at most the job's, as memory then holds; results do not depend on them.

    Parameters
    ----------
    need : callable
        Returns the memory of trials on so many vectors with so many workers; it grows with both. That of
        `LEAST_LARGEST` vectors with one worker was checked.

    Raises
    ------
    InputError
        As `samples_of`.
    """
    memory, workers = request.spec.memory, request.spec.workers
    size = min(EFFORTS[request.effort].sample, n)
    while need(size, 1) > memory and size > LEAST_LARGEST:
        size = max(LEAST_LARGEST, size - size // 8)
    while need(size, workers) > memory and workers > 1:
        workers -= 1
    return *samples_of(request, n, size), workers
