"""All files of hash tables that are made of the vectors of indexes and of new ones.

What the manifest says of a file is noted when the file is written, for runs that resume: these write it no second time.
"""

from __future__ import annotations

import json
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
from indexmill.formats.lsh.names import BASE
from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.pipeline.generations.kept import copy_kept, kept_rows, kept_user_ids, write_kept_metadata
from indexmill.pipeline.generations.outputs import Output, write_all
from indexmill.pipeline.generations.tables.chains import Chains
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.parts import ChainPart, HashedPart, Part
from indexmill.pipeline.mill.ahead import read_ahead

#: New vectors copied at a time.
_BLOCK = 8192
#: Notes of the values of vectors, and of chains.
_VECTORS_NOTE, _CHAINS_NOTE = "vectors.json", "chains.json"


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
        write_all(self.outputs(scratch, scratch), directory, advance)
        return self.written(scratch)

    def outputs(self, notes: Path, scratch: Path) -> list[Output]:
        """Return all files but the manifest; the steps of tables are entries, those of other files none.

        Parameters
        ----------
        notes, scratch : Path
            Folders, for `written` and for files that are gone in the end.
        """
        others = other_outputs(notes, self._indexes, self._left, self._arrived, self._form)
        write, beside = partial(self._write_chains, notes, scratch), (BASE.buckets, _CHAINS_NOTE)
        return [*others, Output(BASE.tables, self.shape.n_entries, write, beside)]

    def written(self, notes: Path) -> Written:
        """Return what was written, given the folder of its notes."""
        noted = json.loads((notes / _CHAINS_NOTE).read_text())
        facts = {**noted_values(notes), "bitmap_bytes": self.shape.bitmap_bytes, **noted["facts"]}
        return Written(facts, noted["chain_blocks"], noted["chain_blocks_before"])

    def _write_chains(self, notes: Path, scratch: Path, path: Path, advance: Callable[[int], None]) -> None:
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
        chains.write(path, scratch, advance)
        of_each = [
            None if part is None else part.chain_blocks / (index.n_in_tables * self.shape.n_tables)
            for part, index in zip(before, self._indexes, strict=True)
        ]
        note = {"facts": chains.facts(), "chain_blocks": chains.chain_blocks, "chain_blocks_before": of_each}
        write_json_atomic(notes / _CHAINS_NOTE, note)

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


def other_outputs(
    notes: Path,
    indexes: Sequence[OpenedTables],
    left: Sequence[NDArray[np.int64]],
    arrived: Arrived | None,
    form: TablesForm,
) -> list[Output]:
    """Return all files of new tables but the tables themselves: vectors, functions, ids and metadata.

    Parameters
    ----------
    notes : Path
        Folder, for `noted_values`.
    indexes, left, arrived, form
        As of `NewTables`.
    """
    n = sum(map(len, left)) + (0 if arrived is None else len(arrived.stored))
    base = form.of.files

    def vectors(path: Path, advance: Callable[[int], None]) -> None:
        extremes, metric = _Extremes(), base.vectors.metric
        with writing_vectors(path, base.vectors.row_format, n, metric, form.max_norm) as file:
            for rows in read_ahead(extremes.seen(_rows(indexes, left, arrived, form))):
                file.write(rows)
        norm = {"l2": None, "cosine": 1.0, "ip": form.max_norm}[metric]
        write_json_atomic(notes / _VECTORS_NOTE, extremes.facts(norm))

    def functions(path: Path, advance: Callable[[int], None]) -> None:
        write_functions(path, form.shape(n), base.functions, base.defaults)

    def ids(path: Path, advance: Callable[[int], None]) -> None:
        users = kept_user_ids(indexes, left, None if arrived is None else arrived.user_ids)
        write_ids(path, np.arange(n, dtype=np.uint32), users)

    def metadata(path: Path, advance: Callable[[int], None]) -> None:
        write_kept_metadata(path, indexes, left, None if arrived is None else arrived.metadata)

    found = [
        Output(VECTORS_NAME, 0, vectors, (_VECTORS_NOTE,)),
        Output("functions.imx", 0, functions),
        Output("ids.imx", 0, ids),
    ]
    if indexes[0].metadata is not None:
        found.append(Output(METADATA_NAME, 0, metadata))
    return found


def noted_values(notes: Path) -> dict[str, float]:
    """Return ``max_abs`` and ``extent`` of all vectors, for key ``lsh`` of the manifest, from `notes`."""
    values: dict[str, float] = json.loads((notes / _VECTORS_NOTE).read_text())
    return values


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
