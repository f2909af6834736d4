"""The storage cost model of E2LSH on storage (Nakanishi et al., EDBT 2023, section 4): Equations 6 to 16.

The time of a query on a device, and the speed that a device needs for a query to take no longer than a target. The
model's only inputs are the computing time of a query and its number of reads, so it holds for every kind of index here.

All times are seconds, all of one query or one read, and means; rates are of reads a second. The paper's names are
``T_compute`` (`compute`), ``N_IO`` (`n_io`), ``T_request`` (`request`, the processor's time for a read) and ``T_read``
(`read`, the device's, one over its IOPS at the depth used).

Deviations: Equation 7 is for as many queries in flight as it takes, `interleaved_seconds` for a number of them. It is
for one core; with `threads` of them the processor's part is shared out, the device's is not (the paper's Figure 16
measures that).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

#: Share of the time in memory that is left of computing once the index is not in memory, where it would push other
#: things out of the caches: measured in section 4.5 of the paper.
COMPUTE_SHARE = 0.9

Bound = Literal["compute", "request", "device"]


@dataclass(frozen=True)
class Needed:
    """Requirements of a device and its interface.

    Attributes
    ----------
    iops : float
        Reads a second of the device.
    requests : float
        Reads a second that one core must be able to send, one over the time it may take for each; infinite if
        no time is left for them.
    """

    iops: float
    requests: float

    @property
    def request_seconds(self) -> float:
        """Processor time that a read may take."""
        return math.inf if self.requests == 0 else 1 / self.requests


def sync_seconds(compute: float, n_io: float, request: float, read: float) -> float:
    """Equation 6: one read after the other, ``T_sync = T_compute + N_IO (T_request + T_read)``."""
    return compute + n_io * (request + read)


def async_seconds(compute: float, n_io: float, request: float, read: float, threads: int = 1) -> float:
    """Equation 7: reads while others compute, ``T_async = max(T_compute + N_IO T_request, N_IO T_read)``."""
    return max((compute + n_io * request) / threads, n_io * read)


def interleaved_seconds(
    compute: float, n_io: float, request: float, read: float, threads: int, inflight: int
) -> float:
    """Equation 7 with few queries in flight on each thread, which may all wait for one side; else `async_seconds`.

    Processor and device are the two stations of a closed network (Lazowska et al., Quantitative System Performance,
    1984, chapter 6): of N queries the slower one is idle while all N are at the other, so it takes
    ``(1 - r^(N + 1)) / (1 - r^N)`` times as long as Equation 7 has it, r the faster one's time over the slower one's.
    Where both take equally long this is 1 + 1 / N. A thread's queries wait for that thread alone, so N is `inflight`.
    """
    processor, device = (compute + n_io * request) / threads, n_io * read
    slower, faster = max(processor, device), min(processor, device)
    ratio = faster / slower if slower > 0 else 0.0
    if ratio == 1:
        return slower * (1 + 1 / inflight)
    return slower * float((1 - ratio ** (inflight + 1)) / (1 - ratio**inflight))


def bound_by(compute: float, n_io: float, request: float, read: float, threads: int = 1) -> Bound:
    """Return the part of Equation 7 that decides: the device, or the larger half of the processor's time."""
    if n_io * read > (compute + n_io * request) / threads:
        return "device"
    return "request" if n_io * request > compute else "compute"


def sync_read_seconds(target: float, compute: float, n_io: float) -> float:
    """Equation 8: what ``T_request + T_read`` may take at most, synchronously; negative if no device can do it."""
    return (target - compute) / n_io


def sync_iops(target: float, compute: float, n_io: float) -> float:
    """Equation 9: IOPS at depth 1 at least, synchronously, with ``T_request`` left out beside the latency."""
    return _rate(n_io, target - compute)


def request_rate(target: float, compute: float, n_io: float) -> float:
    """Equation 10: ``1 / T_request`` at least, asynchronously."""
    return _rate(n_io, target - compute)


def read_rate(target: float, n_io: float) -> float:
    """Equation 11: ``1 / T_read`` at least, asynchronously."""
    return _rate(n_io, target)


def to_match(target: float, compute: float, n_io: float) -> Needed:
    """Equations 12 and 13: what a device needs to be as fast as another method, such as SRS, that takes `target`."""
    return Needed(read_rate(target, n_io), request_rate(target, compute, n_io))


def to_match_memory(memory: float, n_io: float, compute: float | None = None) -> Needed:
    """Equations 14 to 16: what a device needs to be as fast as the same search in memory, which takes `memory`.

    Parameters
    ----------
    compute : float, optional
        Where it is known (Equation 14); by default `COMPUTE_SHARE` of `memory`, so that ten times as many requests
        as reads are needed (Equation 16).
    """
    return to_match(memory, COMPUTE_SHARE * memory if compute is None else compute, n_io)


def _rate(n_io: float, seconds: float) -> float:
    """`n_io` in `seconds`; infinite where there is no time for any."""
    if n_io == 0:
        return 0.0
    return n_io / seconds if seconds > 0 else math.inf
