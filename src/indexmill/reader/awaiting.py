"""Searches that an event loop of asyncio awaits: no thread waits for them, and none is made."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from indexmill.reader import _native

if TYPE_CHECKING:
    import asyncio  # imported where a search is awaited: other searches need none of it

#: Begins a search whose outcome gets to a mailbox under a number.
Begin = Callable[[_native.Mailbox, int], _native.Ticket]


class _Letters:
    """The searches that one event loop awaits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._mailbox = _native.Mailbox()
        self._tokens = count()
        self._awaited: dict[int, asyncio.Future[dict[str, Any]]] = {}
        loop.add_reader(self._mailbox.fileno(), self._deliver)

    async def outcome(self, begin: Begin) -> dict[str, Any]:
        import asyncio

        token = next(self._tokens)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._awaited[token] = future
        try:
            ticket = begin(self._mailbox, token)
            try:
                return await future
            except BaseException:
                # Nobody awaits it any more: the task was cancelled, or its coroutine was closed.
                ticket.cancel()
                raise
        finally:
            del self._awaited[token]

    def _deliver(self) -> None:
        for token, found, error in self._mailbox.take():
            future = self._awaited.get(token)
            if future is None or future.done():  # cancelled meanwhile
                continue
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(error)


#: Only the event loops hold their letters, by what they call: a loop that is closed amid searches can be forgotten.
_letters: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Letters]] = WeakKeyDictionary()


async def outcome(begin: Begin) -> dict[str, Any]:
    """Return what a search found.

    Parameters
    ----------
    begin : callable
        Begins the search; called at once, on this thread. The search is cancelled with the task that awaits it,
        and when its coroutine is closed.

    Raises
    ------
    Exception
        What `begin` raises, and what the search would have raised.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    known = _letters.get(loop)
    letters = None if known is None else known()
    if letters is None:
        letters = _Letters(loop)
        _letters[loop] = ref(letters)
    return await letters.outcome(begin)
