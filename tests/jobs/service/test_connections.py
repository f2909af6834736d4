"""Connections that send no whole request are closed, and too many refused; those that do send one are left alone."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from indexmill.jobs.service import app, connections, serve
from indexmill.jobs.service.runner import Settings

REQUEST = b"GET / HTTP/1.1\r\nHost: service\r\n\r\n"
SECONDS = 1.0


async def quick(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer."""
    await send({"type": "http.response.start", "status": 204, "headers": [(b"Connection", b"close")]})
    await send({"type": "http.response.body"})


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer after longer than a header may take."""
    await asyncio.sleep(2 * SECONDS)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@asynccontextmanager
async def served(answering: serve.ASGIApp) -> AsyncIterator[int]:
    """A server as that of the service, with its port; it closes a connection a second after an answer."""
    server = uvicorn.Server(serve.configured(answering, port=0, lifespan="off", timeout_keep_alive=1))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


async def all_of(port: int, *pieces: bytes) -> tuple[bytes, float]:
    """Send pieces with pauses; return what is answered until the connection is closed, and after how long."""
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.1)

    sending = asyncio.create_task(send())
    try:
        answer = await asyncio.wait_for(reader.read(), 30)
    except ConnectionResetError:
        answer = b""
    sending.cancel()
    writer.close()
    return answer, time.monotonic() - begun


def test_connections_without_a_whole_header_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", SECONDS)

    async def answers() -> list[tuple[bytes, float]]:
        async with served(slow) as port:
            return await asyncio.gather(
                all_of(port),
                all_of(port, *(bytes([byte]) for byte in REQUEST)),
                all_of(port, REQUEST),
                all_of(port, REQUEST[:9], REQUEST[9:]),
            )

    silent, trickling, whole, halved = asyncio.run(answers())
    for answer, seconds in (silent, trickling):
        assert answer == b""
        assert SECONDS <= seconds < 10
    for answer, seconds in (whole, halved):
        assert answer.startswith(b"HTTP/1.1 204")
        assert seconds > 2 * SECONDS


def test_requests_are_refused_while_too_many_connections_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    most, most_open = 3, 5
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", most)
    monkeypatch.setattr(connections, "MOST_OPEN", most_open)

    async def answers() -> list[bytes]:
        found, silent = [], []
        async with served(quick) as port:
            for _ in range(most_open + 1):
                found.append((await all_of(port, REQUEST))[0][:12])
                silent.append(await asyncio.open_connection("127.0.0.1", port))
            for _, writer in silent:
                writer.close()
            await asyncio.sleep(0.1)
            found.append((await all_of(port, REQUEST))[0][:12])
        return found

    answered, refused = b"HTTP/1.1 204", b"HTTP/1.1 503"
    assert asyncio.run(answers()) == [*[answered] * most, *[refused] * (most_open - most), b"", answered]


def test_bytes_that_are_no_http_are_answered_with_400() -> None:
    async def answers() -> list[bytes]:
        async with served(quick) as port:
            wrong = (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n")
            return [(await all_of(port, one))[0] for one in wrong]

    assert [answer[:12] for answer in asyncio.run(answers())] == [b"HTTP/1.1 400"] * 3


def test_a_request_to_open_a_websocket_is_answered_as_any_other(tmp_path: Path) -> None:
    assert importlib.util.find_spec("wsproto")  # by default uvicorn hands such requests to it
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n"
    (tmp_path / "work").mkdir()
    settings = Settings(f"file://{tmp_path}/{{container}}", tmp_path / "work", 1 << 30, 1)

    async def answer(path: bytes) -> bytes:
        async with served(app.Service(settings, "a token of some length").app) as port:
            return (await all_of(port, b"GET %b HTTP/1.1\r\nHost: service\r\n%b\r\n" % (path, upgrade)))[0]

    assert asyncio.run(answer(b"/_status/a")).startswith(b"HTTP/1.1 401")
    assert b"builds have stopped" in asyncio.run(answer(b"/health"))  # none are begun here


def test_a_body_that_does_not_come_is_answered_and_a_client_that_leaves_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", SECONDS)
    (tmp_path / "work").mkdir()
    service = app.Service(Settings(f"file://{tmp_path}/{{container}}", tmp_path / "work", 1 << 30, 1))
    head = b"POST /_build HTTP/1.1\r\nHost: service\r\nContent-Length: 600\r\n\r\n"

    async def answers() -> tuple[bytes, float, bytes]:
        async with served(service.app) as port:
            late, seconds = await all_of(port, head, b"{")
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.close()
            await asyncio.sleep(0.1)
            figures = b"GET /metrics HTTP/1.1\r\nHost: service\r\n\r\n"
            return late, seconds, (await all_of(port, figures))[0]

    late, seconds, figures = asyncio.run(answers())
    assert late.startswith(b"HTTP/1.1 408")
    assert late.endswith(b'{"detail":"body: not sent within 1.0 seconds; send it again"}')
    assert SECONDS <= seconds < 10
    for code in (b"408", b"400"):
        assert b'indexmill_answers_total{code="%b",path="/_build"} 1.0' % code in figures
    assert list((tmp_path / "work/jobs").iterdir()) == []
