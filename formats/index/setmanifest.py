"""manifest.json of a set of indexes: its parts by build id, and the router (docs/formats/set.md)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, ForeignFile, FormatError
from indexmill.formats.index.checked import (
    FORMAT_NAME,
    MOST_BYTES,
    SET_KIND,
    checked_json,
    write_checked_json,
)
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.pagefile.frame import VERSION, check_version, corrupt

#: Most bytes in a manifest of a number of the router with its line, of what else a part has, and of the other keys.
_NUMBER_BYTES, _PART_BYTES, _OTHER_BYTES = 33, 200, 1 << 20


@dataclass(frozen=True)
class Margin:
    """How far beyond the border of a part queries ask it, and what the build chose that by.

    Attributes
    ----------
    value : float
        In units of the distance between two centroids.
    share : float
        Of the nearest neighbours of the queries, those in parts that are asked with this margin.
    neighbours : int
        Nearest neighbours of a query.
    queries : int
    drawn_from : str
        ``"vectors"``, each of which was asked for its neighbours among all others; or ``"query_sample"``, that of the
        job.
    """

    value: float
    share: float
    neighbours: int
    queries: int
    drawn_from: str


@dataclass(frozen=True)
class Part:
    """One part of a set: an index in directory `name`, with its build id (64 hex digits) and number of vectors."""

    name: str
    build_id: str
    vectors: int


@dataclass(frozen=True, eq=False)
class SetManifest:
    """Content of a set's manifest.json.

    Attributes
    ----------
    parts : tuple of Part
        Named ``part-000``, ``part-001`` and so on.
    centroids : float32 array, shape (n_parts, dim)
    weights : float32 array, shape (n_parts,)
        A vector x belongs to the part of least ``|x - c|^2 + w``; under cosine, x has unit length.
    parameters, input, software : mapping
        Of the job, whose parameters are those of every part; shape, type and ids of the input; versions.
    codes : str or None
        What the codes of all parts have in common, as 64 hex digits; None where they have no codes, or codes of their
        own, as in a set of an earlier version.
    margin : Margin or None
        None under inner product, and in a set of an earlier version.
    """

    parts: tuple[Part, ...]
    centroids: NDArray[np.float32]
    weights: NDArray[np.float32]
    parameters: Mapping[str, Any]
    input: Mapping[str, Any]
    software: Mapping[str, Any]
    codes: str | None = None
    margin: Margin | None = None

    @property
    def build_id(self) -> str:
        """64 hex digits: the SHA-256 of names and build ids of the parts, and of the router."""
        lines = "".join(f"{part.name} {part.build_id}\n" for part in self.parts)
        router = self.centroids.astype("<f4").tobytes() + self.weights.astype("<f4").tobytes()
        return hashlib.sha256(lines.encode() + router).hexdigest()

    @property
    def n_vectors(self) -> int:
        """Number of vectors of all parts."""
        return sum(part.vectors for part in self.parts)


def part_name(number: int) -> str:
    """Return the name of the directory of a part."""
    return f"part-{number:03d}"


def check_n_parts(parts: int, dim: int) -> None:
    """Check, before anything is built, that the manifest of a set may hold so many centroids.

    Raises
    ------
    ConfigError
        Naming the most parts of vectors of `dim` components.
    """
    most = (MOST_BYTES - _OTHER_BYTES) // (_NUMBER_BYTES * (dim + 1) + _PART_BYTES)
    if parts > most:
        raise ConfigError(
            f"parts: expected at most {most:,} for vectors of {dim:,} components, got {parts:,}: the manifest has a "
            f"centroid for each part, and at most {MOST_BYTES >> 20} MiB; ask for fewer parts"
        )


def write_set_manifest(directory: str | Path, manifest: SetManifest) -> None:
    """Write manifest.json atomically; with it the directory becomes a set.

    Raises
    ------
    ValueError
        If a number of the router is not finite.
    """
    major, minor = VERSION
    value = {
        "format": {"name": FORMAT_NAME, "major": major, "minor": minor},
        "kind": SET_KIND,
        "build_id": manifest.build_id,
        "parameters": dict(manifest.parameters),
        "input": dict(manifest.input),
        "software": dict(manifest.software),
        **({} if manifest.codes is None else {"codes": manifest.codes}),
        "parts": [vars(part) for part in manifest.parts],
        **({} if manifest.margin is None else {"margin": asdict(manifest.margin)}),
        "router": {"centroids": manifest.centroids.tolist(), "weights": manifest.weights.tolist()},
    }
    write_checked_json(Path(directory) / MANIFEST_NAME, value)


def read_set_manifest(directory: str | Path) -> SetManifest:
    """Read and check a set's manifest.json; `check_parts` looks at the parts.

    Raises
    ------
    ForeignFile
        If there is no manifest of a set.
    TooNew, TooOld
        If this version does not support the format version.
    CorruptFile
        If the digest differs, or a key is missing or malformed.
    """
    path = Path(directory) / MANIFEST_NAME
    try:
        value = checked_json(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        value = {}
    if value.get("kind") != SET_KIND:
        raise ForeignFile(f"{path}: expected the manifest of a set of indexes, got none; check the path")
    try:
        check_version(value["format"]["major"], value["format"]["minor"], path)
        parts = tuple(
            Part(str(one["name"]), str(one["build_id"]), int(one["vectors"])) for one in value["parts"]
        )
        router = value["router"]
        manifest = SetManifest(
            parts,
            np.array(router["centroids"], np.float32),
            np.array(router["weights"], np.float32),
            dict(value["parameters"]),
            dict(value["input"]),
            dict(value["software"]),
            None if value.get("codes") is None else str(value["codes"]),
            None if value.get("margin") is None else _margin(value["margin"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt(path, "keys of a set", "those of docs/formats/set.md", repr(error)) from error
    _check(manifest, value.get("build_id"), path)
    return manifest


def _margin(value: Mapping[str, Any]) -> Margin:
    return Margin(
        float(value["value"]),
        float(value["share"]),
        int(value["neighbours"]),
        int(value["queries"]),
        str(value["drawn_from"]),
    )


def _check(manifest: SetManifest, build_id: Any, path: Path) -> None:
    """Raise `CorruptFile` unless names, shapes and build id of a manifest go together."""
    n = len(manifest.parts)
    names = [part_name(number) for number in range(n)]
    if [part.name for part in manifest.parts] != names:
        raise corrupt(path, "key 'parts': names", "part-000, part-001, ...", [p.name for p in manifest.parts])
    shape, dim = manifest.centroids.shape, manifest.input.get("dim")
    if n == 0 or shape != (n, dim) or manifest.weights.shape != (n,):
        raise corrupt(path, "key 'router'", f"{n} centroids of {dim} numbers, {n} weights", f"shape {shape}")
    if not (np.isfinite(manifest.centroids).all() and np.isfinite(manifest.weights).all()):
        raise corrupt(path, "key 'router'", "finite numbers", "others")
    if manifest.margin is not None and not 0 <= manifest.margin.value < math.inf:
        raise corrupt(path, "key 'margin': value", "a finite number from 0 on", manifest.margin.value)
    if manifest.build_id != build_id:
        raise corrupt(path, "build_id", manifest.build_id, build_id)


def check_parts(directory: str | Path, manifest: SetManifest) -> None:
    """Check that every part is there and is the one that the set was built with; no vector is read.

    Raises
    ------
    FormatError
        Naming the part that is missing, damaged, of another build or with other codes.
    """
    for part in manifest.parts:
        path = Path(directory) / part.name
        if not (path / MANIFEST_NAME).is_file():
            raise FormatError(
                f"{path}: part {part.name} of the set is missing; expected the index with build id "
                f"{part.build_id[:16]}; copy it there again, or build the set again"
            )
        found = parse_manifest(path)
        if found.build_id != part.build_id:
            raise FormatError(
                f"{path}: part {part.name} is of another build: expected build id {part.build_id[:16]}, got "
                f"{found.build_id[:16]}; copy the right part there, or build the set again"
            )
        codes = found.input.get("codes")
        if manifest.codes is not None and codes != manifest.codes:
            got = "none of a set" if codes is None else str(codes)[:16]
            raise FormatError(
                f"{path}: part {part.name} has other codes: expected {manifest.codes[:16]}, got {got}; copy the right "
                "part there, or build the set again"
            )
