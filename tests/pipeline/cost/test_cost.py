"""The storage cost model: its equations lead to the paper's conclusions."""

from __future__ import annotations

import math

import pytest

from indexmill.pipeline.cost import model

#: Table 2, reads a second at depth 1 and 128, and Table 3, seconds of a core a read.
CSSD, ESSD, XLFDD, HDD = (7_200, 273_000), (27_600, 1_400_000), (132_300, 3_860_000), (210, 540)
IO_URING, SPDK, XLFDD_INTERFACE = 1e-6, 350e-9, 50e-9
#: SIFT: reads a query (Table 4), and a time in memory that takes 2 MIOPS, "a few" (section 4.5).
SIFT_READS = 347.5
IN_MEMORY = SIFT_READS / 2e6
#: A time of SRS that takes 300 kIOPS, "a few hundred" (section 4.4).
SRS = SIFT_READS / 300e3


def test_few_queries_in_flight_leave_the_slower_side_idle_now_and_then() -> None:
    balanced = (100e-6, 40, 1e-6, 3.5e-6)  # 140 us of either side
    assert model.interleaved_seconds(*balanced, threads=1, inflight=1) == pytest.approx(280e-6)
    assert model.interleaved_seconds(*balanced, threads=1, inflight=8) == pytest.approx(140e-6 * 9 / 8)
    uneven = (100e-6, 40, 1e-6, 7e-6)
    assert model.interleaved_seconds(*uneven, 1, 2) == pytest.approx(280e-6 * (1 - 0.5**3) / (1 - 0.5**2))
    assert model.interleaved_seconds(*uneven, 1, 64) == pytest.approx(model.async_seconds(*uneven))


def test_synchronous_reads_add_up_and_asynchronous_ones_hide_the_shorter_part() -> None:
    assert model.sync_seconds(100e-6, 40, 1e-6, 80e-6) == pytest.approx(100e-6 + 40 * 81e-6)
    assert model.async_seconds(100e-6, 40, 1e-6, 2e-6) == pytest.approx(140e-6)
    assert model.async_seconds(100e-6, 40, 1e-6, 5e-6) == pytest.approx(200e-6)
    assert model.async_seconds(100e-6, 40, 1e-6, 2e-6, threads=2) == pytest.approx(80e-6)
    assert model.async_seconds(100e-6, 40, 1e-6, 5e-6, threads=2) == pytest.approx(200e-6)


@pytest.mark.parametrize(("target", "compute", "n_io"), [(1e-3, 2e-4, 40), (174e-6, 157e-6, 347.5)])
def test_a_device_that_just_meets_the_requirements_takes_the_target_time(
    target: float, compute: float, n_io: float
) -> None:
    request, read = (
        1 / model.request_rate(target, compute, n_io),
        1 / model.read_rate(target, n_io),
    )
    assert model.async_seconds(compute, n_io, request, read) == pytest.approx(target)
    assert model.async_seconds(compute, n_io, 1.01 * request, read) > target
    assert model.async_seconds(compute, n_io, request, 1.01 * read) > target
    both = model.sync_read_seconds(target, compute, n_io)
    assert model.sync_seconds(compute, n_io, both / 4, 3 * both / 4) == pytest.approx(target)
    assert model.sync_iops(target, compute, n_io) == pytest.approx(1 / both)


def test_the_speed_of_srs_takes_one_cssd_read_asynchronously_and_no_disk() -> None:
    """Observation 3, and the sections around it."""
    needed = model.to_match(SRS, 0.1 * SRS, SIFT_READS)
    assert needed.iops == pytest.approx(300e3)
    assert CSSD[1] > 0.9 * needed.iops > 100 * HDD[1]
    assert model.sync_iops(SRS, 0.1 * SRS, SIFT_READS) > needed.iops > 40 * CSSD[0]
    assert needed.request_seconds == pytest.approx(3e-6)
    assert needed.request_seconds > max(IO_URING, SPDK, XLFDD_INTERFACE)


def test_the_speed_of_memory_takes_ten_times_as_many_requests_as_reads() -> None:
    """Equation 16 and Observation 4: a few MIOPS, and no more than tens of nanoseconds a request."""
    needed = model.to_match_memory(IN_MEMORY, SIFT_READS)
    assert needed.requests == pytest.approx(10 * SIFT_READS / IN_MEMORY)
    assert needed.iops == pytest.approx(2e6)
    assert CSSD[1] < needed.iops < XLFDD[1]
    assert needed.request_seconds == pytest.approx(50e-9)
    assert XLFDD_INTERFACE <= needed.request_seconds * 1.0001 < SPDK
    exact = model.to_match_memory(IN_MEMORY, SIFT_READS, compute=IN_MEMORY / 2)
    assert exact.requests == pytest.approx(2 * exact.iops)


@pytest.mark.parametrize(
    ("iops", "request_s", "bound"),
    [
        (CSSD[1], IO_URING, "device"),  # group 1
        (4 * CSSD[1], IO_URING, "request"),  # group 2: the overhead of io_uring limits
        (ESSD[1], IO_URING, "request"),
        (8 * ESSD[1], IO_URING, "request"),
        (4 * CSSD[1], SPDK, "device"),  # group 3: not enough IOPS
        (8 * ESSD[1], XLFDD_INTERFACE, "compute"),
        (12 * XLFDD[1], XLFDD_INTERFACE, "compute"),  # group 6
    ],
)
def test_what_binds_is_what_the_paper_found_to_limit_each_group(
    iops: float, request_s: float, bound: str
) -> None:
    compute = model.COMPUTE_SHARE * IN_MEMORY
    assert model.bound_by(compute, SIFT_READS, request_s, 1 / iops) == bound


def test_xlfdd_reaches_memory_and_io_uring_does_not() -> None:
    compute = model.COMPUTE_SHARE * IN_MEMORY
    assert model.async_seconds(compute, SIFT_READS, XLFDD_INTERFACE, 1 / XLFDD[1]) <= IN_MEMORY * 1.001
    assert model.async_seconds(compute, SIFT_READS, IO_URING, 1 / (8 * ESSD[1])) > 2 * IN_MEMORY


def test_no_time_is_left_for_reads_where_computing_takes_it_all() -> None:
    needed = model.to_match(1e-3, 2e-3, 10)
    assert needed.requests == math.inf
    assert needed.request_seconds == 0
    assert model.sync_read_seconds(1e-3, 2e-3, 10) < 0
    nothing = model.to_match(1e-3, 0.0, 0)
    assert (nothing.iops, nothing.requests, nothing.request_seconds) == (0, 0, math.inf)
