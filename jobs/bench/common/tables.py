"""All tables of a record, and where they stand in a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from indexmill.jobs.bench.common.cells import NOT_REACHED, figure, table
from indexmill.jobs.bench.sift1m import tables_build, tables_paper, tables_search
from indexmill.jobs.bench.sift1m.targets import GIB, TARGETS, Target

BEGIN, END = "<!-- record: begin -->", "<!-- record: end -->"
#: Renderers by part, in the order of the page; they get the part and the folder of the pictures.
Sections: TypeAlias = Mapping[str, Callable[[dict[str, Any], str], str]]
_SECTIONS: Sections = {
    "qps": tables_search.qps,
    "reads": tables_search.reads,
    "latency": tables_search.latency,
    "cpu": tables_search.cpu,
    "device": tables_search.device,
    "memory": tables_search.memory,
    "ablation": tables_paper.ablation,
    "bandwidth": tables_paper.bandwidth,
    "completion": tables_paper.completion,
    "build": tables_build.build,
    "quality": tables_build.quality,
    "compactness": tables_build.compactness,
}


def write_into(page: Path, text: str, marks: tuple[str, str] = (BEGIN, END)) -> None:
    """Replace what stands between the two `marks` of `page`.

    Raises
    ------
    ValueError
        If a mark is missing.
    """
    whole = page.read_text()
    begin, end = marks
    if begin not in whole or end not in whole:
        raise ValueError(
            f"{page}: the marks {begin} and {end} are missing; put them where the figures belong"
        )
    before, rest = whole.split(begin, 1)
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{rest.split(end, 1)[1]}")


def render(
    record: dict[str, Any],
    source: str,
    images: str,
    drawn: Sections = _SECTIONS,
    targets: Sequence[Target] = TARGETS,
) -> str:
    """Return all tables of `record`; parts that were not measured have none.

    Parameters
    ----------
    record : dict
    source : str
        Where the record is kept.
    images : str
        Folder of the pictures, as seen from the page.
    drawn : mapping
        Renderers of the parts.
    targets : sequence of Target
    """
    parts = record["parts"]
    sections = [_head(record, source), *([_targets(record, targets)] if targets else [])]
    sections += [draw(parts[name], images) for name, draw in drawn.items() if name in parts]
    return "\n\n".join(sections) + "\n"


def _head(record: dict[str, Any], source: str) -> str:
    machine, versions, parts = record["machine"], record["versions"], record["parts"]
    days = sorted({part["started"][:10] for part in parts.values()})
    commits = sorted({part["commit"] for part in parts.values()})
    sets = record["data"] if isinstance(record["data"], list) else [record["data"]]
    loads = [part["load_before"] for part in parts.values()]
    rows = [
        ("date", " to ".join(dict.fromkeys((days[0], days[-1])))),
        *(("data", "{name}: {n_vectors:,} x {dim} {dtype}".format(**one)) for one in sets),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / GIB:.1f} GiB"),
        ("kernel", machine["kernel"]),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions.items() if name != "peer")),
        *([("peer", ", ".join(versions["peer"]))] if versions["peer"] else []),
        ("commit", ", ".join(commits)),
        ("load before each part", f"{min(loads):.1f} to {max(loads):.1f}"),
        ("record", f"`{source}`"),
    ]
    if "disk" in parts:
        disk = parts["disk"]
        shape = f"{disk['depth']} in flight, {disk['jobs']} jobs, {disk['seconds']} s, {disk['method']}"
        rows.insert(4, ("disk", f"{disk['reads_per_s']:,} random 4 KiB reads a second ({shape})"))
    return table(("", ""), rows, "ll")


def _targets(record: dict[str, Any], targets: Sequence[Target]) -> str:
    rows = []
    for target in targets:
        part = record["parts"].get(target.part)
        if part is None:
            continue
        found = target.figure(part)
        measured, met = NOT_REACHED, "**no**"
        if found is not None and found["value"] is not None:
            measured, met = figure(found, 3), "yes" if target.met(found["value"]) else "**no**"
        rows.append((target.what, measured, f"{target.relation} {target.limit:g}", target.unit, met))
    names = ("figure", "measured (95% interval)", "target", "unit", "met")
    return "### Targets\n\n" + table(names, rows, "lrrll")
