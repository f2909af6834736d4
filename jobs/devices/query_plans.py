"""Queries a second of an index on devices, for `indexmill plan`: which devices, and the prediction in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from indexmill.formats.errors import ConfigError, IndexmillError
from indexmill.jobs.choices import meant

if TYPE_CHECKING:
    from rich.table import Table

    from indexmill.formats.device import DeviceProfile
    from indexmill.pipeline.cost.plan import DevicePlan, QueryPlan, Target
    from indexmill.pipeline.cost.query import QueryCost

#: Most rounds of a format that suits object storage: those of inverted lists with exact vectors beside codes.
FEW_ROUNDS = 2


def profiles(names: list[str], index: Path) -> tuple[list[tuple[str, DeviceProfile]], list[str]]:
    """Read the profiles called `names`; with none, the one kept for the device of `index` and all that are shipped.

    Returns
    -------
    list of (name, profile), list of str
        And what should be known of the kept one.

    Raises
    ------
    ConfigError
        If there is no such profile, naming those that are shipped.
    """
    from indexmill.pipeline.devices import profile_names

    if names:
        return [(name, profile(name, "--device")) for name in names], []
    kept, hints = _kept(index)
    return [*kept, *((name, profile(name, "--device")) for name in profile_names())], hints


def profile(name: str, flag: str) -> DeviceProfile:
    """Read a profile: one that is shipped, by its name, or a file.

    Raises
    ------
    ConfigError
        If there is no such profile, naming those that are shipped.
    """
    from indexmill.formats.device import read_profile
    from indexmill.pipeline.devices import profile_names, profile_path

    path, shipped = profile_path(name), profile_names()
    if not path.is_file():
        raise ConfigError(
            f"{flag}: expected a file that `indexmill device` wrote, or one of {', '.join(shipped)}, got {name!r}, "
            f"which is neither{meant(name, shipped)}"
        )
    return read_profile(path)


def _kept(index: Path) -> tuple[list[tuple[str, DeviceProfile]], list[str]]:
    from indexmill.jobs.devices.profiles import device_of, find_profile
    from indexmill.pipeline.cost.device import request_seconds

    try:
        found = find_profile(index)
    except IndexmillError as error:
        return [], [f"device: {error}"]
    if found is None:
        return [], [f"device: not measured yet; run: indexmill device {index}"]
    if request_seconds(found, 1) is None:
        return [], [
            f"device: measured before profiles had the processor time of a read; run: indexmill device {index}"
        ]
    return [(device_of(index), found)], []


def facts(plan: QueryPlan) -> list[str]:
    """Return the cost of a query, in words."""
    lines = [_query("a query", plan.cost)]
    if plan.stored_cost is not None and plan.stored_cost != plan.cost:
        lines.append(_query("at a URL", plan.stored_cost))
    lines += [
        f"a search    {plan.threads} {'thread' if plan.threads == 1 else 'threads'}, "
        f"{plan.inflight} queries interleaved on each",
    ]
    return lines if plan.target is None else [*lines, _needs(plan.target)]


def _query(what: str, cost: QueryCost) -> str:
    return (
        f"{what:<12}{cost.compute_s * 1e6:,.0f} us of processor time, {cost.reads:,.1f} reads of "
        f"{cost.read_bytes:,.0f} bytes in {cost.rounds:,.1f} rounds; means of {cost.queries:,}"
    )


def far_facts(plan: QueryPlan) -> list[str]:
    """Return what searches come to on the devices whose reads have a price, in words."""
    cost = plan.stored_cost
    if cost is None:
        return []
    return [line for one in plan.devices if one.usd_per_thousand is not None for line in _far(one, cost)]


def _far(device: DevicePlan, cost: QueryCost) -> list[str]:
    """Return what reads by paid requests come to, and which format needs fewer rounds of them."""
    reads = 1000 * cost.reads
    lines = [
        f"on {device.device:<10}1,000 queries: {reads:,.0f} requests at most, {reads * cost.read_bytes / 1e6:,.0f} MB, "
        f"{cost.rounds:,.1f} rounds and {device.query_us / 1e3:,.0f} ms a query, ${device.usd_per_thousand:,.4f}"
    ]
    return [*lines, " " * 12 + _suits(cost)]


def _suits(cost: QueryCost) -> str:
    """Say whether a format suits object storage, by the rounds that were counted."""
    without_ids = cost.rounds - cost.id_rounds
    if cost.rounds <= FEW_ROUNDS:
        return f"this format suits it: {cost.rounds:,.1f} rounds of requests a query"
    if without_ids <= FEW_ROUNDS:
        return (
            f"this format suits it with ids in memory (--ids memory): then {without_ids:,.1f} rounds of requests a "
            f"query, not {cost.rounds:,.1f}"
        )
    ids = f", and {cost.id_rounds:,.1f} for ids, which --ids memory saves" if cost.id_rounds else ""
    return (
        f"rounds decide there: a graph takes one a hop, here {without_ids:,.1f}{ids}; inverted lists (--kind ivf) take "
        "one, and one more with exact vectors beside codes"
    )


def _needs(target: Target) -> str:
    words = f"the target  {_rate(target.qps)} queries/s: {target.iops:,.0f} reads/s"
    if target.request_us is not None and target.request_us <= 0:
        return f"{words}, but computing alone takes all processor time: no device reaches it"
    if target.request_us is not None:
        words += f", each {target.request_us:,.2f} us of processor time at most"
    return words + ("" if target.sync_iops is None else f"; one by one {target.sync_iops:,.0f} reads/s")


def device_table(plan: QueryPlan) -> Table:
    """Make the table: the speed in memory and what a device needs to match it, then the devices."""
    from indexmill.jobs.console.tables import add_row, plain_table

    headings = ["device", "queries/s", "one by one", "binds", "reads/s", "us a read", "query us"]
    table = plain_table("", headings)
    allowed = "-" if plan.needed_request_us is None else f"{plan.needed_request_us:.2f}"
    alone = f"{plan.cost.compute_s * 1e6:,.0f}"
    needs = [f"{plan.memory_qps:,.0f}", "-", "CPU", f"{plan.needed_iops:,.0f}", allowed, alone]
    add_row(table, ["in memory; needs", *needs])
    for one in plan.devices:
        iops = "-" if one.iops is None else f"{one.iops:,.0f}"
        cells = [one.device, _rate(one.qps), _rate(one.sync_qps), one.binds, iops, f"{one.request_us:.2f}"]
        add_row(table, [*cells, f"{one.query_us:,.0f}"])
    return table


def _rate(qps: float) -> str:
    return f"{qps:,.0f}" if qps >= 100 else f"{qps:,.1f}"
