"""An S3 server on loopback, and ways for calls to it to fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from botocore.loaders import create_loader

from indexmill.jobs.bench.cluster.server import Application, served, url_of

#: Failures that pass: Arrow's client waits 0.2 s and asks again after the first, and raises the second.
SLOW_DOWN = ("503 Slow Down", "SlowDown", "Reduce your request rate.")
ABORTED = ("409 Conflict", "OperationAborted", "A conflicting operation is in progress. Try again.")


class FlakyServer:
    """moto's S3 behind a door that refuses some requests, each tenth of them with 503, the others with 409; or lets
    them hang.

    Attributes
    ----------
    url : str
        Of an empty bucket.
    requests, failed : int
    failing, hanging : callable
        Tell by the number of a request whether it is refused, or gets no answer before `release`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = self.failed = 0
        self.failing: Callable[[int], bool] = lambda request: False
        self.hanging: Callable[[int], bool] = lambda request: False
        self._released = threading.Event()
        self._server = served("bucket", self._before)
        self.url = url_of("bucket", self._server.server_port)

    def _before(self, app: Application) -> Application:
        self._app = app
        return self._answer

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            self.requests += 1
            fails = self.failing(self.requests)
            self.failed += fails
            hangs = self.hanging(self.requests)
        if hangs:
            self._released.wait()
        if fails:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            status, code, message = SLOW_DOWN if self.failed % 10 == 0 else ABORTED
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        return self._app(environ, start)

    def release(self) -> None:
        """Let requests that hang go on, and no other hang."""
        self.hanging = lambda request: False
        self._released.set()
        self._released = threading.Event()

    def close(self) -> None:
        self.release()
        self._server.shutdown()


def refusing(code: str, status: str = "403 Forbidden") -> Application:
    """Return what answers every request with an error of S3."""

    def refuse(environ: dict[str, Any], start: Any) -> list[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    return refuse


#: One reader of boto's descriptions of services for all clients: each client would parse megabytes of JSON.
load_once = cache(create_loader)


@contextmanager
def flaky_server() -> Iterator[FlakyServer]:
    with patch("botocore.session.create_loader", load_once):
        server = FlakyServer()
        yield server
        server.close()


class FlakyFileSystem:
    """A file system each tenth call of which, streams' calls included, fails."""

    def __init__(self, inner: Any, every: int = 10) -> None:
        self._inner = inner
        self._every = every
        self._count = [0]
        self._lock = threading.Lock()

    @property
    def calls(self) -> int:
        return self._count[0]

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        if not callable(member):
            return member

        def call(*arguments: Any, **keywords: Any) -> Any:
            with self._lock:
                self._count[0] += 1
                number = self._count[0]
            if number % self._every == 0:
                raise OSError(f"call {number} fails")
            result = member(*arguments, **keywords)
            return self._wrap(result) if name.startswith("open_") else result

        return call

    def _wrap(self, stream: Any) -> Any:
        wrapped = FlakyFileSystem(stream, self._every)
        wrapped._count, wrapped._lock = self._count, self._lock
        return wrapped

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.close()
