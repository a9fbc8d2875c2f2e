"""Sets headers of answers: for caches and for clients without credentials, which depend on who asks, the methods of a
route, and the times of the stages.

It must not know: documents, handlers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from server.authentication.bearer import challenge
from server.engine import Engine
from server.handlers.sender import Sender
from server.http.allowed_hosts import own_origin
from server.http.headers import Headers
from server.http.negotiation import FORM
from server.http.request import Request
from server.routes import QUERY

_PROXIED = frozenset({"X-Forwarded-For", "Forwarded", "Via", "X-Real-Ip"})
"""The headers that proxies add."""


def tell_caches(headers: Headers, engine: Engine, sender: Sender) -> None:
    """Set the header Cache-Control of an answer that shows resources."""
    directives = engine.settings.cache_control
    if directives:
        is_private = engine.has_authentication and sender.is_private
        headers.put("Cache-Control", engine.private_cache_control if is_private else directives)


def tell_caches_of_principals(headers: Headers, sender: Sender) -> None:
    """Set the headers that keep caches from mixing up the answers to several principals (RFC 9111, 3.5, 4.1), and the
    cookies of the sender."""
    headers["Vary"] = f"{headers['Vary']}, {sender.depends_on}"
    tell_cookies(headers, sender)
    if sender.is_private:
        headers["Cache-Control"] = "private"


def tell_cookies(headers: Headers, sender: Sender) -> None:
    """Set the cookies that keep or end a session."""
    for cookie in sender.answer_cookies:
        headers.add("Set-Cookie", cookie)


def ask_for_credentials(headers: Headers, engine: Engine, request: Request, error: BaseException) -> None:
    """Set the header of a 401 that says which credentials to send."""
    metadata = engine.resource_metadata
    headers["WWW-Authenticate"] = challenge(error, None if metadata is None else metadata.url(own_origin(request)))


def sends_timing(engine: Engine, request: Request) -> bool:
    """Return whether the answer to a request has the header Server-Timing."""
    is_sent = engine.settings.server_timing
    return is_of_this_machine(request) if is_sent is None else is_sent


def is_of_this_machine(request: Request) -> bool:
    """Return whether only programs of the server's own machine can have sent a request. A proxy there sends answers on,
    so there must be no sign of one."""
    return request.server_connection.is_loopback and _PROXIED.isdisjoint(request.headers.by_name)


def may_explain(engine: Engine, request: Request, sender: Sender) -> bool:
    """Return whether a principal may see the SQL of reads: the one that `auth_admin` names, or without authentication
    whoever uses the server's own machine."""
    if not engine.has_authentication:
        return is_of_this_machine(request)
    return is_admin(engine, sender)


def is_admin(engine: Engine, sender: Sender) -> bool:
    """Return whether the setting `auth_admin` names a role or a scope of the principal."""
    return engine.settings.auth_admin in sender.principal.roles | sender.principal.scopes


def timing(stages: list[tuple[str, float]]) -> str:
    """Format the stages as W3C Server Timing, in milliseconds. stages: each with its begin."""
    text, end = "", time.perf_counter()
    for name, begin in reversed(stages):
        text, end = ", %s;dur=%.3f%s" % (name, (end - begin) * 1000, text), begin  # noqa: UP031 - it is faster
    return text[2:]


def tell_methods(headers: Headers, allow: Sequence[str]) -> None:
    """Set the headers that name the methods of a route, and the media type of a QUERY."""
    headers["Allow"] = ", ".join(allow)
    if QUERY in allow:
        headers["Accept-Query"] = f'"{FORM.name}"'
