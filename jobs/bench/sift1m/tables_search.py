"""Tables of the parts that search: throughput, page reads, latency, CPU time, the device's limit and memory."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.cells import figure, number, setting, share, table, value
from indexmill.jobs.bench.common.curves import key
from indexmill.jobs.bench.sift1m.targets import MIB


def qps(part: dict[str, Any], images: str) -> str:
    """Queries a second of all series, ratios, and the share of the disk."""
    keys = [key(recall) for recall in part["recalls"]]
    threads, many, used = part["threads"], part["many_threads"], part["setting"]
    titles = {
        "diskann": f"DiskANN, {threads} threads",
        "indexmill": f"indexmill, {threads} threads x {used['inflight']} queries",
        "indexmill_single": f"indexmill, {threads} threads x 1 query",
        "diskann_many": f"DiskANN, {many} threads",
    }
    rows = [[title, *(figure(part["qps"][name][at]) for at in keys)] for name, title in titles.items()]
    ratios = {
        "ratio": f"indexmill / DiskANN, {threads} threads each",
        "ratio_single": "the same, one query a thread on both sides",
        "ratio_many": f"the same, {many} queries in flight on both sides",
    }
    rows += [[title, *(figure(part[name][at], 2, "x") for at in keys)] for name, title in ratios.items()]
    rows.append(["page reads, indexmill / DiskANN", *(value(part["pages_ratio"][at], 2, "x") for at in keys)])
    rows.append(["share of the disk's reads a second", *(_share(part["disk_share"][at]) for at in keys)])
    text = (
        f"Order {part['order']}, {setting(used)}; chosen on the first half of the queries among"
        f" {len(part['grid'])} settings, all in the record. DiskANN: beam width {part['diskann_width']}."
        f" Medians of {len(part['rounds'])} rounds with the least and the greatest; ratios are of the same"
        f" round. The disk gave {figure(part['disk'])} reads a second in the same rounds"
        f" ({_fio(part['rounds'][0]['disk'])})."
    )
    picture = f"![Page reads and queries a second against recall@10]({images}/sift1m.svg)"
    return f"### Queries a second\n\n{picture}\n\n{text}\n\n" + table(("", *_at(keys)), rows, "lrrr")


def reads(part: dict[str, Any], images: str) -> str:
    """Page reads by order, policy and entry."""
    keys = [key(recall) for recall in part["recalls"]]
    rows = [
        (
            row["order"],
            row["policy"],
            row["entry"],
            *(figure(row["pages_read"][at], 1) for at in keys),
            *_at_95(row),
        )
        for row in part["settings"]
    ]
    theirs = part["diskann"]
    rows.append(("DiskANN", "beam", "medoid", *(figure(theirs["pages_read"][at], 1) for at in keys), "", ""))
    order, policy, entry = part["headline"]
    ratios = [
        [f"{order}, {policy}, {entry} / DiskANN", *(figure(part["to_diskann"][at], 3, "x") for at in keys)],
        ["page search from the navigation graph, star / identity"]
        + [figure(part["star_to_identity"][at], 3, "x") for at in keys],
    ]
    text = (
        "Pages a query, means over the second half of the queries. `pipeline` has up to 8 reads in flight,"
        f" the others 4, as DiskANN. DiskANN's reads are {theirs['counted']}. Hops and bytes used are those"
        " at 0.95. `previous` starts at the results of the query before it, one query at a time; these"
        " queries are in no order that would help it."
    )
    names = ("order", "policy", "entry", *_at(keys), "hops", "bytes used / read")
    return f"### Page reads\n\n{text}\n\n{table(('', *_at(keys)), ratios, 'lrrr')}\n\n{table(names, rows, 'lllrrrrr')}"


def latency(part: dict[str, Any], images: str) -> str:
    """Mean and P99 of both sides, with one query at a time."""
    keys = [key(recall) for recall in part["recalls"]]
    sides = {
        "diskann": "DiskANN, a call of `search`",
        "indexmill": "indexmill, a call of `Index.search`",
        "counter": "indexmill, its own counter `latency_us`",
    }
    rows: list[list[str]] = []
    for statistic, name in (("mean", "mean"), ("p99", "P99")):
        for side, title in sides.items():
            rows.append([name, title, *(figure(part["us"][side][at][statistic]) for at in keys)])
        for which, title in (("ratio", "ratio of calls"), ("ratio_by_counter", "ratio by the counter")):
            rows.append([name, title, *(figure(part[which][at][statistic], 2, "x") for at in keys)])
    text = (
        "Microseconds, one query at a time: each call is timed from Python in a process of its own, one"
        f" thread. {part['rounds_measured']} rounds in turns, intervals over queries. Order {part['order']},"
        f" {setting(part['setting'])}; chosen on the first half of the queries among {len(part['grid'])}"
        f" settings. DiskANN: beam width {part['diskann_width']}. The counter ends before the answers' ids"
        " are looked up and turned into arrays; diskannpy has none, and nothing is subtracted from either"
        " side's calls."
    )
    return f"### Latency\n\n{text}\n\n" + table(("", "", *_at(keys)), rows, "llrrr")


def cpu(part: dict[str, Any], images: str) -> str:
    """CPU time of both sides and the profile of ours."""
    keys = [key(recall) for recall in part["recalls"]]
    rows = [[name, *(figure(part["cpu_us"][name][at]) for at in keys)] for name in ("indexmill", "diskann")]
    rows.append(["ratio", *(figure(part["ratio"][at], 2, "x") for at in keys)])
    text = (
        "Microseconds a query, user and system time of the searching process (getrusage around the"
        f" searches), {part['threads']} threads, {len(part['rounds'])} rounds. Order {part['order']},"
        f" {setting(part['setting'])}."
    )
    return f"### CPU time\n\n{text}\n\n{table(('', *_at(keys)), rows, 'lrrr')}\n\n{_profile(part)}"


def _profile(part: dict[str, Any]) -> str:
    found = part["profile"]
    if "why_not" in found:
        return f"No profile: {found['why_not']}."
    total = part["cpu_us"]["indexmill"]["0.95"]
    known = None if total is None else total["value"]
    shares = sorted(found["shares"].items(), key=lambda item: -item[1])
    rows = [(name, f"{part:.1%}", number(None if known is None else part * known)) for name, part in shares]
    text = (
        f"Where it goes, at L = {found['L']} (recall about 0.95): {found['samples']:,} samples of `perf` by"
        " the source file of the innermost function, inlined ones included. Code distances in the navigation"
        " graph count as code distances. The kernel's share is system calls, interrupts and the block layer."
    )
    return f"{text}\n\n" + table(("", "share", "us a query at 0.95"), rows, "lrr")


def device(part: dict[str, Any], images: str) -> str:
    """Search and fio with as many reads in flight."""
    rows = [
        (
            i, number(done["reads_per_s"]), number(done["in_flight"]), number(done["fio"]["reads_per_s"]),
            share(done["share"]), number(done["fio_limit"]["reads_per_s"]), share(done["share_of_limit"]),
            number(done["cores_busy"], 2),
            number(done["cores_idle"], 2),
        )
        for i, done in enumerate(part["rounds"], 1)
    ]  # fmt: skip
    first = part["rounds"][0]
    text = (
        f"A search that computes little for each page: order {part['order']}, L = {part['L']},"
        f" {setting(part['setting'])}, the fastest of {len(part['grid'])} on the first half of the queries."
        " After each run fio reads the same file: once with the mean number of reads that the kernel had in"
        " flight during the search, once with the most that the search may have"
        f" ({first['fio_limit']['depth']}). Median share: {_share(part['share'])} of the former,"
        f" {_share(part['share_of_limit'])} of the latter. Cores busy are the"
        " searching process's; idle ones, of all processes, tell whether the CPU was the limit instead."
    )
    names = (
        "round",
        "search, reads/s",
        "in flight",
        "fio, as many",
        "share",
        "fio, the most",
        "share",
        "cores busy",
        "cores idle",
    )
    return f"### At the device's limit\n\n{text}\n\n" + table(names, rows, "lrrrrrrrr")


def memory(part: dict[str, Any], images: str) -> str:
    """Resident memory of a C program."""
    rows = [
        ("peak resident memory (VmHWM)", number(part["peak_bytes"] / MIB, 1)),
        ("of which the index holds between searches", number(part["held_bytes"] / MIB, 1)),
        ("codes + entry structures + 64 MiB", number(part["allowed_bytes"] / MIB, 1)),
        ("codes", number(part["codes_bytes"] / MIB, 1)),
        ("entry vertices, centroids and navigation graph", number(part["entry_bytes"] / MIB, 1)),
    ]
    text = (
        f"`{' '.join(part['command'])}`, the C example, searching {part['n_queries']:,} queries with"
        f" {part['threads']} threads; queries and results included."
    )
    return f"### Memory\n\n{text}\n\n" + table(("", "MiB"), rows, "lr")


def _at(keys: list[str]) -> list[str]:
    return [f"at {at}" for at in keys]


def _at_95(row: dict[str, Any]) -> tuple[str, str]:
    found = row["at_95"]
    return number(found["hops"], 1), share(found["bytes_used"], found["bytes_read"])


def _share(found: dict[str, Any] | None) -> str:
    return share(None if found is None else found["value"])


def _fio(disk: dict[str, Any]) -> str:
    return f"{disk['method']}, {disk['depth']} in flight, {disk['jobs']} jobs, {disk['seconds']} s each"
