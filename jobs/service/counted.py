"""Counts all answers of the service, also those that no endpoint gives."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indexmill.jobs.service.metrics import Metrics

#: Names by which answers are counted; those to other paths have the last one.
_PATHS = ("/_build", "/_build/ID", "/_status/ID", "/_heart_beat", "/health", "/metrics", "other")


class CountedAnswers:
    """Counts answers by path and code; an error that nothing else answers is a 500.

    Parameters
    ----------
    app : ASGI application
    metrics : Metrics
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._inner, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its answer."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        path = _name(scope["path"])

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(path, message["status"])
            await send(message)

        try:
            await self._inner(scope, receive, counted)
        except Exception:
            self._metrics.answered(path, 500)
            raise


def _name(path: str) -> str:
    first, _, rest = path.removeprefix("/").partition("/")
    name = f"/{first}/ID" if rest else f"/{first}"
    return name if name in _PATHS else _PATHS[-1]
