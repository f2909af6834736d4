"""Cost of the steps of an update of hash tables: entries of new vectors, and all entries and bytes that stream by.

Where tables stay, those are the entries of added tables, and the bytes of vectors and ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.append.tables.added import shape_beside
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.memory import added_bytes, needed_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import others_bytes, pair_bytes
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.lsh.seconds import Rates
from indexmill.pipeline.merge.record import largest
from indexmill.pipeline.update.predicted import Predicted, State, scaled, sealed_seconds
from indexmill.pipeline.update.rebuild import Rebuild
from indexmill.pipeline.update.source import outlined
from indexmill.pipeline.update.spec import UpdateSpec


class TablesPredictor:
    """See `Predictor`."""

    def __init__(
        self,
        indexes: Sequence[OpenedTables],
        spec: UpdateSpec,
        added: VectorSource | None,
        n: int,
        place: Path,
    ) -> None:
        self._indexes = indexes
        self._form = TablesForm.common(indexes, largest(indexes))
        base = self._form.of
        rows = base.files.vectors.read(0, min(base.n, 16_384))[:, : base.dim]
        source = outlined(n, base.dim, base.input_dtype, added, rows)
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
        shape = self._form.shape(after.n)
        again = [self._form.must_hash(index, shape) for index in self._indexes]
        read = sum(state.bytes for state, hashed in zip(states, again, strict=True) if not hashed)
        hashed = sum(state.left for state, is_hashed in zip(states, again, strict=True) if is_hashed)
        return self._written(read, after, 0, hashed=hashed)

    def append(self, before: State, added: int) -> Predicted:
        """See `Predictor.append`."""
        after = before.with_added(added)
        beside = self._added_tables(after.n)
        return self._written(before.bytes, after, added) if beside is None else self._beside(beside, added)

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
        beside = 0 if self._added_tables(before.n) is None else before.n - self._merged_n
        return self._written(before.bytes, before.without_deleted(), 0, beside)

    @property
    def _merged_n(self) -> int:
        """Vectors before the append, and after the merge if there is one."""
        if len(self._indexes) == 1:
            return self._indexes[0].n
        return sum(index.n - len(index.deleted) for index in self._indexes)

    def _added_tables(self, n: int) -> LshShape | None:
        """Return the shape of the added tables of an index that has got `n` vectors; None if it has none."""
        # a merge leaves none
        stay = self._indexes[0].n_in_tables if len(self._indexes) == 1 else self._merged_n
        return shape_beside(self._form.shape(stay), n) if n > stay else None

    def _beside(self, shape: LshShape, added: int) -> Predicted:
        """Return what added tables of `shape` take, with so many new vectors, and all files but the tables."""
        indexes = self._indexes
        of = sum(index.n for index in indexes)
        others = sum(map(others_bytes, indexes)) * shape.n_vectors // of
        memory = added_bytes(indexes, shape, added)
        return self._streamed(shape, added, others, others + pair_bytes(shape), memory)

    def _written(self, read: int, after: State, added: int, beside: int = 0, hashed: int = 0) -> Predicted:
        """Return what streaming tables with so many new vectors takes; `beside` as for `needed_bytes`.

        Parameters
        ----------
        hashed : int
            Vectors of the indexes that are hashed again.
        """
        shape = self._form.shape(after.n)
        numbers = [index.n for index in self._indexes]
        memory = needed_bytes(self._indexes, numbers, added, beside, self._form)
        return self._streamed(shape, added, read, after.bytes, memory, hashed)

    def _streamed(
        self, shape: LshShape, added: int, read: int, written: int, memory: int, hashed: int = 0
    ) -> Predicted:
        """Return what writing tables of `shape` takes, with so many new vectors, and bytes `read` and `written`.

        Parameters
        ----------
        memory : int
            For all vectors of the indexes, and those added.
        hashed : int
            See `_written`.
        """
        rates, row = self._rates, self._indexes[0].files.vectors.row_format.vector_bytes
        new = shape.n_entries * (added + hashed) // shape.n_covered
        seconds = {
            **({"ingest": added * (rates.reading + row * rates.writing)} if added else {}),
            "tables": shape.n_entries * rates.sealing
            + new * (rates.hashing + rates.chaining)
            + sealed_seconds(read, 0.0)
            + written * rates.writing,
            "seal": sealed_seconds(written, 0.0),
        }
        of = sum(index.n for index in self._indexes) + added
        memory = scaled(memory, FIXED_BYTES, shape.n_vectors, of)
        return Predicted(seconds, memory, (added + hashed) * row + 8 * shape.n_pointers)
