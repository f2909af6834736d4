"""`indexmill verify`: read every byte of an index and check it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

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
    from indexmill.jobs.kinds.opening import at_hand, check_is_index, load_manifest
    from indexmill.reader import native

    index, shown = at_hand(options.index, anew=True), shown_path(options.index)
    check_is_index(index)
    damages = [str(damage) for damage in native.verify(str(index))]
    checked = {"files": 0, "bytes": 0}
    try:
        files = load_manifest(index)["files"]
        checked = {"files": len(files), "bytes": sum(entry["bytes"] for entry in files)}
    except FormatError as error:
        if not damages:  # the native reader must never be content with a manifest that cannot be read
            damages.append(str(error))
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
