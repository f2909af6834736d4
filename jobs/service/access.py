"""Access by a token, as a password of HTTP's basic scheme, which OpenSearch sends, or as a bearer token."""

from __future__ import annotations

import base64
import binascii
import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

#: Paths that need no token: they say nothing of jobs.
OPEN_PATHS = ("/_heart_beat", "/health")


class TokenAccess:
    """Refuses requests without the token with 401.

    Parameters
    ----------
    app : ASGI application
    token : str
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._inner, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_allowed(Headers(scope=scope)):
            await self._inner(scope, receive, send)
            return
        refusal = JSONResponse(
            {"detail": "Unauthorized: expected the token as a bearer token, or as the password of any user"},
            401,
            {"WWW-Authenticate": "Basic"},
        )
        await refusal(scope, receive, send)

    def _is_allowed(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode(), self._token)
        if scheme.lower() != "basic":
            return False
        try:
            password = base64.b64decode(given, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return False
        return hmac.compare_digest(password, self._token)
