"""The description of a target, by which the pipeline exports to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from indexmill.formats.errors import ConfigError
from indexmill.formats.exports.rows import Advance, ExportedIndex

#: Parts of an index that a target may keep, in the order of listings.
PARTS = ("graph", "codes", "clusters", "order", "pages", "entries", "ids", "metadata")

Exported = TypeVar("Exported", bound=ExportedIndex)


def kept(**parts: str) -> dict[str, str]:
    """Return the value of `Target.keeps` for a target that keeps these parts and no others."""
    return dict.fromkeys(PARTS, "no") | parts


@dataclass(frozen=True, kw_only=True)
class Target(Generic[Exported]):
    """A kind of file or directory that an engine opens.

    Attributes
    ----------
    name : str
        Value of ``--to``.
    holds : tuple of type
        Supported kinds of index, as targets see them.
    engine : str
        Engines that open it, with tested versions.
    keeps : mapping
        Whether each of `PARTS` is kept: ``"yes"``, ``"no"``, or a word or two.
    rebuilds : str
        Parts that the engine builds itself.
    passes : int
        Number of passes over all rows.
    check : callable
        ``check(index)`` raises ConfigError, before anything is written, if the target does not support the index.
    write : callable
        ``write(index, folder, advance)`` writes the files, and calls `advance` with numbers of finished rows.
    snippet : callable
        ``snippet(index, folder)``: code that opens the result in the engine and searches it.
    by_row : bool
        Whether `write`, `snippet` and the id map take the checked index in the form of `ExportedIndex.by_row`.
    """

    name: str
    holds: tuple[type[ExportedIndex], ...]
    engine: str
    keeps: Mapping[str, str]
    rebuilds: str = "nothing"
    passes: int = 1
    check: Callable[[Exported], None]
    write: Callable[[Exported, Path, Advance], None]
    snippet: Callable[[Exported, Path], str]
    by_row: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the supported kinds of index."""
        return tuple(one.KIND for one in self.holds)

    @property
    def parts(self) -> frozenset[str]:
        """Parts that an index of a supported kind may have."""
        return frozenset[str]().union(*(one.PARTS for one in self.holds))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `--list`."""
        return {
            "target": self.name,
            "kinds": list(self.kinds),
            "engine": self.engine,
            "keeps": {part: self.keeps[part] for part in PARTS},
            "rebuilds": self.rebuilds,
        }


def cannot_hold(target: str, what: str, got: object, holds: str, action: str) -> ConfigError:
    """Return the error for an index that a target does not support."""
    return ConfigError(f"to: {target}: {what} {got}, but {target} holds {holds}; {action}")


def check_count(target: str, n: int, most: int) -> None:
    """Refuse an index of `n` vectors for a target that numbers at most `most`.

    Raises
    ------
    ConfigError
        If there are more.
    """
    if n > most:
        action = "export the shards of an index one by one"
        raise cannot_hold(target, "vectors:", f"{n:,}", f"up to {most:,}", action)
