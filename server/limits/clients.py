"""Identifies the client of a request.

It must not know: what is shared.
"""

from __future__ import annotations

from contextvars import ContextVar

from tornado.httputil import HTTPServerRequest

from querybuild.principal import Principal

current_client: ContextVar[str | None] = ContextVar("current_client", default=None)
"""The client of the current request; None for the server's own work, which has no limit."""


def client_key(request: HTTPServerRequest) -> str:
    """Return the client's address, behind trusted proxies; "unix" for a Unix socket."""
    return request.remote_ip or ""


def principal_key(principal: Principal, address: str) -> str:
    """Return the subject of a principal with its issuer, so that it is one client from whatever address. Return the
    address if the principal has no subject."""
    # No address and no issuer contains this character.
    return f"{principal.issuer}\0{principal.subject}" if principal.subject else address
