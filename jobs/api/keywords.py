"""Keywords of functions that run alike: the types that describe them, and the refusal of others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal, TypedDict


class RunKeywords(TypedDict, total=False):
    """Keywords of every job that writes a file or an index: how it runs, never what it writes."""

    memory: int | str
    workers: int
    force: bool


class ScratchKeywords(RunKeywords, total=False):
    """Keywords of a job with scratch files."""

    work: str | os.PathLike[str] | None


class ChangeKeywords(ScratchKeywords, total=False):
    """Keywords of a job that makes the next generation of an index."""

    keep_generations: int | None


class JoinKeywords(ScratchKeywords, total=False):
    """Keywords of a job that may run on a cluster."""

    executor: Literal["local", "ray"]
    ray_address: str | None


class ExportKeywords(TypedDict, total=False):
    """Keywords of an export: how an index with deletions is compacted, or where fragments of a dataset are indexed."""

    memory: int | str
    executor: Literal["local", "ray"]
    ray_address: str | None
    workers: int
    work: str | os.PathLike[str] | None


def check_keywords(function: str, given: Iterable[str], known: Any) -> None:
    """Raise Python's own error for a keyword that the TypedDict `known` lacks, naming the function."""
    for name in given:
        if name not in known.__optional_keys__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
