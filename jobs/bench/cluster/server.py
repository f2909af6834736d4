"""moto's S3 server as a process of its own, which counts requests and bytes: ``python -m ...server BUCKET``.

The process prints its port. ``GET /-/moved`` returns the counts.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

#: Path of the counters, which is no name of a bucket.
MOVED = "/-/moved"


class Counting:
    """A WSGI application that counts what passes through it."""

    def __init__(self, inner: Any) -> None:
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


def main(bucket: str) -> None:
    """Serve an empty bucket until the process is ended."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = Counting(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever).start()
    made = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/{bucket}", method="PUT")
    urllib.request.urlopen(made).close()
    print(server.server_port, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
