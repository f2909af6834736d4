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
from indexmill.formats.lsh.pair import TablePair

#: Columns of entries, ascending by the first one: buckets as int64, slots and fingerprints as uint32.
Columns = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


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

    def entries(self) -> Iterator[Columns]:
        """Yield bucket, slot and fingerprint of all entries, ascending by bucket, in the order of chains.

        Of a bucket that added tables have, too, entries of both chains follow each other in pieces. Buckets are
        numbered as in section ``pointers`` of tables.imx. Memory: 8 bytes a bucket, 32 a block.
        """
        mask = np.uint64((1 << self.files.shape.fingerprint_bits) - 1)
        return _merged([_entries(pair, mask) for pair in self.files.pairs])


def _entries(pair: TablePair, mask: np.uint64) -> Iterator[Columns]:
    """Yield the entries of a pair of files, with the bits of fingerprints that `mask` has."""
    owners = chain_owners(pair)
    order = np.argsort(owners, kind="stable")  # chains lead forward
    for blocks, numbers in read_blocks(pair, order):
        counts = counts_of(blocks)
        slots, fingerprints = pair.buckets.split(entries_of(blocks))
        buckets = np.repeat(owners[numbers], counts)
        yield buckets, slots.astype(np.uint32), (fingerprints & mask).astype(np.uint32)


def _merged(streams: list[Iterator[Columns]]) -> Iterator[Columns]:
    """Yield the entries of one or more streams, each ascending by bucket, ascending by bucket."""
    pieces = [next(stream) for stream in streams]
    while len(streams) > 1:
        last = min(int(buckets[-1]) for buckets, _, _ in pieces)
        ends = [int(np.searchsorted(buckets, last, side="right")) for buckets, _, _ in pieces]
        buckets, slots, fingerprints = (
            np.concatenate([piece[i][:end] for piece, end in zip(pieces, ends, strict=True)])
            for i in range(3)
        )
        order = np.argsort(buckets, kind="stable")
        yield buckets[order], slots[order], fingerprints[order]
        pieces = [(b[end:], s[end:], f[end:]) for (b, s, f), end in zip(pieces, ends, strict=True)]
        for at in reversed(range(len(streams))):
            if not len(pieces[at][0]):
                following = next(streams[at], None)
                if following is None:
                    del streams[at], pieces[at]
                else:
                    pieces[at] = following
    for piece, stream in zip(pieces, streams, strict=True):
        yield piece
        yield from stream
