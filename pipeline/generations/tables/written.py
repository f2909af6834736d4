"""All files of hash tables that are made of the vectors of indexes and of new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from indexmill.pipeline.generations.kept import copy_kept, kept_rows, kept_user_ids, write_kept_metadata
from indexmill.pipeline.generations.tables.chains import Chains
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.parts import ChainPart, HashedPart, Part
from indexmill.pipeline.kinds.lsh.ahead import read_ahead

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

    def part(self, first: int, index: OpenedTables, shape: LshShape) -> HashedPart:
        """Return their entries in tables of `shape` with the functions of `index`; `first` is the first slot."""
        return HashedPart(self.stored, first, index.files.functions, shape, self.place_of)


@dataclass(frozen=True)
class Written:
    """What was written, for the manifest.

    Attributes
    ----------
    facts : dict
        Changed facts of key ``lsh``.
    chain_blocks : float or None
        Blocks of the chain that an entry of the first radius lies in, on average; None where tables stayed.
    chain_blocks_before : list of float or None
        The same of the tables of each index, without added ones; None if its vectors were hashed again or its tables
        stayed.
    """

    facts: dict[str, Any]
    chain_blocks: float | None
    chain_blocks_before: list[float | None]

    def lsh(self, before: Mapping[str, Any], drift: Mapping[str, Any]) -> dict[str, Any]:
        """Return key ``lsh`` of the manifest; `before` is that of the first index."""
        kept = {key: value for key, value in before.items() if key not in ("added", "drift")}
        return {**kept, **self.facts, "drift": drift}


class NewTables:
    """Hash tables of one form: the vectors of `indexes`, one index after the other, and then new ones.

    Added tables of an index become part of the tables.

    Vectors of an index with other functions are hashed again.

    Parameters
    ----------
    indexes : sequence of OpenedTables
        At least one.
    left : sequence of int64 array
        Slots of each index that stay, ascending.
    arrived : Arrived or None
    form : TablesForm, optional
        By default that of the first index.

    Attributes
    ----------
    shape : LshShape
        Of the result.
    stay : sequence of str
        Names of the files that the result takes over: none.
    """

    stay: Sequence[str] = ()

    def __init__(
        self, indexes: Sequence[OpenedTables], left: Sequence[NDArray[np.int64]], arrived: Arrived | None,
        form: TablesForm | None = None,
    ) -> None:  # fmt: skip
        self._indexes, self._left, self._arrived = indexes, left, arrived
        self._form = form or TablesForm.common(indexes)
        self.shape = self._form.shape(sum(map(len, left)) + (0 if arrived is None else len(arrived.stored)))

    def write(self, directory: Path, scratch: Path, advance: Callable[[int], None]) -> Written:
        """Write all files but the manifest to `directory`; `advance` counts entries of the tables.

        Raises
        ------
        IndexmillError
            As `Chains.write`.
        """
        facts = write_others(directory, self._indexes, self._left, self._arrived, self._form)
        parts, before = list[Part](), list[ChainPart | None]()
        first = 0
        for index, left in zip(self._indexes, self._left, strict=True):
            chains_of = self._chain_parts(index, left, first)
            before.append(chains_of[0] if chains_of else None)
            parts += chains_of or [self._hashed_part(index, left, first, scratch)]
            first += len(left)
        if self._arrived is not None:
            parts.append(self._arrived.part(first, self._form.of, self.shape))
        chains = Chains(self.shape, parts)
        chains.write(directory, scratch, advance)
        return Written(
            {**facts, "bitmap_bytes": self.shape.bitmap_bytes, **chains.facts()},
            chains.chain_blocks,
            [
                None if part is None else part.chain_blocks / (index.n_in_tables * self.shape.n_tables)
                for part, index in zip(before, self._indexes, strict=True)
            ],
        )

    def _chain_parts(self, index: OpenedTables, left: NDArray[np.int64], first: int) -> list[ChainPart]:
        """Return the entries of an index by its pairs of files; none where its vectors are hashed again."""
        if self._form.must_hash(index, self.shape):
            return []
        numbers = np.full(index.n, GONE, np.uint32)
        numbers[left] = np.arange(first, first + len(left), dtype=np.uint32)
        widths = Widths(self.shape.id_bits, self.shape.fingerprint_bits)
        return [ChainPart(pair, numbers, widths) for pair in index.files.pairs]

    def _hashed_part(
        self, index: OpenedTables, left: NDArray[np.int64], first: int, scratch: Path
    ) -> HashedPart:
        """Return the entries of an index, hashed from a mapped copy of its vectors that stay."""
        row = index.files.vectors.row_format
        rows = create_npy(scratch / f"rows-{first}.npy", row.element_dtype, (len(left), row.dim))
        copy_kept(index.files.vectors, left, rows, partial(self._form.stored, index))
        functions = self._form.of.files.functions
        return HashedPart(rows, first, functions, self.shape, partial(_place_of, index, left))


def write_others(
    directory: Path,
    indexes: Sequence[OpenedTables],
    left: Sequence[NDArray[np.int64]],
    arrived: Arrived | None,
    form: TablesForm,
) -> dict[str, float]:
    """Write all files of new tables but the tables themselves: vectors, functions, ids and metadata.

    The parameters are those of `NewTables`.

    Returns
    -------
    dict
        ``max_abs`` and ``extent`` of all vectors, for key ``lsh`` of the manifest.
    """
    n = sum(map(len, left)) + (0 if arrived is None else len(arrived.stored))
    base, extremes = form.of.files, _Extremes()
    vectors = base.vectors
    with writing_vectors(
        directory / VECTORS_NAME, vectors.row_format, n, vectors.metric, form.max_norm
    ) as file:
        for rows in read_ahead(extremes.seen(_rows(indexes, left, arrived, form))):
            file.write(rows)
    write_functions(directory / "functions.imx", form.shape(n), base.functions, base.defaults)
    users = kept_user_ids(indexes, left, None if arrived is None else arrived.user_ids)
    write_ids(directory / "ids.imx", np.arange(n, dtype=np.uint32), users)
    write_kept_metadata(
        directory / METADATA_NAME, indexes, left, None if arrived is None else arrived.metadata
    )
    return extremes.facts({"l2": None, "cosine": 1.0, "ip": form.max_norm}[vectors.metric])


def _rows(
    indexes: Sequence[OpenedTables], left: Sequence[NDArray[np.int64]], arrived: Arrived | None, form: TablesForm
) -> Iterator[NDArray[Any]]:  # fmt: skip
    for index, slots in zip(indexes, left, strict=True):
        for rows in kept_rows(index.files.vectors, slots):
            yield form.stored(index, rows)
    if arrived is not None:
        for at in range(0, len(arrived.stored), _BLOCK):
            yield np.asarray(arrived.stored[at : at + _BLOCK])


class _Extremes:
    """Least and greatest value of each component, of all rows that were seen."""

    def __init__(self) -> None:
        self._low: NDArray[np.float64] | None = None
        self._high: NDArray[np.float64] | None = None

    def seen(self, blocks: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """Yield blocks of rows, each once it is counted."""
        for rows in blocks:
            self._add(rows)
            yield rows

    def _add(self, rows: NDArray[Any]) -> None:
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
