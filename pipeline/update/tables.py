"""Cost of the steps of an update of hash tables: entries of new vectors, and all entries and bytes that stream by.

Where tables stay, those are the entries of added tables, and the bytes of vectors and ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.append.tables.added import shape_beside
from indexmill.pipeline.append.tables.run import MEASURED
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.memory import (
    added_bytes,
    certified_bytes,
    expected_bytes,
    expected_certificate_bytes,
    needed_bytes,
)
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import copy_bytes, others_bytes, pair_bytes
from indexmill.pipeline.kinds.common.certify import QUERIES
from indexmill.pipeline.kinds.lsh.sample import table_blocks
from indexmill.pipeline.kinds.lsh.seconds import READS, Rates, search_seconds
from indexmill.pipeline.kinds.lsh.tasks import LshPlan
from indexmill.pipeline.merge.record import largest
from indexmill.pipeline.update.predicted import Predicted, State, file_bytes, sealed_seconds
from indexmill.pipeline.update.rebuild import Rebuild
from indexmill.pipeline.update.source import outlined
from indexmill.pipeline.update.spec import UpdateSpec

#: Vectors by which the blocks of tables are told.
_ROWS = 16_384
#: Bytes of a vector that is read, beside its user id: its vector id, its new number, and whether it is deleted.
_READ_BYTES = 24
#: Bytes of a pointer, in a mapped file and in a file of tables.
_POINTER_BYTES = 8


class TablesPredictor:
    """See `Predictor`."""

    start_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        indexes: Sequence[OpenedTables],
        spec: UpdateSpec,
        added: VectorSource | None,
        n: int,
        place: Path,
    ) -> None:
        self._indexes, self._workers = indexes, spec.workers
        self._form = TablesForm.common(indexes, largest(indexes))
        base = self._form.of
        self._rows = base.files.vectors.read(0, min(base.n, _ROWS))
        self._known: dict[tuple[int, int], float | None] = {}
        source = outlined(n, base.dim, base.input_dtype, added, self._rows[:, : base.dim])
        self._rebuild = Rebuild(base.parameters, source, spec, place)

    @cached_property
    def _rates(self) -> Rates:
        rates: Rates = self._rebuild.rates
        return rates

    def rebuild(self) -> tuple[float | None, str]:
        """See `Predictor.rebuild`."""
        return self._rebuild.foretold()

    def merge(self, states: list[State], after: State) -> Predicted:
        """See `Predictor.merge`."""
        shape, left = self._form.shape(after.n), [state.left for state in states]
        again = [self._form.must_hash(index, shape) for index in self._indexes]
        read = sum(state.bytes for state, hashed in zip(states, again, strict=True) if not hashed)
        hashed = sum(stay for stay, is_hashed in zip(left, again, strict=True) if is_hashed)
        need = needed_bytes(self._indexes, left, 0, form=self._form)
        return self._written(need, read, shape, hashed, copied=hashed * self._row)

    def append(self, before: State, added: int) -> Predicted:
        """See `Predictor.append`."""
        n, copy = before.n + added, copy_bytes(self._form.of, added)
        beside = self._added_tables(n)
        reading = {"ingest": added * self._rates.reading + copy * self._rates.writing}
        if beside is None:
            need = needed_bytes(self._indexes, self._merged, added, form=self._form)
            step = self._written(need, before.bytes, self._form.shape(n), added, copied=copy)
        else:
            step = self._beside(beside, added, copy)
        return replace(step, seconds={**reading, **step.seconds})

    def changes_without_deletions(self, before: State) -> bool:
        """See `Predictor.changes_without_deletions`: added tables become part of the tables."""
        return self._added_tables(before.n) is not None

    def may_advise_compaction(self, before: State) -> bool:
        """See `Predictor.may_advise_compaction`: known of an index that stays, and measured of added tables."""
        if before.n == self._indexes[0].n and len(self._indexes) == 1:
            return bool((self._indexes[0].drift or {}).get("compact"))
        return self._added_tables(before.n) is not None

    def compact(self, before: State) -> Predicted:
        """See `Predictor.compact`."""
        index, rates, n, form = self._form.of, self._rates, before.left, self._form
        vectors, workers, shape = n * self._row, self._workers, form.shape(before.left)
        # where fewer vectors leave room for longer fingerprints, all are hashed
        hashed = n if form.shape(before.n).fingerprint_bits < shape.fingerprint_bits else 0
        need, read = self._compacting_bytes(before, hashed), 0 if hashed else before.bytes
        written = self._written(need, read, shape, hashed, copied=vectors * (2 if hashed else 1))
        exact = n * rates.certifying / workers + vectors * rates.writing
        certify = exact + search_seconds(QUERIES, *self._measured(), workers)
        return replace(
            written,
            seconds={**written.seconds, "certify": certify},
            need=max(written.need, certified_bytes(index, n, workers)),
            held=max(written.held, expected_certificate_bytes(index, n, workers)),
        )

    def _compacting_bytes(self, before: State, hashed: int) -> int:
        """Return the memory that a compaction must be given, without that of its certificate.

        Parameters
        ----------
        hashed : int
            Of the vectors that are left, those that are hashed: all or none.
        """
        indexes, form = self._indexes, self._form
        stay = [before.left - hashed if index is form.of else 0 for index in indexes]
        is_beside = not hashed and self._added_tables(before.n) is not None
        need = needed_bytes(indexes, stay, hashed, before.n - sum(self._merged) if is_beside else 0, form)
        # vectors that the steps before add are read, too
        n = sum(index.n for index in indexes)
        each = _READ_BYTES + 3 * sum(index.ids_bytes for index in indexes) / n
        return need + int(max(0, before.n - n) * each)

    @property
    def _row(self) -> int:
        """Bytes of a stored vector."""
        return self._form.of.files.vectors.row_format.vector_bytes

    @property
    def _merged(self) -> list[int]:
        """Vectors of each index before the append, and after the merge if there is one."""
        if len(self._indexes) == 1:
            return [self._indexes[0].n]
        return [index.n - len(index.deleted) for index in self._indexes]

    def _added_tables(self, n: int) -> LshShape | None:
        """Return the shape of the added tables of an index that has got `n` vectors; None if it has none."""
        stay = self._in_tables
        return shape_beside(self._form.shape(stay), n) if n > stay else None

    @property
    def _in_tables(self) -> int:
        """Vectors in the tables that an append finds; a merge leaves no added tables."""
        return self._indexes[0].n_in_tables if len(self._indexes) == 1 else sum(self._merged)

    def _beside(self, shape: LshShape, added: int, copied: int) -> Predicted:
        """Return what added tables of `shape` take, with so many new vectors, and all files but the tables."""
        indexes, n = self._indexes, shape.n_vectors
        others, pair = self._others(n), self._pair_bytes(shape)
        stay = self._pair_bytes(self._form.shape(self._in_tables))
        step = self._streamed(shape, added, others, others + pair)
        # searches of the tables alone too, unless an earlier append made them
        searched = MEASURED * (1 if shape.n_covered > added else 2)
        measure = search_seconds(searched, *self._measured(), self._workers)
        result = stay + others + pair
        # pointers are gone once the tables that stay are taken over
        pointers = _POINTER_BYTES * shape.n_pointers
        return Predicted(
            {**step, "measure": measure},
            added_bytes(indexes, shape, added),
            expected_bytes(indexes, shape, added, self._form),
            max(result, others + pair + pointers) + copied,
            result,
            shared=max(0, stay - pointers),
        )

    def _written(self, need: int, read: int, shape: LshShape, hashed: int, copied: int) -> Predicted:
        """Return what streaming tables of `shape` takes, which must be given `need` bytes.

        Parameters
        ----------
        read : int
            Bytes of the files that are read.
        hashed : int
            Vectors that are hashed.
        copied : int
            Bytes of copies of vectors.
        """
        result = self._pair_bytes(shape) + self._others(shape.n_vectors)
        return Predicted(
            self._streamed(shape, hashed, read, result),
            need,
            expected_bytes(self._indexes, shape, hashed, self._form),
            result + max(copied, _POINTER_BYTES * shape.n_pointers),
            result,
        )

    def _streamed(self, shape: LshShape, hashed: int, read: int, written: int) -> dict[str, float]:
        """Return the seconds of tables of `shape`, with so many hashed vectors, and bytes `read` and `written`."""
        rates, new = self._rates, hashed * shape.n_tables * shape.n_radii
        hashing = new * (rates.hashing + rates.chaining)
        streaming = shape.n_entries * rates.sealing + sealed_seconds(read, 0.0) + written * rates.writing
        # one thread reads and hashes ahead of those that pack and write: about half of the shorter part is hidden
        tables = max(hashing, streaming) + min(hashing, streaming) / 2
        return {"tables": tables, "seal": sealed_seconds(written, 0.0)}

    def _others(self, n: int) -> int:
        """Return the bytes of all files but the tables, of `n` vectors."""
        return sum(map(others_bytes, self._indexes)) * n // sum(index.n for index in self._indexes)

    def _pair_bytes(self, shape: LshShape) -> int:
        """Return about how large tables of `shape` and their buckets are, as the first vectors fill them."""
        found = self._table_blocks(shape)
        if found is None:
            return pair_bytes(shape)
        blocks = int(found * shape.n_tables * (1 if shape.is_added else self._fuller))
        # added tables have the pointers of occupied buckets alone, nearly each of which has one block
        pointers = min(blocks, shape.n_pointers) if shape.is_added else shape.n_pointers
        return file_bytes(blocks * shape.block_bytes + _POINTER_BYTES * pointers + shape.bitmap_bytes)

    @cached_property
    def _fuller(self) -> float:
        """Blocks of the tables of the index, over those that the first vectors tell."""
        pair = self._form.of.files.pairs[0]
        found = self._table_blocks(pair.shape)
        return 1.0 if not found else pair.buckets.n_blocks / (found * pair.shape.n_tables)

    def _table_blocks(self, shape: LshShape) -> float | None:
        """Return about how many blocks one table of `shape` has, with all radii; None where that cannot be told."""
        key = (shape.n_covered, shape.block_bytes)
        if key not in self._known:
            f = self._form.of.files.functions
            seed, radii = self._form.of.parameters.seed, tuple(f.radii.tolist())
            plan = LshPlan(shape, f.n_functions, f.width, radii, f.dim, seed)
            rows: NDArray[np.float32] = np.asarray(self._rows[: shape.n_covered], np.float32)
            self._known[key] = table_blocks(rows, plan, shape.n_covered)
        return self._known[key]

    def _measured(self) -> tuple[float, float]:
        """Return vectors that a search compares, and its reads, about: by the certificate, else by the parameters."""
        index = self._form.of
        told: Mapping[str, Any] = index.manifest.certificate or {}
        distances = told.get("distances_mean") or index.files.defaults.candidates
        reads = told.get("reads_mean") or 2 * READS * index.files.shape.n_tables
        return float(distances), float(reads)
