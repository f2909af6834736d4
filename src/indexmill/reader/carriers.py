"""Threads that make the requests of the native reader to a store.

The interpreter ends threads where they wait for its lock, and must find nothing but its own frames below. So the reader
has no thread that waits for the lock: it leaves errands, rings a bell, and is called for what is short.
"""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
import weakref
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexmill.reader import _native
    from indexmill.reader.stored import Remote

#: Requests at a time, of all searches of an index. Those that hang are not counted, up to so many threads in all.
PARALLEL, MOST_THREADS = 128, 512
#: Most bytes that wait to be kept; what comes when so many do is not kept.
KEEPING_BYTES = 64 << 20
#: Seconds that a thread without a request, or without anything to keep, stays.
IDLE_S = 10.0
#: Seconds that the end of the process waits for requests.
PATIENCE_S = 1.0

_ALL: weakref.WeakSet[Carriers] = weakref.WeakSet()
_is_ending = threading.Event()


class Carriers:
    """Daemon threads for one open index; they end when it is closed.

    Parameters
    ----------
    remote : Remote
    timeout_s : float
        A request that takes longer hangs, and another one may be made beside it.
    errands : Errands
    """

    def __init__(self, remote: Remote, timeout_s: float, errands: _native.Errands) -> None:
        self._remote, self._timeout_s, self._errands = remote, timeout_s, errands
        _ALL.add(self)
        # Before what the store's client registered, which `remote` has loaded.
        atexit.unregister(_end)
        atexit.register(_end)
        self._begin()

    def _begin(self) -> None:
        """Begin in this process."""
        self._queue: SimpleQueue[tuple[int, str | None, int, int] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._n_threads = 0
        self._n_pending = 0
        self._begun: dict[int, float] = {}
        if (bell := self._errands.begin()) is None:
            return  # the index is closed, and a thread of this process, or of its parent, has yet to end
        threading.Thread(target=self._hand_out, args=(bell,), name="indexmill-errands", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether a request is being made."""
        return bool(self._begun)

    def _hand_out(self, bell: int) -> None:
        """Give errands to threads until the index is closed."""
        ringing = select.poll()
        ringing.register(bell, select.POLLIN)
        try:
            while True:
                # Requests may begin to hang while others wait for their threads.
                patience = self._timeout_s if self._n_pending > self._n_threads else None
                if ringing.poll(None if patience is None else 1000 * patience):
                    os.read(bell, 4096)
                errands = self._errands.take()
                if errands is None:
                    return
                with self._lock:
                    self._n_pending += len(errands)
                for errand in errands:
                    self._queue.put(errand)
                self._start_threads()
        finally:
            os.close(bell)
            with self._lock:
                for _ in range(self._n_threads):
                    self._queue.put(None)

    def _start_threads(self) -> None:
        late = time.monotonic() - self._timeout_s
        with self._lock:
            n_hanging = sum(begun < late for begun in list(self._begun.values()))
            wanted = min(self._n_pending, PARALLEL + n_hanging, MOST_THREADS)
            while self._n_threads < wanted:
                try:
                    threading.Thread(target=self._carry, name="indexmill-ranges", daemon=True).start()
                except RuntimeError as error:
                    if self._n_threads == 0:
                        self._refuse_all(f"a thread for requests: {error}; lower threads or inflight")
                    return  # fewer threads are slower, not wrong
                self._n_threads += 1

    def _refuse_all(self, message: str) -> None:
        while not self._queue.empty():
            errand = self._queue.get()
            if errand is not None:
                self._errands.refuse(errand[0], message, passes=False)
                self._n_pending -= 1

    def _carry(self) -> None:
        """Do errands until there was none for a while."""
        while True:
            try:
                errand = self._queue.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._n_threads -= 1
                        return
                continue
            if errand is None:
                return
            self._do(*errand)
            with self._lock:
                self._n_pending -= 1

    def _do(self, number: int, name: str | None, offset: int, n_bytes: int) -> None:
        self._begun[number] = time.monotonic()
        try:
            if _is_ending.is_set() or not self._errands.starts(number):
                return
            if name is None:
                self._errands.tell(number, self._remote.is_replaced())
            else:
                data = self._remote.read(name, offset, n_bytes)
                self._errands.deliver(number, data)
                _keeper.put(self._remote, name, offset, data)
        except Exception as error:
            passes = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
            self._errands.refuse(number, str(error), passes)
        finally:
            del self._begun[number]


class Keeper:
    """A thread that keeps what all indexes of the process read, so that no request waits for a slow disk."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Remote, str, int, bytes]] = SimpleQueue()
        self._lock = threading.Lock()
        self._n_bytes = 0
        self._is_running = False

    @property
    def is_busy(self) -> bool:
        """Whether something is yet to be kept."""
        return self._n_bytes > 0

    def put(self, remote: Remote, name: str, offset: int, data: bytes) -> None:
        """Have a range kept, unless too much waits for that already."""
        with self._lock:
            if self._n_bytes + len(data) > KEEPING_BYTES:
                return
            if not self._is_running:
                try:
                    threading.Thread(target=self._run, name="indexmill-keeper", daemon=True).start()
                except RuntimeError:  # there are too many threads
                    return
                self._is_running = True
            self._n_bytes += len(data)
            self._queue.put((remote, name, offset, data))

    def _run(self) -> None:
        """Keep ranges until there was none for a while."""
        while True:
            try:
                remote, name, offset, data = self._queue.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._is_running = False
                        return
                continue
            with suppress(Exception):  # what is not kept is read again
                remote.keep(name, offset, data)
            with self._lock:
                self._n_bytes -= len(data)
            del remote, data  # the index may be closed while this waits


_keeper = Keeper()


def _end() -> None:
    """Begin no more requests, and wait for those that are being made: a store may hold locks of its own."""
    _is_ending.set()
    settle(PATIENCE_S)


def settle(seconds: float) -> None:
    """Wait until no request is being made and all answers are kept, for at most so many seconds."""
    end = time.monotonic() + seconds
    while (any(each.is_busy for each in list(_ALL)) or _keeper.is_busy) and time.monotonic() < end:
        time.sleep(0.002)


def _begin_again() -> None:
    """Begin in a forked child, which has none of its parent's threads."""
    global _keeper
    _keeper = Keeper()
    for carriers in list(_ALL):
        carriers._begin()


os.register_at_fork(after_in_child=_begin_again)
