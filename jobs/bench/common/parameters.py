"""Build parameters that all programs share, so that their indexes compare."""

from __future__ import annotations

#: DiskANN's published setting for SIFT-like data.
MAX_DEGREE = 32
BUILD_LIST_SIZE = 75
ALPHA = 1.2
PQ_BYTES = 32
SEED = 1
#: Threads of builds and searches of all programs; diskannpy's batches deadlock with one.
THREADS = 2
BUILD_MEMORY = "8GiB"
