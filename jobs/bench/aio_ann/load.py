"""Read random blocks of a file past the page cache at a stated rate, until standard input ends.

    python -m indexmill.jobs.bench.aio_ann.load FILE MB_PER_S

Prints a line when it begins, and in the end the rate that it had, as JSON: less than asked where the disk is slower.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import threading
import time
from pathlib import Path

#: Large enough that Python has little to do, and small enough to be one request of most disks.
BLOCK_BYTES = 256 << 10


def main() -> None:
    path, interval = Path(sys.argv[1]), BLOCK_BYTES / (1e6 * float(sys.argv[2]))
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    print(json.dumps({"mb_per_s": read(path, interval, ended)}))


def read(path: Path, interval: float, ended: threading.Event) -> float:
    """Read a block every `interval` seconds until `ended` is set; return the megabytes a second."""
    blocks = path.stat().st_size // BLOCK_BYTES
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer, random_block, done = mmap.mmap(-1, BLOCK_BYTES), random.Random(1), 0
    began = due = time.perf_counter()
    print("reads", flush=True)
    try:
        while not ended.wait(max(0.0, due - time.perf_counter())):
            os.preadv(handle, [buffer], BLOCK_BYTES * random_block.randrange(blocks))
            done += BLOCK_BYTES
            due = max(due + interval, time.perf_counter() - 1)  # a second behind at most is made good
    finally:
        os.close(handle)
    return done / 1e6 / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
