"""Variables of the cost model that a device profile gives: T_read, T_request and the latency of a lone read.

A measured profile is read off its measurements, a hand-written one off its model. Between the depths that were
measured, rates and times are interpolated, both on logarithmic scales.
"""

from __future__ import annotations

import math

import numpy as np

from indexmill.formats.device import DeviceProfile, Reads

#: Size of the reads that rates are of, unless all reads are sectors.
PAGE_BYTES, SECTOR_BYTES = 4096, 512
#: Reads of so many bytes, or more, show how many bytes a second a device moves.
LARGE_BYTES = 64 << 10


def iops_at(profile: DeviceProfile, depth: float, read_bytes: float = PAGE_BYTES) -> float:
    """Return the reads a second of `read_bytes` bytes, about, with `depth` of them in flight; inf without a limit."""
    depth = max(depth, 1.0)
    reads = _measurements(profile, read_bytes)
    limits = [math.inf if profile.model.iops is None else profile.model.iops]
    if reads:
        limits = [_between(depth, [(one.depth, one.iops) for one in reads])]
    elif (latency := latency_seconds(profile)) > 0:
        limits.append(depth / latency)
    if (bandwidth := bytes_a_second(profile)) is not None:
        limits.append(bandwidth / read_bytes)
    return min(limits)


def bytes_a_second(profile: DeviceProfile) -> float | None:
    """Return the bytes a second that the device moves at most; None where the profile does not know."""
    large = [one.mb_per_s for one in _all(profile) if one.bytes >= LARGE_BYTES]
    if large:
        return max(large) * 1e6
    return None if profile.model.mb_per_s is None else profile.model.mb_per_s * 1e6


def most_iops(profile: DeviceProfile, read_bytes: float = PAGE_BYTES) -> float:
    """Return the reads a second with as many in flight as the profile tells of; inf without a limit."""
    return iops_at(profile, math.inf, read_bytes)


def request_seconds(profile: DeviceProfile, depth: float) -> float | None:
    """Return the processor's time for a read with `depth` in flight on a thread; None where it is not known."""
    timed = [
        (one.depth / one.threads, one.cpu_us) for one in _measurements(profile, PAGE_BYTES) if one.cpu_us
    ]
    if timed:
        return _between(max(depth, 1.0), timed) / 1e6
    return None if profile.model.request_us is None else profile.model.request_us / 1e6


def latency_seconds(profile: DeviceProfile) -> float:
    """Return the mean latency of a page that is read alone."""
    shares, times = np.array(profile.model.latency_us).T
    return float(np.trapezoid(times, shares)) / 1e6


def round_seconds(profile: DeviceProfile, width: float) -> float:
    """Return the mean latency of the slowest of `width` pages that are read at once, at least one."""
    shares, times = np.array(profile.model.latency_us).T / np.array([[1], [1e6]])
    width = max(width, 1.0)
    slopes = np.diff(times) / np.diff(shares)
    # The integral of t(u) d(u^width), where t is linear between the points.
    starts = (times[:-1] - slopes * shares[:-1]) * np.diff(shares**width)
    rises = slopes * np.diff(shares ** (width + 1)) * width / (width + 1)
    return float((starts + rises).sum())


def sync_read_seconds(profile: DeviceProfile, request: float, read_bytes: float = PAGE_BYTES) -> float:
    """Return T_read at depth 1; a latency that was measured holds the request, which is not counted twice."""
    alone = 1 / iops_at(profile, 1, read_bytes)
    return max(0.0, alone - request) if _measurements(profile, PAGE_BYTES) else alone


def _all(profile: DeviceProfile) -> list[Reads]:
    return [] if profile.measured is None else profile.measured.reads


def _measurements(profile: DeviceProfile, read_bytes: float) -> list[Reads]:
    """The measurements whose reads are like those asked about: sectors where all are, else pages."""
    size = SECTOR_BYTES if read_bytes <= SECTOR_BYTES else PAGE_BYTES
    found = [one for one in _all(profile) if one.bytes == size]
    return found or [one for one in _all(profile) if one.bytes == PAGE_BYTES]


def _between(depth: float, points: list[tuple[float, float]]) -> float:
    """Interpolate at `depth`; beyond the points, the nearest one's value."""
    at = np.array(sorted(points))
    return float(np.exp(np.interp(np.log(depth), np.log(at[:, 0]), np.log(at[:, 1]))))
