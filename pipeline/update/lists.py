"""Cost of the steps of an update of inverted lists: new rows cost what a build takes, others the bytes that move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.quantize.pq import TRAINING_VECTORS
from indexmill.formats.ivf.batch import list_pages
from indexmill.formats.ivf.centroids import CENTROIDS_NAME
from indexmill.formats.ivf.lists import ListReader
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.append.lists.batches import Batches
from indexmill.pipeline.append.lists.held import holds_vectors
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.append.lists.rewritten import needed_bytes as rewriting_bytes
from indexmill.pipeline.append.lists.run import needed_bytes as appending_bytes
from indexmill.pipeline.append.lists.scratch import copy_bytes
from indexmill.pipeline.compact.certify import lists_bytes, lists_scratch_bytes
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, THREAD_BYTES, exact_bytes
from indexmill.pipeline.kinds.common.seconds import TRAINING_ROUNDS
from indexmill.pipeline.kinds.ivf.seconds import Rates
from indexmill.pipeline.merge.assigned import ListsForm
from indexmill.pipeline.merge.assigned import needed_bytes as merging_bytes
from indexmill.pipeline.merge.codebook import Anew, anew_of, choice_bytes
from indexmill.pipeline.merge.record import largest
from indexmill.pipeline.update.batches import merged
from indexmill.pipeline.update.predicted import Predicted, State, file_bytes, scaled, sealed_seconds
from indexmill.pipeline.update.rebuild import Rebuild
from indexmill.pipeline.update.source import outlined
from indexmill.pipeline.update.spec import UpdateSpec

#: Seconds of reading a list of a batch beside its bytes, or of writing one; on the machine of the record of plans.
_LIST_SECONDS = 6e-5
#: Rows that are assigned, or coded, at a time.
_BLOCK = 8192
#: Pieces of rows and ids that are read and written, and pages on their way.
_PIECES_BYTES = 8 << 20
#: Types of vectors that are compared without copies.
_BYTE_TYPES = ("uint8", "int8")


class ListsPredictor:
    """See `Predictor`."""

    start_seconds: ClassVar[float] = 0.9

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
        indexes, form, (trains, anew) = self._indexes, self._form, self._anew
        read = sum(states[at].bytes for at in range(len(indexes)) if at not in anew)
        assigned = [self._assigned_bytes(indexes[at], states[at].left) for at in anew]
        joined = self._rewritten(
            read + sum(assigned), after.n, sum(state.n for state in states), len(indexes)
        )
        choice = choice_bytes(form, indexes, trains, self._workers)
        if not anew:
            return replace(
                joined, need=joined.need + choice, held=max(joined.held, self._opened_bytes + choice)
            )
        rates, counts = self._rates, [states[at].left for at in anew]
        found = sum(states[at].left for at in anew if not form.has_lists_of(indexes[at]))
        seconds = sum(counts) * (rates.reading + rates.packing + rates.sorting)
        seconds += found * rates.assigning / self._workers
        seconds += sealed_seconds(sum(assigned), rates.writing) + len(anew) * self._n_lists * _LIST_SECONDS
        held = max(joined.held, self._opened_bytes + self._assigning_bytes(max(counts)))
        held = max(held, self._opened_bytes + choice)
        # what is there while the last index is assigned, and then with the result
        working = sum(assigned) + counts[-1] * (self._vector_bytes + self._copies * self._row_bytes)
        return Predicted(
            {**(self._training_seconds(after.n) if trains else {}), "assign": seconds, **joined.seconds},
            merging_bytes(indexes, form.base, [indexes[at] for at in anew], self._workers, choice),
            held,
            max(working, sum(assigned) + joined.result),
            joined.result,
        )

    def append(self, before: State, added: int) -> Predicted:
        """See `Predictor.append`."""
        index, rates, n = self._form.base, self._rates, before.n + added
        rows, batches = self._spread(added), self._batches
        kept = batches.kept(added, rows, self._row_bytes)
        # batches stay but the last ones, which are written anew; so are ids, exact vectors and metadata
        behind = n - sum(batches.vectors[:kept])
        if len(self._indexes) == 1:
            stay = sum(entry.bytes for entry in index.files.batches[:kept])
        else:
            stay = sum(self._batches_bytes(batches.rows(at), batches.vectors[at]) for at in range(kept))
        anew = self._batches_bytes(self._sizes * ((behind - added) / index.n) + rows, behind)
        others = self._others(n)
        copy, coded = copy_bytes(index, added), added * self._copies * self._row_bytes
        lists = self._n_lists * (len(batches.vectors) - kept + -(-behind // batches.most))
        seconds = {
            "ingest": added * rates.reading + copy * rates.writing,
            "assign": added * rates.assigning / self._workers,
            "lists": added * rates.packing + lists * _LIST_SECONDS + (anew + coded) * rates.writing,
            "emit": self._n_lists * _LIST_SECONDS
            + others * rates.writing
            + sealed_seconds(anew + others, 0.0),
        }
        need = scaled(appending_bytes(index, added, self._workers), FIXED_BYTES, n, index.n + added)
        held = self._opened_bytes + self._assigning_bytes(added)
        result = stay + anew + others
        return Predicted(seconds, need, held, result + copy + coded, result, shared=stay)

    def changes_without_deletions(self, before: State) -> bool:
        """See `Predictor.changes_without_deletions`."""
        return False

    def may_advise_compaction(self, before: State) -> bool:
        """See `Predictor.may_advise_compaction`."""
        return False

    def compact(self, before: State) -> Predicted:
        """See `Predictor.compact`."""
        index, rates, n = self._form.base, self._rates, before.left
        rewritten = self._rewritten(before.bytes, n, before.n, 1)
        if not holds_vectors(index):
            return rewritten
        copied = lists_scratch_bytes(index, n)
        certify = (n * rates.comparing + QUERIES * rates.ranking) / self._workers
        certify += copied * rates.writing + 2 * self._n_lists * _LIST_SECONDS
        copied_rows = 0 if self._form.shared.dtype in _BYTE_TYPES else n
        # the neighbours are found before the lists of each query are ranked; threads keep their work space
        threads = (self._workers - 1) * THREAD_BYTES
        found = exact_bytes(copied_rows, self._form.shared.dim, QUERIES, K, self._workers) - threads
        certified = threads + max(found, 24 * QUERIES * self._n_lists)
        return replace(
            rewritten,
            seconds={**rewritten.seconds, "certify": certify},
            need=rewritten.need + lists_bytes(index, n, self._workers),
            held=max(rewritten.held, self._opened_bytes + certified),
            scratch=rewritten.result + copied,
        )

    def _rewritten(self, read: int, n: int, before: int, origins: int) -> Predicted:
        """Return what reading so many bytes of `before` vectors of several origins and writing `n` vectors takes."""
        rates, of = self._rates, sum(index.n for index in self._indexes)
        result = self._batches_bytes(self._sizes * (n / self._form.base.n), n) + self._others(n)
        lists = sealed_seconds(read, 0.0) + result * rates.writing + origins * self._n_lists * _LIST_SECONDS
        seconds = {"lists": lists, "seal": sealed_seconds(result, 0.0) + self._n_lists * _LIST_SECONDS}
        held = self._opened_bytes + 12 * before + _PIECES_BYTES
        need = scaled(rewriting_bytes(self._indexes), FIXED_BYTES, before, of)
        return Predicted(seconds, need, held, result, result)

    @property
    def _n_lists(self) -> int:
        return self._form.shared.n_lists

    @property
    def _copies(self) -> int:
        return self._form.shared.copies

    @property
    def _row_bytes(self) -> int:
        return self._form.shared.row_bytes

    @property
    def _vector_bytes(self) -> int:
        """Bytes of a vector as it is copied."""
        return self._form.shared.dim * np.dtype(self._form.shared.dtype).itemsize

    @cached_property
    def _anew(self) -> Anew:
        """What a merge makes anew."""
        return anew_of(self._form, self._indexes)

    def _training_seconds(self, n: int) -> dict[str, float]:
        """Return about what training a codebook on vectors of a merge of `n` takes; rows are coded as packed ones."""
        rates, rows = self._rates, min(n, TRAINING_VECTORS)
        each = rates.reading + rates.assigning + TRAINING_ROUNDS * rates.packing / self._workers
        return {"train": rows * each}

    @cached_property
    def _batches(self) -> Batches:
        """Batches that an append finds."""
        if len(self._indexes) == 1:
            return Batches.of(self._form.base)
        return merged(self._indexes, self._anew.places, self._form.base, self._sizes)

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        """Rows of each list of the index whose lists the result has."""
        with ListReader(self._form.base.files) as lists:
            return lists.sizes.astype(np.float64)

    def _spread(self, vectors: int) -> NDArray[np.int64]:
        """Return how many rows of so many vectors fall into each list, as those of the index do."""
        total = self._sizes.sum()
        rows = round(vectors * total / self._form.base.n)
        spread: NDArray[np.int64] = np.random.default_rng(0).multinomial(rows, self._sizes / total)
        return spread

    def _batches_bytes(self, sizes: NDArray[Any], n: int) -> int:
        """Return about how large the batches of `n` vectors are, with so many rows in each list."""
        batches = -(-n // self._form.base.most_vectors)
        pages = batches * int(list_pages(np.rint(sizes / batches), self._row_bytes).sum())
        return file_bytes(pages * PAGE_BYTES + 16 * batches * self._n_lists)

    def _others(self, n: int) -> int:
        """Return the bytes of centroids, and of ids, exact vectors and metadata of `n` vectors."""
        found = 0
        for index in self._indexes:
            constant = {entry.name for entry in index.files.batches} | {CENTROIDS_NAME}
            found += sum(entry.bytes for entry in index.manifest.files if entry.name not in constant)
        return self._centroids_bytes + found * n // sum(index.n for index in self._indexes)

    @property
    def _centroids_bytes(self) -> int:
        files = self._form.base.manifest.files
        return next(entry.bytes for entry in files if entry.name == CENTROIDS_NAME)

    def _assigned_bytes(self, index: OpenedLists, n: int) -> int:
        """Return about how large `index` is, of which `n` vectors stay, in the lists of another one."""
        ids = index.ids_bytes * n // index.n
        kept = 0 if index.vectors is None else n * self._vector_bytes
        return self._batches_bytes(self._spread(n).astype(np.float64), n) + self._centroids_bytes + ids + kept

    @property
    def _opened_bytes(self) -> int:
        """Bytes of open indexes: ids, centroids, and rotations."""
        shared = [index.files.centroids for index in self._indexes]
        ids = sum(4 * index.n + 3 * index.ids_bytes for index in self._indexes)
        return ids + sum(one.centroids.nbytes + one.rotation_bytes for one in shared)

    def _assigning_bytes(self, n: int) -> int:
        """Return about the memory of assigning and coding `n` vectors."""
        shared, rows = self._form.shared, min(n, _BLOCK)
        copies = 1 if shared.codec == "flat" else 3  # as floats; of codes also rotated, and residuals
        need = shared.centroids.nbytes + rows * 4 * shared.dim * copies + 16 * n * shared.copies
        if self._compares_bytes:
            return need + shared.centroids.nbytes  # rounded
        return need + 4 * shared.rotation_bytes + (self._workers - 1) * THREAD_BYTES

    @property
    def _compares_bytes(self) -> bool:
        """Whether vectors are compared as they are; else as floats, of which there are copies."""
        return self._form.shared.dtype in _BYTE_TYPES and self._form.shared.rotation is None
