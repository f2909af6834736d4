"""`indexmill inspect`: what an index is, from its manifest and file headers; no vector is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.jobs.cli.options import IndexDir, Json, examples

if TYPE_CHECKING:
    from rich.console import Console

NAME = "inspect"
EXAMPLES = examples("indexmill inspect index", "indexmill inspect index --json")


def command(index: IndexDir, json_: Json = False) -> None:
    """Show an index's manifest, file headers, certificate and how it was built."""
    from indexmill.jobs.console.tables import read_run
    from indexmill.jobs.search.opening import load_manifest
    from indexmill.pipeline.spec import KINDS

    manifest = load_manifest(index, KINDS)
    headers = read_headers(index, manifest)
    run = read_run(index)
    if json_:
        value = {"index": str(index), "manifest": manifest, "headers": headers, "run": run}
        value["memory_bytes"] = search_memory(headers)
        print(json.dumps(value, indent=2))
    else:
        from indexmill.jobs.console.tables import stdout_console

        _show(stdout_console(), index, manifest, headers, run)


def read_headers(index: Path, manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Read kind, fields and sections of every page file; float fields as floats.

    Raises
    ------
    FormatError
        If a header is damaged.
    """
    from indexmill.formats.pagefile.frame import f64_from_bits
    from indexmill.formats.pagefile.reader import PageFile
    from indexmill.formats.verify import page_file_kind

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


def search_memory(headers: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Bytes that the reader holds of each file while an index is open; searches take more on top.

    Codes, entry vertices and navigation graph are held whole, of nodes and ids one checksum a page; of kind ``lsh``
    functions, bitmap and, unless they are left on storage, vectors, of ids one checksum a page; of kind ``ivf``
    centroids, the graph over them and 16 bytes a list of each batch, of lists, vectors and ids one checksum a page.
    """

    def payload(file: str, *sections: str) -> int:
        there = headers.get(file, {"sections": {}})["sections"]
        return sum(int(there[name]["bytes"]) for name in sections if name in there)

    if "centroids.imx" in headers:
        shared = headers["centroids.imx"]["fields"]
        batches = [name for name in headers if name.startswith("batch-")]
        # Centres fill up to 256.
        book = 4 * 256 * shared["dim"] + 8 * (shared["n_chunks"] + 1) if "n_chunks" in shared else 0
        return {
            "centroids": payload("centroids.imx", "centroids", "scale") + book,
            "graph": payload("centroids.imx", "neighbours"),
            "directories": sum(payload(name, "crc") + 16 * shared["n_lists"] for name in batches),
            "vectors": payload("vectors.imx", "crc"),
            "ids": payload("ids.imx", "crc"),
        }
    if "functions.imx" in headers:
        vectors = headers["vectors.imx"]["fields"]
        return {
            "functions": payload("functions.imx", "projections", "offsets", "multipliers", "radii"),
            "bitmap": payload("tables.imx", "occupied"),
            "vectors": vectors["n_vectors"] * vectors["vector_bytes"],
            "ids": payload("ids.imx", "crc"),
        }
    codes = headers["codes.imx"]["fields"]
    codebook = 4 * 256 * codes["dim"] + 8 * (codes["n_chunks"] + 1)  # centres fill up to 256
    return {
        "codes": payload("codes.imx", "codes") + codebook,
        "entries": payload("entries.imx", "centroids", "vertices"),
        "navigation": payload("navigation.imx", "slots", "offsets", "neighbours"),
        "graph": payload("graph.imx", "crc", "scale"),
        "ids": payload("ids.imx", "crc"),
    }


def _show(
    console: Console, index: Path, manifest: dict[str, Any], headers: dict[str, Any], run: dict[str, Any]
) -> None:
    from rich.markup import escape

    from indexmill.jobs.cli.commands.build import print_summary
    from indexmill.jobs.console.tables import facts, human_bytes

    print_summary(console, index, manifest)
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
    memory = search_memory(headers)
    parts = ", ".join(f"{part} {human_bytes(count)}" for part, count in memory.items())
    lines["memory when open"] = f"{human_bytes(sum(memory.values()))}: {parts}"
    if manifest["kind"] == "graph":
        sample = headers.get("navigation.imx", {"fields": {"n_sample": 0}})["fields"]["n_sample"]
        lines["navigation"] = f"{sample:,} vertices" if sample else "none"
    for name, header in headers.items():
        lines[name] = f"{header['kind']}: {facts(header['fields'])}"
        lines[f"  {name} sections"] = facts(
            {key: f"{s['pages']:,} pages" for key, s in header["sections"].items()}
        )
    for name, line in lines.items():
        console.print(f"[bold]{escape(name)}[/bold]: {escape(line)}", soft_wrap=True)
