"""moto's S3 server on loopback, behind a door that sees every request.

As a process of its own, ``python -m indexmill.jobs.bench.cluster.server BUCKET``, it prints its port, and counts
requests and bytes: ``GET /-/moved`` returns the counts.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

#: A WSGI application.
Application: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
#: Seconds between two looks of a server whether it is to end.
_CLOSING_SECONDS = 0.02
#: Path of the counters, which is no name of a bucket.
MOVED = "/-/moved"


class Counting:
    """A WSGI application that counts what passes through it."""

    def __init__(self, inner: Application) -> None:
        self._inner, self._lock = inner, threading.Lock()
        self.moved = {"requests": 0, "received_bytes": 0, "sent_bytes": 0}

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        if environ["PATH_INFO"] == MOVED:
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self.moved).encode()]
        # a stream that is signed piece by piece has no length but that of its content
        length = environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or environ.get("CONTENT_LENGTH") or 0
        self._add(requests=1, received_bytes=int(length))
        return self._counted(self._inner(environ, start))

    def _counted(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts:
            self._add(sent_bytes=len(part))
            yield part

    def _add(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                self.moved[name] += count


def served(bucket: str, door: Callable[[Application], Application]) -> Any:
    """Serve an empty bucket on a thread; return the server of werkzeug, which has a port and can be shut down.

    Parameters
    ----------
    door : callable
        Returns what answers requests, given what answers them as S3 does.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = door(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, args=(_CLOSING_SECONDS,), daemon=True).start()
    made = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/{bucket}", method="PUT")
    urllib.request.urlopen(made).close()
    return server


def url_of(bucket: str, port: int) -> str:
    """Return the URL of a folder in a bucket, where a small file is written by one request."""
    options = f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{port}&allow_delayed_open=true"
    return f"s3://key:secret@{bucket}/work?{options}"


def main(bucket: str) -> None:
    """Serve an empty bucket until the process is ended."""
    print(served(bucket, Counting).server_port, flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
