"""The interface between commands and a kind of index: each kind is a module that has these names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from indexmill.jobs.score.asked import Scoring
    from indexmill.jobs.search.results import AnyIndex
    from indexmill.pipeline.cost.query import QueryCost
    from indexmill.pipeline.cost.recommend import Advice, Task
    from indexmill.pipeline.generations.run import RunOptions
    from indexmill.reader.index import RangeResult, SearchResult

#: Neighbours that a search finds unless it is told how many.
DEFAULT_K = 10


class Kind(Protocol):
    """A kind of index.

    Attributes
    ----------
    NAME : str
        As in manifests and as `--kind` takes it.
    TITLE : str
        What an index of this kind is, in an error.
    PANELS : mapping
        Panels of help pages for its parameters, and those that stand there even if several kinds have them; its
        others stand in the first, which its options of `search` and `score` have too.
    BY_RANGES : bool
        Whether it is searched at a URL, by requests for ranges of its files.
    PLACES : tuple of str
        Parts of an open index that one may place in memory or on storage.
    SHOWN : mapping
        Keys of a manifest that commands show or decide by, section by section, and their types; the format module
        checks only the sections. A list has at least one value, and as many as the other lists of its section.
    PLANNED : mapping
        Options of `plan` that decide how such an index is searched: name and the reader's keyword.
    SearchFlags, ScoreFlags : dataclass
        Options of `search` and of `score` that only this kind takes.
    """

    NAME: str
    TITLE: str
    PANELS: Mapping[str, Collection[str]]
    PLACES: Collection[str]
    BY_RANGES: bool
    SHOWN: Mapping[str, Mapping[str, Any]]
    PLANNED: Mapping[str, str]
    SearchFlags: type[OwnFlags]
    ScoreFlags: type[Any]

    def open_index(self, path: Path, engine: str, **places: Any) -> AnyIndex:
        """Open an index, its parts in the places given."""

    def search(
        self, index: Any, vectors: Any, k: int | None, options: dict[str, Any]
    ) -> SearchResult | RangeResult:
        """Search with the options given, by the reader's keywords; for `DEFAULT_K` neighbours without `k`."""

    def score(self, path: Path, common: Scoring, flags: Any) -> None:
        """Measure an index and print the rows: `indexmill score`."""

    def query_cost(
        self, path: Path, queries: Any, k: int, options: dict[str, Any], at_url: bool = False
    ) -> QueryCost:
        """Measure the cost of queries with the options given, by the reader's keywords.

        `at_url`, for a kind that is searched `BY_RANGES`: as the index would be searched at a URL, by the defaults
        there and with ids on storage.
        """

    def advice(self, task: Task) -> Advice:
        """Say what an index of this kind would cost for a task, and why it suits."""

    def explain(self, path: Path, options: RunOptions) -> tuple[dict[str, Any], list[str]]:
        """Say what binds an index, for `--json` and in words."""

    @property
    def rebuild(
        self,
    ) -> Callable[[Path, RunOptions, str | None], tuple[dict[str, Any] | None, list[str]]] | None:
        """What compares the format of an index with that of a build within a memory of searches, like `explain`.

        None if builds of the kind choose no format.
        """

    def summary(self, manifest: dict[str, Any]) -> dict[str, str]:
        """Say what an index is, in a few lines by name."""

    def plan_lines(self, plan: dict[str, Any]) -> dict[str, str]:
        """Say what the index of a planned build will be, in a few lines by name; `plan` is the JSON of a `Plan`."""

    def held(self, headers: dict[str, Any]) -> dict[str, int]:
        """Bytes that the reader holds of each file while an index is open, by the headers of its page files."""

    def header_lines(self, headers: dict[str, Any]) -> dict[str, str]:
        """Further lines of `inspect`, by name."""


class OwnFlags:
    """Options of `search` that one kind takes: a dataclass whose fields are the reader's keywords."""

    def places(self) -> dict[str, Any]:
        """Return the reader's keywords for opening the index."""
        return {}

    def options(self, index: Any) -> dict[str, Any]:
        """Return the reader's keywords that were given."""
        return {
            field.name: value
            for field in fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, field.name)) is not None
        }


def payload(headers: dict[str, Any], file: str, *sections: str) -> int:
    """Bytes of sections of a page file, as far as it has them."""
    there = headers.get(file, {"sections": {}})["sections"]
    return sum(int(there[name]["bytes"]) for name in sections if name in there)
