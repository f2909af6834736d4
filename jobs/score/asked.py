"""The options that `score` and `compare` share: which queries are asked, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from indexmill.jobs.choices import one_of
from indexmill.jobs.options.shared import (
    Column,
    Deterministic,
    Engine,
    IdsPlace,
    InFlight,
    K,
    Queries,
    Threads,
)
from indexmill.reader.choices import DEFAULT_IDS, PLACES, Place

if TYPE_CHECKING:
    from indexmill.jobs.score.queries import QuerySet
    from indexmill.jobs.search.results import AnyIndex

Repeat = Annotated[int, typer.Option(min=1, help="Runs of each measurement; their medians count.")]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Queries, where their true neighbours come from, and which of them count."""

    PANEL: ClassVar = "Queries"
    queries: Queries = None
    truth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="True neighbours of the queries (big-ann ground truth)."),
    ] = None
    base: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Instead of --truth: the vectors that the index was built from, to compute the truth. May repeat.",
        ),
    ] = None
    column: Column = None
    k: K = 10
    first: Annotated[int | None, typer.Option(min=1, help="Use at most this many queries.")] = None
    skip: Annotated[
        int,
        typer.Option(
            min=0, help="Leave out this many queries first: tune with some, report with the others."
        ),
    ] = 0

    def load(self, index: AnyIndex, threads: int, allowed: Any = None) -> QuerySet:
        """Read the queries and their truth; see `load_queries`."""
        from indexmill.jobs.score.queries import load_queries

        found = load_queries(
            index, self.queries, self.truth, self.base or [], self.k, self.column, threads, allowed
        )
        return found.part(self.skip, self.first)


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Options of every search."""

    PANEL: ClassVar = "Search"
    threads: Threads = 1
    inflight: InFlight = None
    deterministic: Deterministic = True
    engine: Engine = "auto"
    ids: IdsPlace = DEFAULT_IDS
    repeat: Repeat = 1

    def places(self) -> dict[str, Place]:
        """Return the reader's keyword for the place of ids.

        Raises
        ------
        ConfigError
            If there is no such place.
        """
        return {"ids": one_of(self.ids, PLACES, "--ids")}


@dataclass(frozen=True)
class Scoring:
    """Options of `score` that every kind of index takes."""

    asked: Asked
    runs: Runs
    force: bool
    json_: bool
