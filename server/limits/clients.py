"""Identifies the client of a request.

It must not know: what is shared.
"""

from __future__ import annotations

from contextvars import ContextVar

from tornado.httputil import HTTPServerRequest

current_client: ContextVar[str | None] = ContextVar("current_client", default=None)
"""The client of the current request; None for the server's own work, which has no limit."""


def client_key(request: HTTPServerRequest) -> str:
    """Return the client's address, behind trusted proxies; "unix" for a Unix socket."""
    return request.remote_ip or ""
