"""Which client a request is from. In: a request. Out: the one value that tells clients apart.

It must not know: what is shared.
"""

from __future__ import annotations

from contextvars import ContextVar

from tornado.httputil import HTTPServerRequest

current_client: ContextVar[str | None] = ContextVar("current_client", default=None)
"""The client whose request is at work; None for the server's own work, which has no share."""


def client_key(request: HTTPServerRequest) -> str:
    """The client's address, as trusted proxies tell it; "unix" of a Unix socket."""
    return request.remote_ip or ""
