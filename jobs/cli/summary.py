"""The summary of an index that every command which publishes one prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.reader.choices import UNMEASURED_MARGIN

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.update.run import UpdateResult

#: What each step of an update says.
_STEPS = {
    "merge": "{indexes} indexes merged, {vectors:,} vectors",
    "delete": "{deleted:,} vectors deleted; {missing:,} of {ids:,} ids are not there, {gone:,} were deleted before",
    "append": "{added:,} vectors added, {replaced:,} replaced",
}


def show_result(
    out: str | Path, manifest: dict[str, Any], as_json: bool, run: dict[str, Any] | None = None
) -> None:
    """Print what was published: its manifest, or what it says in a dozen lines, `run` as for `print_summary`."""
    if as_json:
        print(json.dumps(manifest, indent=2))
        return
    from indexmill.jobs.console.tables import stdout_console

    print_summary(stdout_console(), out, manifest, run)


def show_update(out: str | Path, result: UpdateResult, as_json: bool) -> None:
    """Print what an update did, step by step, and the index as it is now."""
    if as_json:
        said = {"steps": result.steps, "done_before": result.done_before, "manifest": result.manifest}
        print(json.dumps(said, indent=2))
        return
    show_result(out, result.manifest, False)
    for step in result.steps:
        is_compaction = step["step"] == "compact"
        done = compaction_in_words(step) if is_compaction else _STEPS[step["step"]].format(**step)
        print(f"{step['step']}: {done}")
    if result.done_before:
        print("nothing was done: this job, with these files, has written the index already")
    elif not result.steps:
        print("nothing was done: a compaction is not due yet, or would change nothing")


def compaction_in_words(step: Mapping[str, Any]) -> str:
    """Return what a compaction did: key ``removed``, and ``folded`` where there were added tables."""
    removed, folded = step["removed"], step.get("folded", 0)
    words = [f"{removed:,} deleted vectors were removed"] if removed or not folded else []
    if folded:
        words.append(f"added tables, of {folded:,} vectors, became part of the tables")
    return "; ".join(words)


def show_set(out: str | Path, manifest: dict[str, Any], as_json: bool) -> None:
    """Print what a set of indexes is: its manifest, or a line for the set and one for each part."""
    if as_json:
        print(json.dumps(manifest, indent=2))
        return
    source, parts = manifest["input"], manifest["parts"]
    print(
        f"{out}: set {manifest['build_id'][:16]}, {len(parts)} parts of kind {manifest['parameters']['kind']}"
    )
    print(f"vectors: {source['n_vectors']:,} x {source['dim']} {source['dtype']}")
    if "codes" in manifest:
        print(f"codes: {manifest['codes'][:16]}, the same in all parts")
    print(f"margin: {_margin(manifest)}")
    for part in parts:
        print(f"{part['name']}: build {part['build_id'][:16]}, {part['vectors']:,} vectors")


def _margin(manifest: dict[str, Any]) -> str:
    """Return the margin of a set by default, and what it was chosen by."""
    found = manifest.get("margin")
    if manifest["parameters"].get("metric") == "ip":
        return "inf: the largest inner product may lie in any part"
    if found is None:
        return f"{UNMEASURED_MARGIN}, not measured"
    sample = "queries of the sample" if found["drawn_from"] == "query_sample" else "of its vectors"
    held = f"{found['share']:.2%} of the {found['neighbours']} nearest neighbours"
    return f"{found['value']}, by which {held} of {found['queries']} {sample} lie in the parts that are asked"


def _generation(manifest: dict[str, Any]) -> str:
    number = manifest.get("generation", 1)
    return "" if number == 1 else f", generation {number}"


def _deleted(manifest: dict[str, Any]) -> str:
    deleted = manifest.get("deleted")
    return "" if deleted is None else f", of which {deleted['vectors']:,} are deleted"


def print_summary(
    console: Console, out: str | Path, manifest: dict[str, Any], run: dict[str, Any] | None = None
) -> None:
    """Print what an index is, in a dozen lines; by default `run` is read beside it."""
    from rich.markup import escape

    from indexmill.jobs.console.tables import facts, file_table, human_bytes, read_run
    from indexmill.jobs.kinds.registry import KINDS

    source = manifest["input"]
    run = read_run(Path(out)) if run is None else run
    console.print(
        f"[bold]{escape(str(out))}[/bold]  build {manifest['build_id'][:16]}{_generation(manifest)}"
    )
    rows = {
        "vectors": f"{source['n_vectors']:,} x {source['dim']} {source['dtype']}{_deleted(manifest)}",
        **KINDS[manifest["kind"]].summary(manifest),
        "seconds": facts(run.get("seconds", {})),
        "peak memory": human_bytes(run["peak_memory_bytes"]) if "peak_memory_bytes" in run else "unknown",
    }
    for name, value in rows.items():
        console.print(f"  {name:<12} {escape(value)}", soft_wrap=True)
    console.print(file_table(manifest["files"]))
