"""Markdown tables from a record, and where they stand in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from targets import GIB, TARGETS

BEGIN, END = "<!-- record: begin -->", "<!-- record: end -->"
_NOT_REACHED = "not reached"


def write_into(page: Path, record: dict[str, Any], source: str) -> None:
    """Replace what stands between the two marks of `page`.

    Raises
    ------
    ValueError
        If a mark is missing.
    """
    text = page.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(
            f"{page}: the marks {BEGIN} and {END} are missing; put them where the figures belong"
        )
    before, rest = text.split(BEGIN, 1)
    page.write_text(f"{before}{BEGIN}\n\n{render(record, source)}\n{END}{rest.split(END, 1)[1]}")


def render(record: dict[str, Any], source: str) -> str:
    """Return all tables of `record`; parts that were not measured have none."""
    sections = [_head(record, source), _targets(record)]
    renderers: dict[str, Callable[[dict[str, Any]], str]] = {
        "build": _build,
        "quality": _quality,
        "reads": _reads,
        "qps": _qps,
        "compactness": _compactness,
    }
    sections += [draw(record["parts"][name]) for name, draw in renderers.items() if name in record["parts"]]
    return "\n\n".join(sections) + "\n"


def _head(record: dict[str, Any], source: str) -> str:
    machine, versions, parts = record["machine"], record["versions"], record["parts"]
    days = sorted({part["started"][:10] for part in parts.values()})
    commits = sorted({part["commit"] for part in parts.values()})
    rows = [
        ("date", " to ".join(dict.fromkeys((days[0], days[-1])))),
        ("data", "{name}: {n_vectors:,} x {dim} {dtype}".format(**record["data"])),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / GIB:.1f} GiB"),
        ("kernel", machine["kernel"]),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions.items() if name != "peer")),
        ("peer", ", ".join(versions["peer"])),
        ("commit", ", ".join(commits)),
        ("record", f"`{source}`"),
    ]
    if "disk" in parts:
        disk = parts["disk"]
        shape = f"depth {disk['depth']}, {disk['jobs']} jobs, {disk['runtime_s']} s, {disk['method']}"
        rows.insert(4, ("disk", f"{disk['reads_per_s']:,} random 4 KiB reads a second ({shape})"))
    return _table(("", ""), rows, "ll")


def _targets(record: dict[str, Any]) -> str:
    rows = []
    for target in TARGETS:
        part = record["parts"].get(target.part)
        if part is None:
            continue
        value = target.value(part)
        shown, met = _NOT_REACHED, "no"
        if value is not None:
            shown, met = f"{value:.3f}{target.unit}", "yes" if target.met(value) else "**no**"
        rows.append((target.what, shown, f"{target.relation} {target.limit:g}{target.unit}", met))
    return "### Targets\n\n" + _table(("figure", "measured", "target", "met"), rows, "lrrl")


def _build(part: dict[str, Any]) -> str:
    rows = []
    for side in ("diskann", "indexmill"):
        cost = part[side]
        memory, file = cost["peak_bytes"] / GIB, cost["graph_file_bytes"] / 1e6
        rows.append((side, f"{cost['wall_s']:.0f}", f"{cost['cpu_s']:.0f}", f"{memory:.2f}", f"{file:.0f}"))
    rows.append(("ratio", _number(part["wall_ratio"], 2), _number(part["cpu_ratio"], 2), "", ""))
    mine = part["indexmill"]
    stages = [(name, f"{seconds:.1f}") for name, seconds in mine["stage_s"].items()]
    return (
        "### Build\n\n"
        + _table(("", "wall s", "CPU s", "peak GiB", "graph file MB"), rows, "lrrrr")
        + f"\n\nOne build each. Mean degree {mine['graph']['mean_degree']:.1f}. Stages of indexmill:\n\n"
        + _table(("stage", "s"), stages, "lr")
    )


def _quality(part: dict[str, Any]) -> str:
    rows = [
        (a["L"], f"{a['recall']:.4f}", f"{a['distances']:.0f}", f"{b['recall']:.4f}", f"{b['distances']:.0f}")
        for a, b in zip(part["diskann"]["rows"], part["indexmill"]["rows"], strict=True)
    ]
    both = [_number(part[side]["distances"], 0) for side in ("diskann", "indexmill")]
    line = f"Distances a query at recall@10 {part['recall']}: DiskANN {both[0]}, indexmill {both[1]}"
    names = ("L", "DiskANN recall", "distances", "indexmill recall", "distances")
    return f"### Graph\n\n{line}, ratio {_number(part['distances_ratio'], 3)}.\n\n" + _table(
        names, rows, "rrrrr"
    )


def _reads(part: dict[str, Any]) -> str:
    rows = [
        (
            row["order"], row["policy"], row["entry"], _number(row["pages_read"], 1), _number(row["hops"], 1),
            _share(row["bytes_used"], row["bytes_read"]),
        )
        for row in part["settings"]
    ]  # fmt: skip
    rows.append(("DiskANN", "beam", "medoid", _number(part["diskann"]["pages_read"], 1), "", ""))
    entry = part["entry"]
    text = [
        f"Means a query at recall@10 {part['recall']}, beam width {part['beam_width']}; tuned on",
        f"{part['tuning_queries']:,} queries, reported on {part['reporting_queries']:,} others. Page search,",
        f"star (entry {entry['star']}) over identity (entry {entry['identity']}):",
        f"{_number(part['star_to_identity'], 3)}. DiskANN's reads are {part['diskann']['counted']}.",
    ]
    names = ("order", "policy", "entry", "pages", "hops", "bytes used / read")
    return f"### Page reads\n\n{' '.join(text)}\n\n" + _table(names, rows, "lllrrr")


def _qps(part: dict[str, Any]) -> str:
    medians: dict[str, float | None] = part["medians"]
    threads, many = part["threads"], part["many_threads"]
    titles = {
        "diskann": f"DiskANN, {threads} threads",
        "indexmill": f"indexmill, {threads} threads x {part['in_flight']} queries",
        "indexmill_single": f"indexmill, {threads} threads x 1 query",
        "diskann_many": f"DiskANN, {many} threads",
    }
    rows: list[list[object]] = [
        [i, *(_number(done[name]["qps"], 0) for name in titles)] for i, done in enumerate(part["rounds"], 1)
    ]
    rows.append(["median", *(_number(medians[name], 0) for name in titles)])
    text = [
        f"At recall@10 {part['recall']}, beam width {part['beam_width']}, order {part['order']},",
        f"policy {part['policy']}, entry {part['entry']}. Ratio of medians with {threads} threads each:",
        f"{_number(part['qps_ratio'], 2)}; with one query a thread on both sides",
        f"{_number(part['qps_ratio_single'], 2)}; with {many} queries in flight on both sides",
        f"{_number(part['qps_ratio_many'], 2)}.",
    ]
    return f"### Queries a second\n\n{' '.join(text)}\n\n" + _table(
        ("round", *titles.values()), rows, "lrrrr"
    )


def _compactness(part: dict[str, Any]) -> str:
    layout = part["layout"]
    return (
        f"### Layout of float32 vectors\n\nStar order, 6 nodes a page: page compactness"
        f" {layout['page_compactness']:.3f}, overlap ratio {layout['overlap_ratio']:.3f}; stage `order`"
        f" {part['order_s']:.1f} s."
    )


def _number(value: float | None, digits: int) -> str:
    return _NOT_REACHED if value is None else f"{value:,.{digits}f}"


def _share(part: float | None, whole: float | None) -> str:
    return _NOT_REACHED if part is None or not whole else f"{part / whole:.0%}"


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]], sides: str) -> str:
    rules = ["---" if side == "l" else "---:" for side in sides]
    lines = [names, rules, *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
