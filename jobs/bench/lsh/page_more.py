"""Further tables of the benchmark of hash tables: the cost model, sizes of blocks, growth, and other kinds of index."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from indexmill.jobs.bench.common.cells import NOT_REACHED, figure, number, table
from indexmill.jobs.bench.lsh.tune import KS

MB = 1e6
_KINDS = {
    "graph": "graph",
    "lsh": "hash tables",
    "ivf": "inverted lists, joined",
    "ivf-search": "inverted lists, query by query",
}


def sections(parts: dict[str, Any]) -> list[str]:
    """Return a section for each part that was measured."""
    return [draw(parts[name]) for name, draw in _SECTIONS.items() if name in parts]


def _storage(part: dict[str, Any]) -> str:
    rows = []
    for k in KS:
        at = part.get(f"k{k}")
        if at is None:
            rows.append((k, NOT_REACHED, *[""] * 10))
            continue

        def middle(name: str, at: dict[str, Any] = at) -> float:
            return median(done[name] for done in at["rounds"])

        disk, one = (
            median(done[name]["reads_per_s"] for done in at["rounds"]) for name in ("disk", "disk_one")
        )
        rows.append(
            (
                k, at["index"], number(middle("reads")), number(middle("memory_us")), f"{middle('request_us'):.2f}",
                number(disk), number(one), number(middle("model_us")), number(middle("storage_us")),
                figure(at["to_model"], 2),
                number(middle("sync_us")), figure(at["async_to_sync"], 1, "x"),
            )
        )  # fmt: skip
    names = (
        "k", "index", "reads", "us in memory", "us of CPU a read", f"reads/s at {part['depth']}", "at 1",
        "us by Equation 7", "us measured", "share", "us by mmap, cold", "io_uring / mmap",
    )  # fmt: skip
    text = (
        "sift1m, one thread. Equation 7: the larger of T_compute (in memory) + reads x T_request, and reads / the"
        " disk's reads a second. mmap reads one page after the other, opened anew with a cold page cache for every few"
        " queries, so few that they meet few pages twice."
    )
    return f"### From the disk\n\n{text}\n\n" + table(names, rows, "rl" + "r" * 10)


def _simulated(part: dict[str, Any]) -> str:
    rows = [
        (k, number(median(done["memory_us"] for done in at["rounds"])),
         number(median(done["device_us"] for done in at["rounds"])), figure(at["ratio"], 3, "x"))
        for k in KS if (at := part.get(f"k{k}"))
    ]  # fmt: skip
    text = (
        f"Profile `{part['profile']}`, sift1m, one thread; the index is that which is fastest from the disk."
    )
    names = ("k", "us in memory", "us on the device", "speed / in memory")
    return f"### On a simulated device\n\n{text}\n\n" + table(names, rows, "r" * len(names))


def _synchronous(part: dict[str, Any]) -> str:
    rows = [
        (k, at["index"], number(median(done["sync_us"] for done in at["rounds"])),
         number(median(done["async_us"] for done in at["rounds"])), figure(at["ratio"], 1, "x"))
        for k in KS if (at := part.get(f"k{k}"))
    ]  # fmt: skip
    names = ("k", "index", "us one by one", "us with reads in flight", "ratio")
    text = (
        f"Profile `{part['device']}`, sift1m, one thread; one by one, a read starts when the one before it is complete"
        " (the paper: 19.7 times slower, by mmap, with BIGANN)."
    )
    return f"### One read after the other on a simulated device\n\n{text}\n\n" + table(names, rows, "rlrrr")


def _blocks(part: dict[str, Any]) -> str:
    rows = [
        (f"{row['target']:.2f}", row["block_bytes"], f"{row['ratio']:.3f}", number(row["table_reads"], 1),
         number(row["blocks"], 1), number(row["ios"], 1), number(row["table_reads"] + row["block_reads"], 1))
        for row in sorted(part["rows"], key=lambda row: (-row["target"], row["block_bytes"]))
    ]  # fmt: skip
    names = ("ratio asked", "bytes a block", "ratio", "table reads", "blocks", "I/Os", "reads of ours")
    text = (
        f"{part['n_vectors']:,} vectors of sift1m, k = {part['k']}, u = {part['hash_bits']} for all sizes (the paper's"
        " Figure 3). A read of ours takes in blocks that lie together."
    )
    return f"### I/Os by the size of a block\n\n{text}\n\n" + table(names, rows, "r" * len(names))


def _growth(part: dict[str, Any]) -> str:
    rows = []
    for row in part["rows"]:
        lsh, srs, index = row["lsh"], row["srs"], row["index"]
        mine = [NOT_REACHED, "", "", "", ""]
        if lsh is not None:
            ios = number(lsh["table_reads"] + lsh["blocks"])
            mine = [
                number(lsh["search"]["candidates"]),
                f"{lsh['ratio']:.3f}",
                ios,
                number(lsh["distances"]),
                number(lsh["mean_us"]),
            ]
        theirs = [NOT_REACHED, "", ""]
        if srs is not None:
            theirs = [number(srs["search"]["most"]), f"{srs['ratio']:.3f}", number(srs["mean_us"])]
        rows.append((number(row["n"]), index["n_functions"], index["n_tables"], *mine, *theirs))
    names = ("n", "m", "L", "S", "ratio", "I/Os", "distances", "us in memory", "SRS: T'", "ratio", "us")
    text = (
        f"Generated vectors as hard as SIFT's, k = {part['k']}, one thread, default parameters. Fitted exponents of"
        f" time over n: hash tables {figure(part.get('lsh_exponent'), 2)}, SRS {figure(part.get('srs_exponent'), 2)};"
        f" of I/Os {number(part.get('reads_exponent'), 2)}."
    )
    return f"### Growth\n\n{text}\n\n" + table(names, rows, "r" * len(names))


def _kinds(part: dict[str, Any]) -> str:
    rows = []
    for name, kinds in part["sets"].items():
        for kind, recalls in kinds.items():
            for at, found in recalls.items():
                cells = [NOT_REACHED, *[""] * 7]
                if found is not None:
                    cells = [
                        found["setting"], f"{found['recall']:.3f}", number(found["qps"]), number(found["reads"], 2),
                        number(found["read_bytes"] / 1e3), number(found["memory_bytes"] / MB),
                        number(found["index_bytes"] / MB), number(found["build_s"], 1),
                    ]  # fmt: skip
                rows.append((name, at, _KINDS[kind], *cells))
    names = (
        "set", "recall@10", "kind", "setting", "measured", "queries/s", "reads", "kB read", "memory MB", "index MB",
        "build s",
    )  # fmt: skip
    text = (
        "Two threads, from storage; the fastest setting that reaches the recall on the first half of the queries. Index"
        " bytes hold the vectors. Joined lists are read whole, once for all queries; their reads are batches. Query by"
        " query, the lists that are joined compete with more and shorter ones that hold copies of vectors (SPANN)."
    )
    return f"### Kinds of index side by side\n\n{text}\n\n" + table(names, rows, "lrll" + "r" * 7)


_SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "storage": _storage,
    "simulated": _simulated,
    "synchronous": _synchronous,
    "blocks": _blocks,
    "growth": _growth,
    "kinds": _kinds,
}
