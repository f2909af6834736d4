"""Counts all answers of the service, also those that no endpoint gives."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indexmill.jobs.service.metrics import Metrics

#: Stands for the variable part of a path, and for every path that no route has.
_VARIABLE, _OTHER = "ID", "other"


class CountedAnswers:
    """Counts answers by route and code; an error that nothing else answers is a 500.

    Parameters
    ----------
    app : ASGI application
    metrics : Metrics
    routes : sequence of Route
        Their paths are the names by which answers are counted, so that clients cannot make up others.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Sequence[Route]) -> None:
        self._inner, self._metrics, self._routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its answer."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        path = self._name(scope)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(path, message["status"])
            await send(message)

        try:
            await self._inner(scope, receive, counted)
        except Exception:
            self._metrics.answered(path, 500)
            raise

    def _name(self, scope: Scope) -> str:
        paths = (route.path for route in self._routes if route.matches(scope)[0] is not Match.NONE)
        return re.sub(r"\{.*?\}", _VARIABLE, next(paths, _OTHER))
