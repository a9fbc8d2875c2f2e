"""Describes a request with an Idempotency-Key: who has sent it, what must be the same when it is sent again, and what
its principal may do. What goes out: digests.

It must not know: documents, where answers are kept.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

from querybuild.parse import split_pairs
from querybuild.principal import Principal
from server.execution.writes.keys import KeyedRequest
from server.handlers.base import Handler
from server.limits.clients import client_key
from server.postgres.row_security.roles import RequestRole

INLINE_BYTES = 256 * 1024
"""The largest body that is digested in the event loop: it takes 0.2 ms."""

_OF_ONE_TOKEN = frozenset({"exp", "nbf", "iat", "jti", "auth_time"})
"""Claims that differ in each token of the same principal."""


async def keyed_request(handler: Handler, key: str) -> KeyedRequest:
    """Return the description of a request with a key. Raises what the functions of the rules raise, and what
    `acting_for` raises."""
    principal, body = handler.sender.principal, handler.received.whole()
    issuer, subject = principal.issuer, principal.subject
    address = "" if subject else client_key(handler.request)
    digest = sha256(body) if len(body) <= INLINE_BYTES else await asyncio.to_thread(sha256, body)
    role = handler.database.acting_for(principal, "write").role
    return KeyedRequest(
        id=_digest([issuer, subject, address, key]),
        key=key,
        issuer=_storable(issuer),
        subject=_storable(subject),
        address=address,
        request=_digest([*_sent(handler), digest.hexdigest()]),
        rights=_digest([_rights(principal, handler.engine.rights_of(principal), role)]),
    )


def _sent(handler: Handler) -> list[str]:
    """Return what must be the same when a request is sent again, besides its body."""
    request, route = handler.request, handler.route
    assert route is not None
    headers = request.headers
    sent = [request.method or "", route.path, headers.get("Content-Type", ""), headers.get("Accept", "")]
    return sent + [text for pair in split_pairs(request.query, []) for text in pair] if request.query else sent


def _rights(principal: Principal, asked: tuple[Any, ...], role: RequestRole | None) -> str:
    """Return what decides what a principal may do. asked: what the rules ask it for."""
    known: list[Any] = [sorted(principal.roles), sorted(principal.scopes), principal.is_signed_in, asked]
    if role is not None:
        # A policy may read any claim.
        claims = {name: value for name, value in principal.claims.items() if name not in _OF_ONE_TOKEN}
        known += [role.name, sorted(claims.items())]
    return repr(known)


def _digest(texts: list[str]) -> str:
    return sha256(repr(texts).encode(errors="surrogatepass")).hexdigest()


def _storable(text: str) -> str:
    """Return a text of the user's own authentication as PostgreSQL can store it."""
    return text if text.isascii() and "\0" not in text else text.encode(errors="replace").decode().replace("\0", "")
