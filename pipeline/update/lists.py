"""Cost of the steps of an update of inverted lists: new rows cost what a build takes, others the bytes that move."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.append.lists.held import holds_vectors
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.lists.rewritten import needed_bytes as rewriting_bytes
from indexmill.pipeline.append.lists.run import needed_bytes as appending_bytes
from indexmill.pipeline.compact.certify import lists_bytes, lists_scratch_bytes
from indexmill.pipeline.kinds.common.certify import QUERIES
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES
from indexmill.pipeline.kinds.ivf.seconds import Rates
from indexmill.pipeline.merge.assigned import ListsForm, assigned_bytes
from indexmill.pipeline.merge.assigned import needed_bytes as merging_bytes
from indexmill.pipeline.merge.record import largest
from indexmill.pipeline.update.predicted import Predicted, State, scaled, sealed_seconds
from indexmill.pipeline.update.rebuild import Rebuild
from indexmill.pipeline.update.source import outlined
from indexmill.pipeline.update.spec import UpdateSpec

#: Rows that an append writes for each new one, where earlier batches are small: batches up to four times as large as
#: what follows are written anew, which for many equal appends is about every second time.
_REWRITTEN = 2


class ListsPredictor:
    """See `Predictor`."""

    def __init__(
        self,
        indexes: Sequence[OpenedLists],
        spec: UpdateSpec,
        added: VectorSource | None,
        n: int,
        place: Path,
    ) -> None:
        self._indexes, self._workers = indexes, spec.workers
        self._form = ListsForm.common(indexes, largest(indexes))
        base, rows = self._form.base, None
        if base.vectors is not None:
            rows = base.vectors.read(0, min(base.n, 4096))[:, : base.dim]
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
        indexes, rates = self._indexes, self._rates
        joined = self._rewritten(
            sum(state.bytes for state in states), after, sum(state.n for state in states)
        )
        form = self._form
        anew = [at for at, index in enumerate(indexes) if form.difference(index) is not None]
        if not anew:
            return joined
        n = sum(states[at].left for at in anew)
        each = rates.reading + rates.assigning / self._workers + rates.packing + rates.sorting
        memory = merging_bytes(indexes, form.base, [indexes[at] for at in anew], self._workers)
        scratch = sum(assigned_bytes(form, indexes[at], states[at].left) for at in anew)
        return Predicted({"assign": n * each, **joined.seconds}, memory, scratch)

    def append(self, before: State, added: int) -> Predicted:
        """See `Predictor.append`."""
        index, rates = self._form.base, self._rates
        each = before.bytes / before.n
        # ids, exact vectors and metadata are written anew; batches stay, but the last ones
        shared = sum(e.bytes for e in index.manifest.files) - sum(e.bytes for e in index.files.batches)
        written = int(shared * (before.n + added) / index.n + _REWRITTEN * added * each)
        row = index.dim * 4
        seconds = {
            "ingest": added * (rates.reading + row * rates.writing),
            "assign": added * rates.assigning / self._workers,
            "lists": added * (rates.packing + _REWRITTEN * rates.sorting),
            "emit": sealed_seconds(written, rates.writing),
        }
        n = before.n + added
        return Predicted(
            seconds,
            scaled(appending_bytes(index, added, self._workers), FIXED_BYTES, n, index.n + added),
            added * row,
        )

    def changes_without_deletions(self, before: State) -> bool:
        """See `Predictor.changes_without_deletions`."""
        return False

    def may_advise_compaction(self, before: State) -> bool:
        """See `Predictor.may_advise_compaction`."""
        return False

    def compact(self, before: State) -> Predicted:
        """See `Predictor.compact`."""
        index, rates, n = self._form.base, self._rates, before.left
        rewritten = self._rewritten(before.bytes, before.without_deleted(), before.n)
        if not holds_vectors(index):
            return rewritten
        scratch = lists_scratch_bytes(index, n)
        certify = QUERIES * (n * rates.comparing + rates.ranking) / self._workers + scratch * rates.writing
        memory = rewritten.memory + lists_bytes(index, n, self._workers)
        return Predicted({**rewritten.seconds, "certify": certify}, memory, scratch)

    def _rewritten(self, read: int, after: State, n: int) -> Predicted:
        """Return what reading so many bytes of `n` vectors and writing those of `after` takes."""
        rates, of = self._rates, sum(index.n for index in self._indexes)
        lists = sealed_seconds(read, 0.0) + after.n * rates.sorting + after.bytes * rates.writing
        seconds = {"lists": lists, "seal": sealed_seconds(after.bytes, 0.0)}
        return Predicted(seconds, scaled(rewriting_bytes(self._indexes), FIXED_BYTES, n, of))
