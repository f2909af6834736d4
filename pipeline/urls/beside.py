"""Reads of storage, made side by side, and again where no answer comes: the answer that comes first counts.

A read that hangs cannot be ended, and some of pyarrow's own file systems have no time-outs. So threads are daemons, and
only the caller takes up what they return: a thread that was left behind touches nothing, and a command ends without it.
The last try counts as failed when any other call would, and all tries before it with it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from indexmill.formats.errors import StorageError
from indexmill.formats.urls.client import answer_seconds, leave, no_answer
from indexmill.formats.urls.retry import failed
from indexmill.reader.stored import TIMEOUT_S

T = TypeVar("T")

#: Seconds after which a read is made again beside the one that has no answer, and times that it is made.
PATIENCE_S, TRIES = TIMEOUT_S, 5
#: Least bytes a second that come, of all reads on their way: a slow line is given their time, too.
LEAST_BYTES_PER_S = 1 << 20
#: Reads at a time, and bytes of them.
_MOST_READS, _MOST_BYTES = 128, 256 << 20


class Read(NamedTuple, Generic[T]):
    """A read, which may be made twice at once.

    Attributes
    ----------
    make : callable
    n_bytes : int
        Bytes that it moves.
    what : str
        For the error, such as ``"reading s3://bucket/file"``.
    """

    make: Callable[[], T]
    n_bytes: int
    what: str


class _Live:
    """A read that is being made."""

    def __init__(self) -> None:
        self.tries = self.unanswered = 0
        self.began = self.until = 0.0
        self.error: Exception | None = None

    def wait_for(self, read: Read[Any], n_bytes: int) -> None:
        """Set the time until which the newest try is waited for, while so many bytes of all reads are on their way."""
        seconds = PATIENCE_S + n_bytes / LEAST_BYTES_PER_S
        if self.tries == TRIES:
            seconds = max(seconds, answer_seconds(read.n_bytes))
        self.until = max(self.until, self.began + seconds)


def answers(
    reads: Sequence[Read[T]], most_bytes: int = _MOST_BYTES, *, again: bool = True
) -> Iterator[tuple[int, T]]:
    """Yield the place of each read in `reads` and its answer, as answers come.

    Parameters
    ----------
    most_bytes : int
        Bytes that are read at a time, unless a single read has more.
    again : bool
        Whether a read without an answer is made again. Reads of many bytes would fill a slow line with copies: those
        that have time-outs and retries of their own are waited for.

    Raises
    ------
    StorageError
        If no thread can be started, or no try of a read is answered in time.
    Exception
        What a try of a read raised, if no other try may be answered yet, or none is in time.
    """
    arrived: SimpleQueue[tuple[int, T | None, Exception | None]] = SimpleQueue()
    waiting, live = deque(range(len(reads))), dict[int, _Live]()
    threads: list[threading.Thread] = []

    def begin(place: int) -> None:
        one = live.setdefault(place, _Live())
        one.tries, one.unanswered, one.began = one.tries + 1, one.unanswered + 1, time.monotonic()
        threads.append(_start(reads[place].make, place, arrived))

    try:
        while waiting or live:
            n_bytes = sum(reads[place].n_bytes for place in live)
            while waiting and (
                not live or _has_room(len(live), n_bytes + reads[waiting[0]].n_bytes, most_bytes)
            ):
                n_bytes += reads[waiting[0]].n_bytes
                begin(waiting.popleft())
            for place, one in live.items():
                one.wait_for(reads[place], n_bytes)
            until = min(one.until for one in live.values())
            seconds = max(0.0, until - time.monotonic()) if again else None
            try:
                place, answer, error = arrived.get(timeout=seconds)
            except Empty:
                for place in [place for place, one in live.items() if one.until <= time.monotonic()]:
                    if live[place].tries == TRIES:
                        raise _end_of(reads[place], live[place]) from None
                    begin(place)
                continue
            if place not in live:  # another try was faster
                continue
            if error is None:
                del live[place]
                yield place, answer  # type: ignore[misc]
                continue
            live[place].unanswered -= 1
            live[place].error = error
            if not live[place].unanswered:
                raise error
    finally:
        leave(threads)


def answer(read: Read[T]) -> T:
    """Return what one read returns; see `answers`."""
    ((_, found),) = answers([read])
    return found


def _end_of(read: Read[Any], live: _Live) -> Exception:
    """Return what to raise for a read whose last try was not answered in time: what another try raised says more."""
    return live.error or failed(read.what, TRIES, no_answer(live.until - live.began))


def _has_room(n_reads: int, n_bytes: int, most_bytes: int) -> bool:
    return n_reads < _MOST_READS and n_bytes <= most_bytes


def _start(
    make: Callable[[], T], place: int, arrived: SimpleQueue[tuple[int, T | None, Exception | None]]
) -> threading.Thread:
    def run() -> None:
        try:
            arrived.put((place, make(), None))
        except Exception as error:
            arrived.put((place, None, error))

    thread = threading.Thread(target=run, name="indexmill-open", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise StorageError(f"no thread for a request: {error}; lower the number of threads") from None
    return thread
