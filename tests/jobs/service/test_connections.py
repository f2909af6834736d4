"""Connections that send no request are closed, and leave those that do alone."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from indexmill.jobs.service import connections

REQUEST = b"GET / HTTP/1.1\r\nHost: service\r\n\r\n"
SECONDS = 1.0


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer after longer than a header may take."""
    await asyncio.sleep(2 * SECONDS)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


async def all_of(port: int, *pieces: bytes) -> tuple[bytes, float]:
    """Send pieces with pauses; return what is answered until the connection is closed, and after how long."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = time.monotonic()

    async def send() -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.1)

    sending = asyncio.create_task(send())
    answer = await asyncio.wait_for(reader.read(), 30)
    sending.cancel()
    writer.close()
    return answer, time.monotonic() - begun


def test_connections_without_a_whole_header_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", SECONDS)
    config = uvicorn.Config(
        slow,
        port=0,
        lifespan="off",
        log_level="error",
        http=connections.PunctualProtocol,
        timeout_keep_alive=1,
    )

    async def answers() -> list[tuple[bytes, float]]:
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        found = await asyncio.gather(
            all_of(port),
            all_of(port, *(bytes([byte]) for byte in REQUEST)),
            all_of(port, REQUEST),
            all_of(port, REQUEST[:9], REQUEST[9:]),
        )
        server.should_exit = True
        await serving
        return found

    silent, trickling, whole, halved = asyncio.run(answers())
    for answer, seconds in (silent, trickling):
        assert answer == b""
        assert SECONDS <= seconds < 10
    for answer, seconds in (whole, halved):
        assert answer.startswith(b"HTTP/1.1 204")
        assert seconds > 2 * SECONDS
