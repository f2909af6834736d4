"""An LSH index, as targets see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.exports.rows import ExportedIndex
from indexmill.formats.lsh.blocks import counts_of, entries_of
from indexmill.formats.lsh.chains import chain_owners, read_blocks
from indexmill.formats.lsh.index import LshFiles


@dataclass(frozen=True, kw_only=True)
class ExportedTables(ExportedIndex):
    """Hash tables as targets see them. A slot is a vector id.

    Attributes
    ----------
    files : LshFiles
    """

    KIND: ClassVar = "lsh"
    PARTS: ClassVar = frozenset({"clusters", "order", "ids", "metadata"})

    files: LshFiles

    @property
    def dim(self) -> int:
        """Components of the user's vectors; inner product stores one more."""
        return self.files.vectors.row_format.dim - (self.metric == "ip")

    @property
    def metric(self) -> str:
        """``l2``, ``ip`` or ``cosine``."""
        return self.files.vectors.metric

    def vectors(self) -> Iterator[NDArray[Any]]:
        """Yield the vectors in slot order, (m, dim): of unit length for cosine, without the added component for ip."""
        for _, rows in self.files.vectors.blocks():
            yield rows[:, : self.dim]

    def entries(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]]:
        """Yield bucket, slot and fingerprint of all entries, ascending by bucket, in the order of chains.

        Buckets are numbered as in section ``pointers`` of tables.imx. Memory: 8 bytes a bucket, 32 a block.
        """
        owners = chain_owners(self.files)
        order = np.argsort(owners, kind="stable")  # chains lead forward
        for blocks, numbers in read_blocks(self.files, order):
            counts = counts_of(blocks)
            slots, fingerprints = self.files.buckets.split(entries_of(blocks))
            yield np.repeat(owners[numbers], counts), slots.astype(np.uint32), fingerprints.astype(np.uint32)
