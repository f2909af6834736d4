"""Flags and arguments that several commands share, spelled and explained once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from indexmill.formats.errors import ConfigError
from indexmill.reader.choices import DEFAULT_POLICY, ENGINES, ENTRIES, POLICIES, SIMULATED

T = TypeVar("T")
Name = TypeVar("Name", bound=str)

IndexDir = Annotated[Path, typer.Argument(metavar="DIR", help="The index: a directory with a manifest.json.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of text.")]
Queries = Annotated[
    str | None, typer.Option("--queries", metavar="FILE", help="Query vectors, in any input format.")
]
Column = Annotated[
    str | None,
    typer.Option(help="Vector column of a Parquet or Arrow file; default: the only one that fits."),
]
K = Annotated[int, typer.Option("-k", "--k", min=1, help="Neighbours wanted.")]
Policy = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"Search policy: {', '.join(POLICIES)}. (default {DEFAULT_POLICY})"),
]
PolicyList = Annotated[
    str, typer.Option("--policy", metavar="A,B", help=f"Search policies to measure: {', '.join(POLICIES)}.")
]
Entry = Annotated[str, typer.Option(metavar="NAME", help=f"Where a search starts: {', '.join(ENTRIES)}.")]
EntryList = Annotated[
    str,
    typer.Option(
        "--entry", metavar="A,B", help=f"Where searches start, each measured: {', '.join(ENTRIES)}."
    ),
]
BeamWidth = Annotated[
    int | None, typer.Option(min=1, help="Page reads a query has in flight at most. (default 8)")
]
Threads = Annotated[int, typer.Option(min=1, help="Search threads.")]
InFlight = Annotated[int | None, typer.Option(min=1, help="Queries a thread interleaves. (default 8)")]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"How pages are read: {', '.join(ENGINES)}, or {SIMULATED}FILE with the profile of a device (see"
        " `indexmill device`), or the name of one that is shipped, such as xlfdd, in place of FILE.",
    ),
]
Allow = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npy",
        help="Vectors that may be returned: an array of one boolean a vector, or of vector ids.",
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic/--no-deterministic",
        help="Take reads up in the order in which they were chosen, so that a search repeats bit for bit.",
    ),
]
Memory = Annotated[
    str, typer.Option(metavar="SIZE", help="Memory budget beside the page cache, such as 500MB.")
]
Workers = Annotated[int, typer.Option(help="Threads; they do not change the bytes.")]
NewOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write the result here and leave the index as it is; default: the index itself, as its next generation.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an output that exists.")]


def examples(*lines: str) -> str:
    """Format example commands for the end of a help page."""
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])


def one_of(value: str, choices: Sequence[Name], flag: str) -> Name:
    """Return `value` if it is one of `choices`.

    Raises
    ------
    ConfigError
        Naming the flag, the value and the nearest choice.
    """
    for choice in choices:
        if choice == value:
            return choice
    from indexmill.jobs.jobfile import nearest

    raise ConfigError(
        f"{flag}: expected one of {', '.join(choices)}, got {value!r}; {nearest(value, choices)}"
    )


def split_names(text: str | None) -> list[str] | None:
    """Split ``"a,b"`` into names; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def split_choices(text: str, choices: Sequence[str], flag: str) -> list[str]:
    """Split a list of words and check that each is one of `choices`; a word counts once."""
    names = [one_of(name, choices, flag) for name in split_names(text) or []]
    return _not_empty(list(dict.fromkeys(names)), flag)


def split_sizes(text: str, flag: str) -> list[int]:
    """Split ``"20,50"`` into positive integers, in the order given; a size may repeat, to warm up.

    Raises
    ------
    ConfigError
        If a part is no positive integer.
    """
    sizes = []
    for part in split_names(text) or []:
        if not part.isdecimal() or int(part) < 1:
            raise ConfigError(f"{flag}: expected positive integers such as 20,50,100; got {part!r}")
        sizes.append(int(part))
    return _not_empty(sizes, flag)


def _not_empty(values: list[T], flag: str) -> list[T]:
    if not values:
        raise ConfigError(f"{flag}: the list is empty")
    return values
