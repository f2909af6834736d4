"""Connections of HTTP: how many are answered, and those that are closed because no whole header comes in time."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Most connections whose requests are answered by the service; while there are more, uvicorn answers all with 503.
MOST_CONNECTIONS = 512
#: Most connections at all; further ones are closed at once. Each takes a file, of which a process often has 1,024.
MOST_OPEN = 768
#: Seconds within which a client sends the header of a request, from its connection or the first byte on.
HEADER_SECONDS = 10.0


class PunctualProtocol(H11Protocol):
    """uvicorn's protocol, with bounds that it lacks: of connections, and of the time for a header."""

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a header, unless too many connections are open."""
        super().connection_made(transport)
        if len(self.connections) > MOST_OPEN:
            transport.abort()
        else:
            self._wait_for_header()

    def data_received(self, data: bytes) -> None:
        """Take bytes; those that are of no request that is being answered are of a header."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_header()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_header(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
