"""Seconds of the partition builder: its steps are timed on a few thousand rows, and extrapolated.

In leaves, and when lists are chosen, a copy or a vertex costs the same in any set, except that the caches hold fewer of
the rows of a large one. Carving grows slowly: a vector has more leaders, but most of its time goes to its copies.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.partition.build import COPIES, Step, build_partitioned
from indexmill.builders.partition.carve import LEAF_MOST
from indexmill.builders.partition.choose import BLOCK
from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.mill.clocks import Tries

#: Vectors of the first try; tries grow while the next one is expected to end in time.
_FIRST = 64
#: Distances of a vertex, for each of its edges, to rows that come from memory once the caches do not hold all: measured
#: on 65,536 and 250,000 vectors, with 32 and 64 edges.
_FETCHED_AN_EDGE = 10
#: Power of the vectors that carving one of them grows by, measured from 16,384 to 10 million.
_CARVING_GROWTH = 0.2
#: Share of carving that finds the first leaders.
_FIRST_LEADERS = 0.1
#: Distances to rows from memory that a vector costs region by region, in addition to what follows.
_WALKS = {"regions": 20, "assign": 10, "leaves": 80, "choose": 250, "unite": 100, "link": 65}
#: Share of choosing that is the choice of lists before edges of the other direction are added; what meeting adds to it.
_CHOOSING, _MEETING = 0.6, 0.2


class PartitionRates(NamedTuple):
    """Seconds of each of `workers` threads that work side by side, in a set of `size` vectors.

    They are those of a vector, and `comparing` of a copy of one. All threads are timed together: products keep units of
    the processor busy that two of its threads may share, so that they gain less from a second one than distances do.
    `fetched` are the distances of a vertex to rows that come from memory in a large set.
    """

    workers: int
    size: int
    carving: float
    comparing: float
    choosing: float
    fetched: int


def partition_rates(rows: NDArray[Any], p: Parameters, workers: int, deadline: float) -> PartitionRates:
    """Build graphs of more and more of the `rows`, as the builder takes them, and return the rates of the last."""
    parameters = VamanaParameters(p.max_degree, p.build_list_size, p.alpha, saturate=p.saturate)
    tries, size = Tries(deadline), min(_FIRST, len(rows))
    rates = _try(rows[:size], parameters, p.seed, workers)
    while size < len(rows) and tries.leave_time(growth=2):
        size = min(2 * size, len(rows))
        rates = _try(rows[:size], parameters, p.seed, workers)
    return rates


def warm_partition(rows: NDArray[Any]) -> None:
    """Compile the kernels that will be timed; `rows` are some of those they will be timed on."""
    _try(np.resize(rows, (LEAF_MOST + 1, rows.shape[1])), VamanaParameters(4, 8, 1.2), 0, 1)


def partition_seconds(rates: PartitionRates, n: int, waiting: float) -> float:
    """Return the seconds of a vertex in a graph of `n`, on all threads.

    Parameters
    ----------
    waiting : float
        Seconds that a row from memory takes longer than one that the caches hold.
    """
    work = _carving(rates, n) + COPIES * rates.comparing + rates.choosing + rates.fetched * waiting
    return work / rates.workers


def region_seconds(rates: PartitionRates, n: int, waiting: float, carvers: float) -> dict[str, float]:
    """Return the seconds of the stages that replace *build* region by region in a graph of `n`, without file I/O.

    Parameters
    ----------
    waiting : float
        Seconds of a distance to a row that comes from memory.
    carvers : float
        Threads' worth of work done together in *carve*, whose tasks are narrow.
    """
    carving = _carving(rates, n)
    each = (rates.choosing + rates.fetched * waiting) / rates.workers
    work = {
        "carve": _FIRST_LEADERS * carving / carvers,
        "leaves": ((1 - _FIRST_LEADERS) * carving + COPIES * rates.comparing) / rates.workers
        + _MEETING * each,
        "choose": _CHOOSING * each,
        "unite": (1 - _CHOOSING) * each,
    }
    stages = {*work, *_WALKS}
    return {name: n * (work.get(name, 0.0) + _WALKS.get(name, 0) * waiting) for name in stages}


def _carving(rates: PartitionRates, n: int) -> float:
    growth: float = (n / rates.size) ** _CARVING_GROWTH
    return rates.carving * growth


def _try(given: NDArray[Any], parameters: VamanaParameters, seed: int, workers: int) -> PartitionRates:
    # writable, as a build has them and kernels are compiled for, whatever the source gave
    rows = np.array(given)
    ends: dict[Step, float] = {}
    copies = 1

    def ended(step: Step, n_copies: int) -> None:
        nonlocal copies
        ends[step], copies = time.perf_counter(), n_copies

    begun = time.perf_counter()
    build_partitioned(rows, 0, parameters, seed=seed, threads=workers, ended=ended)
    n = len(rows)
    choosing = min(workers, -(-n // BLOCK))  # threads that have vertices
    return PartitionRates(
        workers=workers,
        size=n,
        carving=workers * (ends["carve"] - begun) / n,
        comparing=workers * (ends["compare"] - ends["carve"]) / copies,
        choosing=choosing * (ends["choose"] - ends["compare"]) / n,
        fetched=_FETCHED_AN_EDGE * parameters.max_degree,
    )
