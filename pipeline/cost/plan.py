"""Queries a second of an index on a device, and what limits them: the cost model applied to measured queries."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from indexmill.formats.device import DeviceProfile
from indexmill.formats.errors import ConfigError
from indexmill.pipeline.cost import device, model
from indexmill.pipeline.cost.query import QueryCost

#: The limits of a search, in words.
BINDS = {"compute": "CPU", "request": "request overhead", "device": "device IOPS"}
#: Limits of the device: too few reads in flight to use all of it, and the bytes that it moves a second.
TOO_FEW, BANDWIDTH = "reads in flight", "bandwidth"
#: Share of the most reads a second that counts as all of them.
_NEARLY = 0.9


@dataclass(frozen=True)
class DevicePlan:
    """The prediction for one device.

    Attributes
    ----------
    device : str
    sync_qps, qps : float
        Queries a second with one read after the other (Equation 6), and with reads while others compute (7, for as
        many queries as are in flight).
    binds : str
        One of `BINDS`, `TOO_FEW` and `BANDWIDTH`.
    depth : float
        Reads in flight of all threads together, about, as long as enough queries are.
    iops : float or None
        Reads a second of the device at this depth and size; None without a limit.
    request_us : float
        Processor time of a read.
    query_us : float
        Of one query alone: its rounds of reads one after the other, each as long as its slowest read, and what it
        computes.
    usd_per_thousand : float or None
        Price of the reads of a thousand queries, in dollars; None where reads have none.
    """

    device: str
    sync_qps: float
    qps: float
    binds: str
    depth: float
    iops: float | None
    request_us: float
    query_us: float
    usd_per_thousand: float | None = None


@dataclass(frozen=True)
class Target:
    """Requirements of a wanted rate of queries: of a device, by all threads together, with enough queries in flight.

    Attributes
    ----------
    qps : float
    iops, request_us : float or None
        Reads a second, and processor time that one may take (Equations 10 to 13); no time is left where it is 0. None
        without reads.
    sync_iops : float or None
        Reads a second if every thread waits for each (Equation 9); None if no device can do it.
    """

    qps: float
    iops: float
    request_us: float | None
    sync_iops: float | None


@dataclass(frozen=True)
class QueryPlan:
    """Queries a second on several devices, beside those in memory.

    Attributes
    ----------
    cost : QueryCost
        Of searches of an index of this machine; of one at a URL, if all devices are object storage.
    stored_cost : QueryCost or None
        Of searches of an index at a URL, by which object storage is planned; None without such a device.
    threads, inflight : int
    memory_qps : float
    needed_iops, needed_request_us : float
        What a device needs for the speed of memory: reads a second, and processor time of a read (Equations 15, 16).
    target : Target or None
    devices : list of DevicePlan
    """

    cost: QueryCost
    threads: int
    inflight: int
    memory_qps: float
    needed_iops: float
    needed_request_us: float | None
    target: Target | None
    devices: list[DevicePlan]
    stored_cost: QueryCost | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return asdict(self)


def plan_queries(
    query: QueryCost,
    profiles: list[tuple[str, DeviceProfile]],
    threads: int,
    inflight: int,
    target_qps: float | None = None,
    stored: QueryCost | None = None,
) -> QueryPlan:
    """Predict a search with `threads` that interleave `inflight` queries each, on devices by their names.

    With `target_qps`, also say what a device needs for so many queries a second. `stored` is the cost of a query of an
    index at a URL; by default it is that of a local one.

    Raises
    ------
    ConfigError
        If a profile does not say how much processor time a read takes.
    """
    needed = model.to_match_memory(query.compute_s, query.reads)
    return QueryPlan(
        query,
        threads,
        inflight,
        memory_qps=threads / query.compute_s,
        needed_iops=threads * needed.iops,
        needed_request_us=_request_us(needed),
        target=None if target_qps is None else plan_target(query, threads, target_qps),
        devices=[
            plan_device(
                name, stored if stored and is_object_storage(profile) else query, profile, threads, inflight
            )
            for name, profile in profiles
        ],
        stored_cost=stored,
    )


def is_object_storage(profile: DeviceProfile) -> bool:
    """Return whether reads of a device are requests that have a price, be it 0."""
    return profile.model.usd_per_million is not None


def plan_target(query: QueryCost, threads: int, qps: float) -> Target:
    """Return what a device must reach for `qps` queries a second on `threads`."""
    seconds = threads / qps
    needed = model.to_match(seconds, query.compute_s, query.reads)
    alone = model.sync_iops(seconds, query.compute_s, query.reads)
    return Target(
        qps=qps,
        iops=threads * needed.iops,
        request_us=_request_us(needed),
        sync_iops=None if math.isinf(alone) else threads * alone,
    )


def _request_us(needed: model.Needed) -> float | None:
    """Microseconds of processor time that a read may take; None without a limit."""
    return None if math.isinf(needed.request_seconds) else 1e6 * needed.request_seconds


def plan_device(
    name: str, query: QueryCost, profile: DeviceProfile, threads: int, inflight: int
) -> DevicePlan:
    """Predict one device.

    The reads of a round are in flight together, of each query that a thread interleaves. With so many the device's rate
    is read off the profile; the paper assumes that they are enough for all the device has.

    Raises
    ------
    ConfigError
        As `plan_queries`.
    """
    n_io, compute = query.reads, query.compute_s
    each_thread = inflight * max(query.width, 1.0)
    depth = threads * each_thread
    request = _request(profile, each_thread)
    iops = device.iops_at(profile, depth, query.read_bytes)
    read = 1 / iops
    alone = _request(profile, 1)
    sync_read = device.sync_read_seconds(profile, alone, query.read_bytes)
    waiting = max(query.rounds * device.round_seconds(profile, query.width), n_io * read)
    price = profile.model.usd_per_million
    whole = compute + n_io * request + waiting
    seconds = model.interleaved_seconds(compute, n_io, request, read, threads, inflight)
    return DevicePlan(
        device=name,
        sync_qps=threads / model.sync_seconds(compute, n_io, alone, sync_read),
        qps=min(1 / seconds, threads * inflight / whole),
        binds=_binds(query, profile, request, iops, threads),
        depth=depth,
        iops=None if math.isinf(iops) else iops,
        request_us=1e6 * request,
        query_us=1e6 * whole,
        usd_per_thousand=None if price is None else 1000 * n_io * price / 1e6,
    )


def _request(profile: DeviceProfile, depth: float) -> float:
    seconds = device.request_seconds(profile, depth)
    if seconds is None:
        raise ConfigError(
            f"device {profile.name!r}: its profile does not say how much processor time a read takes; measure it with "
            "`indexmill device`, or give model.request_us"
        )
    return seconds


def _binds(query: QueryCost, profile: DeviceProfile, request: float, iops: float, threads: int) -> str:
    bound = model.bound_by(query.compute_s, query.reads, request, 1 / iops, threads)
    if bound != "device":
        return BINDS[bound]
    most = device.most_iops(profile, query.read_bytes)
    if iops < _NEARLY * most:
        return TOO_FEW
    moved = device.bytes_a_second(profile)
    is_full = moved is not None and iops * query.read_bytes > _NEARLY * moved
    return BANDWIDTH if is_full else BINDS[bound]
