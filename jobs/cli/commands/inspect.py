"""`indexmill inspect`: what an index is, from its manifest and file headers; no vector is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.formats.location import shown_path
from indexmill.jobs.kinds.registry import KINDS
from indexmill.jobs.options.shared import IndexPlace, Json, examples

if TYPE_CHECKING:
    from rich.console import Console

NAME = "inspect"
EXAMPLES = examples(
    "indexmill inspect index", "indexmill inspect index --json", "indexmill inspect index --history"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `inspect`."""

    index: IndexPlace
    history: Annotated[bool, typer.Option("--history", help="Show the generations that are kept.")] = False
    json_: Json = False


def command(options: Options) -> None:
    """Show an index's manifest, file headers, certificate and how it was built, or its generations."""
    from indexmill.formats.errors import OtherKind
    from indexmill.formats.index.checked import is_set
    from indexmill.jobs.console.tables import read_run
    from indexmill.jobs.kinds.opening import at_hand, load_manifest

    index, shown = at_hand(options.index), shown_path(options.index)
    if is_set(index):
        if options.history:
            raise OtherKind(
                f"--history: {shown} is a set of indexes, and each part has its own; name one part"
            )
        _inspect_set(index, shown, options.json_)
        return
    manifest = load_manifest(index)
    if options.history:
        _show_history(index, shown, options.json_)
        return
    headers = read_headers(index, manifest)
    run = read_run(index)
    if options.json_:
        value = {"index": shown, "manifest": manifest, "headers": headers, "run": run}
        value["memory_bytes"] = _held(manifest, headers)
        print(json.dumps(value, indent=2))
    else:
        from indexmill.jobs.console.tables import stdout_console

        _show(stdout_console(), shown, manifest, headers, run)


def _inspect_set(index: Path, shown: str, as_json: bool) -> None:
    from indexmill.formats.index.checked import checked_json
    from indexmill.formats.index.names import MANIFEST_NAME
    from indexmill.formats.index.setmanifest import check_parts, read_set_manifest
    from indexmill.jobs.cli.summary import show_set

    check_parts(index, read_set_manifest(index))
    manifest = checked_json(index / MANIFEST_NAME)
    if as_json:
        print(json.dumps({"index": shown, "manifest": manifest}, indent=2))
    else:
        show_set(shown, manifest, as_json)


def _show_history(index: Path, shown: str, as_json: bool) -> None:
    from indexmill.jobs.console.tables import add_row, human_bytes, plain_table, stdout_console
    from indexmill.pipeline.generations.history import history, own_bytes

    found, damaged = history(index)
    sizes = own_bytes(found)
    generations = [{**one.facts(found), "bytes": own} for one, own in zip(found, sizes, strict=True)]
    if as_json:
        value = {"index": shown, "generations": generations, "damaged": damaged}
        print(json.dumps(value, indent=2))
        return
    table = plain_table("", ["generation", "written", "vectors", "deleted", "made from", "space"])
    for one in generations:
        number = f"{one['generation']}, present" if one["present"] else str(one["generation"])
        made_from = "" if one["previous"] is None else str(one["previous"])
        counts = [f"{one['vectors']:,}", f"{one['deleted']:,}"]
        add_row(table, [number, one["written"], *counts, made_from, human_bytes(one["bytes"])])
    console = stdout_console()
    console.print(table)
    for message in damaged:
        console.print(message, soft_wrap=True, markup=False)


def _held(manifest: dict[str, Any], headers: dict[str, Any]) -> dict[str, int]:
    """Return the bytes that an open index holds, by what they are."""
    held = KINDS[manifest["kind"]].held(headers)
    if manifest.get("deleted"):
        held["deleted"] = -(-int(manifest["input"]["n_vectors"]) // 64) * 8
    return held


def read_headers(index: Path, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Read kind, fields and sections of every page file; float fields as floats.

    Raises
    ------
    FormatError
        If a header is damaged.
    """
    from indexmill.formats.kinds import page_file_kind
    from indexmill.formats.pagefile.frame import f64_from_bits
    from indexmill.formats.pagefile.reader import PageFile

    headers = {}
    for entry in manifest["files"]:
        name = entry["name"]
        kind = page_file_kind(name)
        if kind is None:
            continue
        with PageFile(index / name, kind) as file:
            fields: dict[str, Any] = dict(file.fields)
            for field in ("max_norm", "ratio", "width"):
                if field in fields:
                    fields[field] = f64_from_bits(fields[field])
            sections = {s.name: {"pages": s.pages, "bytes": s.payload_bytes} for s in file.header.sections}
            headers[name] = {"kind": file.header.kind, "fields": fields, "sections": sections}
    return headers


def _show(
    console: Console, index: str, manifest: dict[str, Any], headers: dict[str, Any], run: dict[str, Any]
) -> None:
    from rich.markup import escape

    from indexmill.jobs.cli.summary import print_summary
    from indexmill.jobs.console.tables import facts, human_bytes

    print_summary(console, index, manifest, run)
    lines = {
        "parameters": facts(manifest["parameters"]),
        "fingerprint": str(manifest["input"]["fingerprint"]),
        "software": facts(manifest["software"]),
        "build id": manifest["build_id"],
        "run": facts({key: value for key, value in run.items() if not isinstance(value, dict)}),
    }
    if isinstance(origin := manifest["input"].get("imported"), dict):
        lines["imported"] = facts(
            {key: value for key, value in origin.items() if not isinstance(value, list)}
        )
    kind = KINDS[manifest["kind"]]
    memory = _held(manifest, headers)
    parts = ", ".join(f"{part} {human_bytes(count)}" for part, count in memory.items())
    lines["memory when open"] = f"{human_bytes(sum(memory.values()))}: {parts}"
    lines |= kind.header_lines(headers)
    for name, header in headers.items():
        lines[name] = f"{header['kind']}: {facts(header['fields'])}"
        lines[f"  {name} sections"] = facts(
            {key: f"{s['pages']:,} pages" for key, s in header["sections"].items()}
        )
    for name, line in lines.items():
        console.print(f"[bold]{escape(name)}[/bold]: {escape(line)}", soft_wrap=True)
