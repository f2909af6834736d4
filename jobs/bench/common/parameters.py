"""Build parameters that all programs share, so that their indexes compare."""

from __future__ import annotations

#: DiskANN's published setting for SIFT-like data.
MAX_DEGREE = 32
BUILD_LIST_SIZE = 75
ALPHA = 1.2
PQ_BYTES = 32
#: Components beyond which codes have twice as many bytes.
_LONG = 512
SEED = 1
#: Page order of indexmill where no other is compared: that of a build which names none.
ORDER = "agglomerative"
#: Threads of builds and searches of all programs; diskannpy's batches deadlock with one.
THREADS = 2
BUILD_MEMORY = "8GiB"
#: KiB of vectors of a leaf of eCP, on average, as in its paper.
LEAF_KIB = 128


def pq_bytes(dim: int) -> int:
    """Return the bytes of a code of vectors of `dim` components."""
    return PQ_BYTES if dim <= _LONG else 2 * PQ_BYTES
