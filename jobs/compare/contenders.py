"""The indexes of a comparison: opened, named, and checked to answer the same queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import InputError
from indexmill.jobs.kinds.opening import load_manifest, open_index

if TYPE_CHECKING:
    from indexmill.reader.index import Index


@dataclass(frozen=True)
class Contender:
    """One index of a comparison under the name that tables and plots show.

    Attributes
    ----------
    again : bool
        Whether it is the first index once more: the A/A run, whose ratios show the noise.
    """

    name: str
    index: Index
    manifest: dict[str, Any]
    again: bool = False


def open_contenders(paths: Sequence[Path], engine: str = "auto") -> list[Contender]:
    """Open all indexes, and the first one twice; check that the same queries fit them.

    Returns
    -------
    list of Contender
        In the order of `paths`; the first index once more at the end.

    Raises
    ------
    InputError
        If they differ in number of vectors, dimensions or metric.
    """
    names = unique_names([str(path) for path in paths])
    contenders = [
        Contender(name, open_index(path, engine), load_manifest(path))
        for name, path in zip(names, paths, strict=True)
    ]
    first = contenders[0].index
    for other in contenders[1:]:
        ours = (len(first), first.dim, first.metric)
        theirs = (len(other.index), other.index.dim, other.index.metric)
        if ours != theirs:
            raise InputError(
                f"{other.index.path}: {theirs[0]:,} vectors of {theirs[1]} dimensions, {theirs[2]}, but"
                f" {first.path} has {ours[0]:,} of {ours[1]}, {ours[2]}; compare indexes of the same input"
            )
    name = f"{names[0]} again"
    while name in names:
        name += " again"
    return [*contenders, Contender(name, open_index(paths[0], engine), contenders[0].manifest, again=True)]


def unique_names(paths: Sequence[str]) -> list[str]:
    """Short names of index directories: the last component, or the whole path where that would repeat."""
    paths = [
        path.encode("utf-8", "replace").decode("utf-8") for path in paths
    ]  # Linux allows any bytes in a path
    short = [path.rstrip("/").rsplit("/", 1)[-1] for path in paths]
    names = [one if short.count(one) == 1 else path for one, path in zip(short, paths, strict=True)]
    return [f"{name} ({i + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)]
