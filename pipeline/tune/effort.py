"""Effort of a tuning, counted in vectors and queries, so that a slow machine tries the same."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.pipeline.tune.report import TuneRequest
from indexmill.pipeline.tune.sample import check_k, sample_sizes


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
