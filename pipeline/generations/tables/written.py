"""All files and the manifest of hash tables that are made of the vectors of indexes and of new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.builders.lsh.rechain import GONE, Widths
from indexmill.builders.lsh.solve import extent_of
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME, writing_vectors
from indexmill.formats.lsh.functions import write_functions
from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.generations.kept import kept_rows, kept_user_ids, write_kept_metadata
from indexmill.pipeline.generations.tables.chains import Chains
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.parts import ChainPart, HashedPart, Part

#: New vectors copied at a time.
_BLOCK = 8192


@dataclass(frozen=True)
class Arrived:
    """Vectors that are hashed, in the order of their slots.

    Attributes
    ----------
    stored : array, shape (m, dim)
        As the index stores them; may be mapped.
    user_ids : pyarrow Array or None
    metadata : pyarrow ParquetFile or None
    place_of : callable
        Returns the file and row of one of them, by its number, as errors name them.
    """

    stored: NDArray[Any]
    user_ids: pa.Array | None
    metadata: pq.ParquetFile | None
    place_of: Callable[[int], str]


@dataclass(frozen=True)
class Written:
    """What was written, for the manifest.

    Attributes
    ----------
    facts : dict
        Changed facts of key ``lsh``.
    chain_blocks : float
        Blocks of the chain that an entry of the first radius lies in, on average.
    chain_blocks_before : list of float or None
        The same of each index; None if its vectors were hashed again.
    """

    facts: dict[str, Any]
    chain_blocks: float
    chain_blocks_before: list[float | None]


class NewTables:
    """Hash tables with the functions of the first of `indexes`: their vectors one after the other, and then new ones.

    Parameters
    ----------
    indexes : sequence of OpenedTables
        At least one; with equal functions.
    left : sequence of int64 array
        Slots of each index that stay, ascending.
    arrived : Arrived or None

    Attributes
    ----------
    shape : LshShape
        Of the result.
    n : int
        Its vectors.
    """

    def __init__(
        self, indexes: Sequence[OpenedTables], left: Sequence[NDArray[np.int64]], arrived: Arrived | None
    ) -> None:
        self._indexes, self._left, self._arrived = indexes, left, arrived
        self.n = sum(map(len, left)) + (0 if arrived is None else len(arrived.stored))
        self.shape = of_size(indexes[0].files.shape, self.n)

    def write(self, directory: Path, scratch: Path, advance: Callable[[int], None]) -> Written:
        """Write all files but the manifest to `directory`; `advance` counts entries of the tables.

        Raises
        ------
        IndexmillError
            As `Chains.write`.
        """
        first, extremes = self._indexes[0].files, _Extremes()
        vectors = first.vectors
        with writing_vectors(
            directory / VECTORS_NAME, vectors.row_format, self.n, vectors.metric, vectors.max_norm
        ) as file:
            for rows in self._rows():
                extremes.add(rows)
                file.write(rows)
        write_functions(directory / "functions.imx", self.shape, first.functions, first.defaults)
        parts = self._parts(scratch)
        chains = Chains(self.shape, parts, self._indexes[0].path / "buckets.imx")
        chains.write(directory, scratch, advance)
        added = self._arrived
        new_ids = None if added is None else added.user_ids
        users = kept_user_ids(self._indexes, self._left, new_ids)
        write_ids(directory / "ids.imx", np.arange(self.n, dtype=np.uint32), users)
        metadata = None if added is None else added.metadata
        write_kept_metadata(directory / METADATA_NAME, self._indexes, self._left, metadata)
        before = [
            part.chain_blocks / (index.n * self.shape.n_tables) if isinstance(part, ChainPart) else None
            for part, index in zip(parts, self._indexes, strict=False)
        ]
        norm = {"l2": None, "cosine": 1.0, "ip": vectors.max_norm}[vectors.metric]
        facts = {**extremes.facts(norm), "bitmap_bytes": self.shape.bitmap_bytes, **chains.facts()}
        return Written(facts, chains.chain_blocks, before)

    def _parts(self, scratch: Path) -> list[Part]:
        widths, parts, first = Widths(self.shape.id_bits, self.shape.fingerprint_bits), list[Part](), 0
        functions = self._indexes[0].files.functions
        for index, left in zip(self._indexes, self._left, strict=True):
            if must_hash(index, self.shape):
                rows = self._copied(index, left, scratch / f"rows-{first}.npy")
                parts.append(HashedPart(rows, first, functions, self.shape, partial(_place_of, index, left)))
            else:
                numbers = np.full(index.n, GONE, np.uint32)
                numbers[left] = np.arange(first, first + len(left), dtype=np.uint32)
                parts.append(ChainPart(index, numbers, widths))
            first += len(left)
        if self._arrived is not None:
            new = self._arrived
            parts.append(HashedPart(new.stored, first, functions, self.shape, new.place_of))
        return parts

    def _copied(self, index: OpenedTables, left: NDArray[np.int64], path: Path) -> NDArray[Any]:
        """Copy the vectors that stay to a mapped file."""
        form = index.files.vectors.row_format
        rows, at = create_npy(path, form.element_dtype, (len(left), form.dim)), 0
        for some in kept_rows(index.files.vectors, left):
            rows[at : at + len(some)] = some
            at += len(some)
        return rows

    def _rows(self) -> Iterator[NDArray[Any]]:
        for index, left in zip(self._indexes, self._left, strict=True):
            yield from kept_rows(index.files.vectors, left)
        if self._arrived is not None:
            stored = self._arrived.stored
            for at in range(0, len(stored), _BLOCK):
                yield np.asarray(stored[at : at + _BLOCK])


class _Extremes:
    """Least and greatest value of each component, of all rows that were added."""

    def __init__(self) -> None:
        self._low: NDArray[np.float64] | None = None
        self._high: NDArray[np.float64] | None = None

    def add(self, rows: NDArray[Any]) -> None:
        if len(rows):
            low, high = rows.min(axis=0).astype(np.float64), rows.max(axis=0).astype(np.float64)
            self._low = low if self._low is None else np.minimum(self._low, low)
            self._high = high if self._high is None else np.maximum(self._high, high)

    def facts(self, norm: float | None) -> dict[str, float]:
        assert self._low is not None
        assert self._high is not None
        most = float(max(np.abs(self._low).max(), np.abs(self._high).max()))
        return {"max_abs": most, "extent": extent_of(self._low, self._high, norm)}


def _place_of(index: OpenedTables, left: NDArray[np.int64], vector: int) -> str:
    return f"{index.name}: vector {left[vector]}"


def of_size(shape: LshShape, n: int) -> LshShape:
    """Return the shape of the same tables with `n` vectors."""
    return LshShape(n, shape.n_tables, shape.n_radii, shape.hash_bits, shape.block_bytes)


def must_hash(index: OpenedTables, shape: LshShape) -> bool:
    """Tell whether chains of `index` lack bits of fingerprints of `shape`, so that its vectors are hashed again.

    That is so where many vectors went, and tables have few buckets for their number.
    """
    return index.files.shape.fingerprint_bits < shape.fingerprint_bits
