"""Flags and arguments that several commands share, spelled and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from indexmill.jobs.options.kept import Argument, Option
from indexmill.reader.choices import (
    DEFAULT_BEAM_WIDTH,
    DEFAULT_INFLIGHT,
    DEFAULT_POLICY,
    ENGINES,
    ENTRIES,
    PLACES,
    POLICIES,
    SIMULATED,
    STORED_BEAM_WIDTH,
    STORED_POLICY,
)

IndexDir = Annotated[Path, Argument(metavar="DIR", help="The index: a directory with a manifest.json.")]
IndexPlace = Annotated[
    str, Argument(metavar="DIR|URL", help="The index: a directory with a manifest.json, or its URL.")
]
Json = Annotated[bool, Option("--json", help="Print JSON on stdout instead of text.")]
Queries = Annotated[
    str | None, Option("--queries", metavar="FILE", help="Query vectors, in any input format.")
]
Column = Annotated[
    str | None,
    Option(help="Vector column of a Parquet or Arrow file; default: the only one that fits."),
]
K = Annotated[int, Option("-k", "--k", min=1, help="Neighbours wanted.")]
Policy = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help=f"Search policy: {', '.join(POLICIES)}. (default {DEFAULT_POLICY}; of an "
        f"index at a URL {STORED_POLICY})",
    ),
]
PolicyList = Annotated[
    str, Option("--policy", metavar="A,B", help=f"Search policies to measure: {', '.join(POLICIES)}.")
]
Entry = Annotated[str, Option(metavar="NAME", help=f"Where a search starts: {', '.join(ENTRIES)}.")]
EntryList = Annotated[
    str,
    Option("--entry", metavar="A,B", help=f"Where searches start, each measured: {', '.join(ENTRIES)}."),
]
BeamWidth = Annotated[
    int | None,
    Option(
        min=1,
        help=f"Most page reads that a query has in flight. (default {DEFAULT_BEAM_WIDTH}; of an index at a URL "
        f"{STORED_BEAM_WIDTH})",
    ),
]
Threads = Annotated[int, Option(min=1, help="Search threads.")]
InFlight = Annotated[
    int | None, Option(min=1, help=f"Queries that a thread interleaves. (default {DEFAULT_INFLIGHT})")
]
Engine = Annotated[
    str,
    Option(
        metavar="NAME",
        help=f"How pages are read: {', '.join(ENGINES)}, or {SIMULATED}FILE, where FILE is a profile that `indexmill "
        "device` wrote or the name of a shipped one, such as xlfdd.",
    ),
]
IdsPlace = Annotated[
    str,
    Option(
        "--ids",
        metavar="PLACE",
        help=f"Where ids are while the index is open, {' or '.join(PLACES)}: loaded, or read with the results.",
    ),
]
Allow = Annotated[
    Path | None,
    Option(
        metavar="FILE.npy",
        help="Vectors that may be returned: an array of one boolean for each vector, or of vector ids.",
    ),
]
Where = Annotated[
    str | None,
    Option(
        metavar="CONDITION",
        help="Vectors that may be returned, by their metadata: \"price < 20 and lang = 'de'\".",
    ),
]
Deterministic = Annotated[
    bool,
    Option(
        "--deterministic/--no-deterministic",
        help="Handle reads in the order in which they were chosen, so that a search repeats bit for bit.",
    ),
]
Memory = Annotated[str, Option(metavar="SIZE", help="Memory budget beside the page cache, such as 500MB.")]
Workers = Annotated[int, Option(help="Threads; they do not change the bytes.")]
RayAddress = Annotated[
    str | None,
    Option(metavar="HOST:PORT", help="Ray cluster to join; default: RAY_ADDRESS, else one started here."),
]
NewOut = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        help="Write the result here and leave the index as it is; default: the index itself, as its next generation.",
    ),
]
Work = Annotated[
    Path | None,
    Option(metavar="DIR", help="Scratch files; default: beside the output."),
]
Force = Annotated[bool, Option("--force", help="Replace an output that exists.")]
KeepGenerations = Annotated[
    int | None,
    Option(
        min=1,
        help="Newest generations to keep where the index is replaced, the new one among them. (default the new one, "
        "the one before it, and those that share files with that one)",
    ),
]


def examples(*lines: str) -> str:
    """Format example commands for the end of a help page."""
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])
