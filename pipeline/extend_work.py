"""Where an append or merge works, one at a time for each output, and what it needs in memory."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indexmill.builders.navigation import NAVIGATION_VAMANA
from indexmill.builders.vamana import list_capacity
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.pipeline.budget import FIXED_BYTES
from indexmill.pipeline.extend_index import OpenedIndex

#: Bytes a vertex of the result: vector ids twice, walk over the edges, slots, and the edges of a batch.
_BYTES_PER_VERTEX = 56


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """Yield an empty directory beside `out`, locked; it goes when the block ends, and with the next call if killed.

    Raises
    ------
    ConfigError
        If another append or merge is writing `out`.
    """
    scratch = out.with_name(f".{out.name}.indexmill-extend")
    descriptor = _lock(scratch, out)
    try:
        for leftover in scratch.iterdir():
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        yield scratch
    finally:
        shutil.rmtree(scratch)
        os.close(descriptor)


def _lock(scratch: Path, out: Path) -> int:
    """Make `scratch` and lock it; the lock ends with this process, however it ends."""
    while True:
        scratch.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ConfigError(
                f"out: another append or merge is writing {out}; wait for it, or name another directory with --out"
            ) from None
        if scratch.exists() and os.path.samestat(os.fstat(descriptor), os.stat(scratch)):
            return descriptor
        os.close(descriptor)  # its last holder removed the directory while we opened it


def check_memory(memory: int, larger: OpenedIndex, added: int) -> None:
    """Refuse an extension that does not fit `memory` bytes; vectors and lists are mapped and do not count.

    Parameters
    ----------
    added : int
        Vectors to add; their ids are taken to be as long as those of `larger`.

    Raises
    ------
    BudgetError
        Naming what is needed.
    """
    n = larger.n + added
    node = larger.graph.node_format
    each = (
        _BYTES_PER_VERTEX + larger.codes.codebook.offsets.size
    )  # a search of the certificate holds the codes
    ids_bytes = larger.ids_bytes * n // larger.n
    tail = n - larger.built
    need = FIXED_BYTES + n * each + 3 * ids_bytes + tail * (8 * node.max_degree + 40)
    if larger.navigation is not None:
        share = len(larger.navigation.slots) / larger.n
        row = larger.space.dtype.itemsize * node.dim
        need += int(n * share) * (row + 4 * list_capacity(NAVIGATION_VAMANA.max_degree) + 140)
    if need > memory:
        raise BudgetError(
            f"memory: {larger.n:,} vectors and {added:,} more take {need:,} bytes beside the page cache, and the "
            f"budget is {memory:,}; give at least {need:,} bytes with --memory"
        )
