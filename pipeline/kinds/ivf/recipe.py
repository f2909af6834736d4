"""The stages of an IVF index: what each reads, what decides it, and the tasks it is made of."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.pipeline.kinds.common.compute import compute_key
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.memory import sort_buffer_bytes
from indexmill.pipeline.kinds.common.shared import CODEBOOK_NAME
from indexmill.pipeline.kinds.ivf import certify, tasks
from indexmill.pipeline.kinds.ivf.parameters import IvfParameters
from indexmill.pipeline.kinds.ivf.shape import IvfShape
from indexmill.pipeline.kinds.ivf.tasks import Batch
from indexmill.pipeline.kinds.recipe import Recipe, sizes_of
from indexmill.pipeline.mill.stages import Mill, Stage, task_files


class IvfRecipe(Recipe):
    """The stages behind an IVF index; see `Recipe`.

    Parameters
    ----------
    shape : IvfShape
        With the resolved parameters.
    given : float32 array, shape (n_lists, dim), optional
        Centroids to use in place of trained ones.
    """

    p: IvfParameters

    def __init__(
        self, mill: Mill, ingest: Stage, summary: InputSummary, shape: IvfShape, memory: int,
        given: NDArray[np.float32] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(mill, ingest, summary, memory)
        self.shape, self.p, self.given = shape, shape.parameters, given
        self.cuts = shape.cuts(memory)
        self._cut = [0, *(last for cut in self.cuts for last in cut[1:])]
        self.sample = self._sample_stage(self.p.sample_vectors, self.p.seed)
        self.centroids = self._centroids()
        self.assign = self._assign()
        self.labels = task_files(self.assign.path, len(self._cut) - 1, "npy")
        self.pack = self._pack()
        self.lists = self._lists()
        self._end(
            self._emit(), certify.VERSION,
            lambda: (
                certify.certify_task, str(ingest.path), str(self.centroids.path), self.labels, self.p.seed,
            ),
            [self.assign, self.centroids],
        )  # fmt: skip

    def shared_files(self) -> list[tuple[Stage, str]]:
        """See `Recipe.shared_files`: the codebook of residuals."""
        return [(self.centroids, CODEBOOK_NAME)] if self.p.codec == "pq" else []

    def shared_parameters(self) -> dict[str, Any]:
        """See `Recipe.shared_parameters`: bytes and rotation of PQ codes."""
        p = self.p
        return {"pq_bytes": p.pq_bytes, "pq_rotation": p.pq_rotation} if p.codec == "pq" else {}

    def _centroids(self) -> Stage:
        what: dict[str, Any] = {
            "codec": self.p.codec,
            "pq_bytes": self.p.pq_bytes,
            "pq_rotation": self.p.pq_rotation,
            "code_bits": self.p.code_bits,
            "lists": self.p.lists,
            "seed": self.p.seed,
            **compute_key(self.p),
        }
        if self.given is not None:
            what["given"] = hashlib.sha256(self.given.tobytes()).hexdigest()
        return self._call(
            "centroids", tasks.CENTROIDS_VERSION, what, [self.ingest, self.sample],
            lambda: (
                tasks.centroids_task, str(self.ingest.path), str(self.sample.path), self.p, self.given,
            ),
        )  # fmt: skip

    def _n_lists(self) -> int:
        """Return the number of lists: fewer than wanted where the sample has fewer distinct vectors."""
        return len(tasks.load_centroids(self.mill.read(self.centroids)))

    def _assign(self) -> Stage:
        # what decides the lists of a vector, beside centroids
        closure = {"copies": self.p.copies, "closure": self.p.closure if self.p.copies > 1 else None}
        return self._by_rows(
            "assign", tasks.ASSIGN_VERSION, closure, [self.ingest, self.centroids], "npy", self._cut,
            lambda: (tasks.assign_task, (self.vectors, str(self.centroids.path), self.p), ()),
        )  # fmt: skip

    def _batches(self) -> list[Batch]:
        found, at = [], 0
        for number, cut in enumerate(self.cuts):
            labels = self.labels[at : at + len(cut) - 1]
            found.append(Batch(number, cut[0], cut[-1], tuple(labels)))
            at += len(labels)
        return found

    def _pack(self) -> Stage:
        what = {"batches": self.shape.batches, "codec": self.p.codec}

        def jobs() -> tuple[Any, list[tuple[Any, ...]]]:
            arguments: list[tuple[Any, ...]] = []
            for batch, cut in zip(self._batches(), self.cuts, strict=True):
                size = self.shape.chunk_batch_bytes(len(cut) - 1, self.memory)
                arguments += [
                    (self.vectors, str(self.centroids.path), self.p.compute, batch, labels, first, last, size)
                    for labels, (first, last) in zip(batch.labels, pairwise(cut), strict=True)
                ]
            return tasks.pack_task, arguments

        return self._tasks(
            "pack", tasks.PACK_VERSION, what, [self.assign, self.centroids, self.ingest], "chunk", self._cut,
            jobs, lambda: sizes_of(self._cut), unit="vectors",
        )  # fmt: skip

    def _lists(self) -> Stage:
        chunks = task_files(self.pack.path, len(self._cut) - 1, "chunk")

        def jobs() -> tuple[Any, list[tuple[Any, ...]]]:
            n_lists, buffer, at = self._n_lists(), sort_buffer_bytes(self.memory), 0
            arguments: list[tuple[Any, ...]] = []
            for batch in self._batches():
                mine = chunks[at : at + len(batch.labels)]
                arguments.append((batch, n_lists, self.shape.list_row_bytes, self.p.copies > 1, mine, buffer))
                at += len(mine)
            return tasks.lists_task, arguments

        return self._tasks(
            "lists", tasks.LISTS_VERSION, {}, [self.pack, self.assign, self.centroids], "imx",
            self.shape.batches, jobs, lambda: sizes_of(self.shape.batches), unit="vectors",
        )  # fmt: skip

    def _emit(self) -> Stage:
        files = task_files(self.lists.path, len(self.cuts), "imx")
        return self._call(
            "emit", tasks.EMIT_VERSION, {"metric": self.p.metric, "vectors": self.p.keep_vectors},
            [self.lists, self.centroids, self.ingest],
            lambda: (
                tasks.emit_task, str(self.ingest.path), str(self.centroids.path), files,
                sizes_of(self.shape.batches), self.p,
            ),
        )  # fmt: skip
