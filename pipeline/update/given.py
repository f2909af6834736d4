"""Inputs of an update job, opened, and digests that tell them from those of another job."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.index.manifest import Manifest, read_manifest
from indexmill.formats.kinds import KINDS
from indexmill.formats.sources.ids import IdList
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.generations.opened import check_there
from indexmill.pipeline.kinds.common.ingest import signature
from indexmill.pipeline.update.spec import UpdateSpec

#: Keys of a job that say where and how it runs, not what is in its result.
_NOT_SIGNED = {"base", "add", "delete", "out", "work", "memory", "workers", "force", "keep_generations"}


@dataclass(frozen=True)
class Given:
    """The inputs of a job besides its indexes.

    Attributes
    ----------
    open_add : callable or None
        Opens the vectors to add, given the names of the metadata columns of the index.
    ids : IdList or None
        Those to delete.
    """

    open_add: Callable[[Sequence[str]], VectorSource] | None
    ids: IdList | None


def read_bases(spec: UpdateSpec) -> list[Manifest]:
    """Return the manifests of the bases.

    Raises
    ------
    InputError
        If one is missing, or their kinds differ.
    """
    for base in spec.base:
        check_there(Path(base))
    manifests = [read_manifest(Path(base), KINDS) for base in spec.base]
    first = manifests[0]
    for base, manifest in zip(spec.base, manifests, strict=True):
        if manifest.kind != first.kind:
            raise InputError(
                f"base: {base}: an index of kind {manifest.kind}; expected {first.kind} as {spec.base[0]}; build one "
                "of them again, or leave it out"
            )
    return manifests


@dataclass(frozen=True)
class Signed:
    """What tells the inputs of a job from those of any other.

    Attributes
    ----------
    inputs : str
        64 hex digits that stand for what is merged, added and deleted, and how.
    brought : dict
        Of each index and file that brings vectors, by its name, 32 hex digits that stand for it alone. Inputs that are
        not local files are told together.
    """

    inputs: str
    brought: dict[str, str]


def signed_inputs(spec: UpdateSpec, given: Given, others: Mapping[str, Manifest]) -> Signed:
    """Return what tells the inputs of a job; files are told by path, size and time of change.

    Parameters
    ----------
    others : mapping of str to Manifest
        Of all bases but the one that the result replaces, by path.
    """
    brought = {base: manifest.state for base, manifest in others.items()}
    added = None
    if given.open_add is not None:
        source = given.open_add([])
        added = signature(source)
        is_local = all(map(os.path.isfile, source.paths))
        brought |= (
            dict(zip(source.paths, added, strict=True))
            if is_local
            else {", ".join(spec.add): " ".join(added)}
        )
    facts: dict[str, Any] = {
        "job": spec.model_dump(exclude=_NOT_SIGNED),
        "others": [manifest.state for manifest in others.values()],
        "add": added,
        "delete": None if spec.delete is None else _file_facts(spec.delete),
    }
    inputs = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return Signed(
        inputs, {name: hashlib.sha256(told.encode()).hexdigest()[:32] for name, told in brought.items()}
    )


def check_unchanged(before: Sequence[str], after: Sequence[str]) -> None:
    """Refuse to publish what was made of inputs that have changed since the job began.

    Raises
    ------
    ConfigError
    """
    if list(before) != list(after):
        raise ConfigError(
            "base: an index, or a file that is added or deleted, has changed since this job began; nothing was "
            "published; run the job again"
        )


def _file_facts(path: str) -> str:
    status = os.stat(path)
    return f"{os.path.abspath(path)} {status.st_size} {status.st_mtime_ns}"
