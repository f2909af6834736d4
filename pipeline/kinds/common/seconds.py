"""Timings that the predictions of every kind use: writing to disk, training PQ, finishing files."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

#: Bytes written to learn the speed of the disk.
_WRITE_BYTES = 32 << 20
#: PQ training, in encodings of the training rows: k-means has the cost of 10.5 iterations, each a little more than one.
TRAINING_ROUNDS = 12
#: Seconds of a byte of a finished file: it is hashed twice, before and after it has its build id.
HASH_SECONDS = 1.2e-9
#: Prefix of the names of trial files.
TRIAL_PREFIX = ".indexmill-trial-"


def write_seconds(directory: Path) -> float:
    """Return the seconds of a byte that is written and synced."""
    block = np.random.default_rng(0).bytes(1 << 20)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=TRIAL_PREFIX) as file:
        start = time.perf_counter()
        for _ in range(_WRITE_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return (time.perf_counter() - start) / _WRITE_BYTES
