"""Buckets of all blocks of a pair of files, found by following all chains at once (docs/formats/lsh.md)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.lsh.blocks import next_of
from indexmill.formats.lsh.pair import TablePair
from indexmill.formats.lsh.shape import OFFSET_BITS, first_offset
from indexmill.formats.pagefile.frame import corrupt

#: Bytes of blocks read at a time.
_STEP_BYTES = 4 << 20
_MASK = np.uint64((1 << OFFSET_BITS) - 1)


def read_blocks(
    pair: TablePair, numbers: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield blocks and their numbers, in the order of `numbers`, up to `_STEP_BYTES` of consecutive blocks each."""
    step = _STEP_BYTES // pair.shape.block_bytes
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(numbers, cuts):
        for at in range(0, len(run), step):
            part = run[at : at + step]
            yield pair.buckets.read(int(part[0]), len(part)), part


def chain_owners(pair: TablePair) -> NDArray[np.int64]:
    """Return the table entry whose chain contains each block, int64 (n_blocks,), by following all chains.

    Memory: 8 bytes a bucket, 24 a block.

    Raises
    ------
    CorruptFile
        If a pointer does not lead to a later block, or a block is in no chain or in several.
    """
    pointers = pair.tables.all_pointers()
    buckets = pair.buckets
    entries = np.flatnonzero(pointers)
    heads = _block_numbers(
        pair, pointers[entries], lambda i: f"pointer {entries[i]} of {pair.tables.path.name}"
    )
    owners = np.full(buckets.n_blocks, -1, np.int64)
    following = _following(pair)
    times = np.bincount(np.concatenate([heads, following[following >= 0]]), minlength=buckets.n_blocks)
    bad = np.flatnonzero(times != 1)
    if len(bad):
        at = int(bad[0])
        raise buckets.corrupt(at, "chains", "one pointer that leads to it", f"{times[at]}")
    level, chains, longest = heads, entries, 0
    while len(level):  # terminates: every step leads to greater block numbers
        longest += 1
        owners[level] = chains
        after = following[level]
        level, chains = after[after >= 0], chains[after >= 0]
    if longest != buckets.longest_chain:
        raise corrupt(buckets.path, "field 'longest_chain'", longest, buckets.longest_chain)
    return owners


def _following(pair: TablePair) -> NDArray[np.int64]:
    """Read all blocks; return the number of the block that follows each one, greater than its own, or -1."""
    buckets = pair.buckets
    following = np.empty(buckets.n_blocks, np.int64)
    step = _STEP_BYTES // pair.shape.block_bytes
    for first in range(0, buckets.n_blocks, step):
        blocks = buckets.read(first, min(step, buckets.n_blocks - first))
        pointers = next_of(blocks)
        led = np.flatnonzero(pointers)
        numbers = _block_numbers(
            pair, pointers[led], lambda i, f=first, m=led: f"{buckets.name(f + m[i])}: next pointer"
        )
        back = np.flatnonzero(numbers <= first + led)
        if len(back):
            at = int(led[back[0]])
            name = buckets.name(int(numbers[back[0]]))
            raise buckets.corrupt(first + at, "next pointer", "a block further on (else a cycle)", name)
        part = following[first : first + len(blocks)]
        part[:] = -1
        part[led] = numbers
    return following


def _block_numbers(pair: TablePair, pointers: NDArray[np.uint64], where: object) -> NDArray[np.int64]:
    """Return the numbers of the blocks that `pointers` lead to; ``where(i)`` names the place of pointer i."""
    offsets, runs = (pointers & _MASK).astype(np.int64), (pointers >> np.uint64(OFFSET_BITS)).astype(np.int64)
    numbers, rest = np.divmod(offsets - first_offset(), pair.shape.block_bytes)
    n = pair.buckets.n_blocks
    bad = np.flatnonzero((rest != 0) | (numbers < 0) | (numbers >= n) | (runs < 1) | (runs > n - numbers))
    if len(bad):
        i = int(bad[0])
        pair.buckets.block_number(int(pointers[i]), where(i))  # type: ignore[operator]
    return numbers
