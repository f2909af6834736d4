"""Ten thousand builds asked for at once: bounded answers, a bounded queue, and bounded memory of the service."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx2
import pytest
from tests.support.builds import request
from tests.support.service import HEADER, running

from indexmill.jobs.bench.common.process import memory_of
from indexmill.jobs.service.connections import MOST_OPEN
from indexmill.jobs.service.queue import Limits
from indexmill.pipeline.mill.descriptors import allow_open

POSTS = 10_000
#: Connections that are open side by side: more than the service keeps.
TOGETHER = 1_500
#: Most memory of the service beyond that of one that has answered one request.
MOST_BYTES = 64 << 20
#: Stands for a connection that was closed without an answer.
CLOSED = 0


def codes_of(url: httpx2.URL) -> Counter[int]:
    """Ask for as many different builds, each by a connection of its own; count the answers by code."""
    places = asyncio.Semaphore(TOGETHER)
    named = "".join(f"{name}: {value}\r\n" for name, value in HEADER.items())

    async def post(number: int) -> int:
        body = json.dumps(request(vector_path=f"base/{number}.knnvec"))
        head = f"POST /_build HTTP/1.1\r\nHost: service\r\nConnection: close\r\n{named}Content-Length: {len(body)}\r\n"
        async with places:
            try:
                reader, writer = await asyncio.open_connection(url.host, url.port)
                writer.write(f"{head}\r\n{body}".encode())
                answer = await reader.read()
                writer.close()
            except ConnectionError:
                return CLOSED
        return int(answer.split()[1]) if answer else CLOSED

    async def post_all() -> list[int]:
        return await asyncio.gather(*map(post, range(POSTS)))

    return Counter(asyncio.run(asyncio.wait_for(post_all(), 240)))


@pytest.mark.memory
def test_ten_thousand_builds_asked_for_at_once_take_bounded_memory(tmp_path: Path) -> None:
    allow_open(TOGETHER)
    assert TOGETHER > MOST_OPEN
    with running(tmp_path / "work", f"file://{tmp_path}/{{container}}") as (client, process):
        job_id = client.post("/_build", json=request()).json()["job_id"]
        before = memory_of(process.pid)["VmHWM"]
        codes = codes_of(client.base_url)
        taken = memory_of(process.pid)["VmHWM"] - before
        print(f"{dict(codes)}; {taken / 2**20:.1f} MiB of {before / 2**20:.1f} more")
        assert codes.keys() <= {200, 429, 503, CLOSED}
        assert min(codes[200], codes[503] + codes[CLOSED]) > 0
        assert taken < MOST_BYTES
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get(f"/_status/{job_id}").status_code == 200
        figures = dict(line.rpartition(" ")[::2] for line in client.get("/metrics").text.splitlines())
        assert float(figures["indexmill_builds_open"]) <= Limits().waiting
        assert "Too many open files" not in (tmp_path / "work.log").read_text()
