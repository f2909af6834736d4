"""Reads of storage, made side by side, and again where no answer comes: the answer that comes first counts.

A read that hangs cannot be ended. So threads are daemons, and only the caller takes up what they return: a thread that
was left behind touches nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, NamedTuple, TypeVar

from indexmill.formats.errors import StorageError
from indexmill.reader.stored import TIMEOUT_S

T = TypeVar("T")

#: Seconds after which a read is made again beside the one that has no answer, and times that it is made.
PATIENCE_S, TRIES = TIMEOUT_S, 5
#: Least bytes a second that come, of all reads on their way: a slow line is given their time, too.
LEAST_BYTES_PER_S = 1 << 20
#: Reads at a time, and bytes of them.
_MOST_READS, _MOST_BYTES = 128, 256 << 20


class Read(NamedTuple, Generic[T]):
    """A read, which may be made twice at once, and how many bytes it moves."""

    make: Callable[[], T]
    n_bytes: int


class _Live:
    """A read that is being made."""

    def __init__(self) -> None:
        self.tries = self.unanswered = 0
        self.began = self.until = 0.0


def answers(reads: Sequence[Read[T]]) -> Iterator[tuple[int, T]]:
    """Yield the place of each read in `reads` and its answer, as answers come.

    Raises
    ------
    StorageError
        If no thread can be started.
    Exception
        What a read raised, if no other try of it may be answered yet.
    """
    arrived: SimpleQueue[tuple[int, T | None, Exception | None]] = SimpleQueue()
    waiting, live = deque(range(len(reads))), dict[int, _Live]()

    def begin(place: int) -> None:
        one = live.setdefault(place, _Live())
        one.tries, one.unanswered, one.began = one.tries + 1, one.unanswered + 1, time.monotonic()
        _start(reads[place].make, place, arrived)

    while waiting or live:
        n_bytes = sum(reads[place].n_bytes for place in live)
        while waiting and (not live or _has_room(len(live), n_bytes + reads[waiting[0]].n_bytes)):
            n_bytes += reads[waiting[0]].n_bytes
            begin(waiting.popleft())
        for one in live.values():
            one.until = max(one.until, one.began + PATIENCE_S + n_bytes / LEAST_BYTES_PER_S)
        again = {place: one.until for place, one in live.items() if one.tries < TRIES}
        patience = max(0.0, min(again.values()) - time.monotonic()) if again else None
        try:
            place, answer, error = arrived.get(timeout=patience)
        except Empty:
            for place in [place for place, at in again.items() if at <= time.monotonic()]:
                begin(place)
            continue
        if place not in live:  # another try was faster
            continue
        if error is None:
            del live[place]
            yield place, answer  # type: ignore[misc]
            continue
        live[place].unanswered -= 1
        if not live[place].unanswered:
            raise error


def answer(make: Callable[[], T], n_bytes: int = 0) -> T:
    """Return what one read returns; see `answers`."""
    ((_, found),) = answers([Read(make, n_bytes)])
    return found


def _has_room(n_reads: int, n_bytes: int) -> bool:
    return n_reads < _MOST_READS and n_bytes <= _MOST_BYTES


def _start(
    make: Callable[[], T], place: int, arrived: SimpleQueue[tuple[int, T | None, Exception | None]]
) -> None:
    def run() -> None:
        try:
            arrived.put((place, make(), None))
        except Exception as error:
            arrived.put((place, None, error))

    try:
        threading.Thread(target=run, name="indexmill-open", daemon=True).start()
    except RuntimeError as error:
        raise StorageError(f"no thread for a request: {error}; lower the number of threads") from None
