"""`indexmill verify`: read every byte of an index and check it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from indexmill.formats.location import shown_path
from indexmill.jobs.options.shared import IndexPlace, Json, examples

NAME = "verify"
EXAMPLES = examples(
    "indexmill verify index", "indexmill verify index --json", "indexmill verify s3://bucket/index"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `verify`."""

    index: IndexPlace
    json_: Json = False


def command(options: Options) -> None:
    """Check every file of an index against its checksums and its manifest; exits with 6 on damage."""
    import typer

    from indexmill.formats.errors import FormatError
    from indexmill.jobs.console.tables import human_bytes
    from indexmill.jobs.kinds.opening import at_hand, check_is_index

    index, shown = at_hand(options.index, anew=True), shown_path(options.index)
    check_is_index(index)
    damages: list[str] = []
    checked = {"files": 0, "bytes": 0}
    try:
        places = _places(index)
    except FormatError as error:
        places = []
        damages.append(str(error))
    for place in places:
        found, files, n_bytes = _verified(place)
        damages += found
        checked = {"files": checked["files"] + files, "bytes": checked["bytes"] + n_bytes}
    if options.json_:
        facts = {"index": shown, "sound": not damages, **checked, "damages": damages}
        print(json.dumps(facts, indent=2))
    elif not damages:
        print(f"{shown}: sound; {checked['files']} files, {human_bytes(checked['bytes'])} checked")
    else:
        for damage in damages:
            print(f"damaged: {damage}", file=sys.stderr)
        advice = "copy it again from its source or rebuild it"
        print(f"error: {shown}: {len(damages)} damaged; {advice}", file=sys.stderr)
    if damages:
        raise typer.Exit(FormatError.exit_code)


def _places(index: Path) -> list[Path]:
    """Return the directories to check: the index itself, or the parts of a set.

    Raises
    ------
    FormatError
        If the manifest of a set is damaged, or a part is missing or of another build.
    """
    from indexmill.formats.index.checked import is_set
    from indexmill.formats.index.setmanifest import check_parts, read_set_manifest

    if not is_set(index):
        return [index]
    manifest = read_set_manifest(index)
    check_parts(index, manifest)
    return [index / part.name for part in manifest.parts]


def _verified(index: Path) -> tuple[list[str], int, int]:
    """Return what is damaged in one index, the number of its files, and their bytes."""
    from indexmill.formats.errors import FormatError
    from indexmill.jobs.kinds.opening import load_manifest
    from indexmill.reader import native

    damages = [str(damage) for damage in native.verify(str(index))]
    try:
        files = load_manifest(index)["files"]
    except FormatError as error:
        # The native reader must never be content with a manifest that cannot be read.
        return damages or [str(error)], 0, 0
    return damages, len(files), sum(entry["bytes"] for entry in files)
