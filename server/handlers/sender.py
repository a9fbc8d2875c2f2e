"""Finds out who sends a request, before its body arrives, and counts it for its client. What comes in: a request. What
goes out: its principal, and what this may do.

It must not know: documents, what a principal may do, handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress

from querybuild.errors import ApiError
from querybuild.planning.context import Context
from querybuild.principal import ANONYMOUS, Principal
from server.engine import Engine
from server.errors import Overloaded, too_many_requests
from server.http.request import Request
from server.limits.clients import client_key, current_client, principal_key
from server.limits.running import Running


class Sender:
    """Who sends a request, and for whom it is counted. principal: ANONYMOUS without credentials. client: an address or
    a principal. is_counted: whether the request counts for limits."""

    is_at_work = False
    is_long = False
    client = ""
    principal: Principal = ANONYMOUS
    _found: Principal | None = None
    """The principal, if it was known before the limits were checked."""
    _waits_for_body = False

    def __init__(self, request: Request, engine: Engine, running: Running, *, is_counted: bool) -> None:
        self.is_counted = is_counted
        self._request = request
        self._engine = engine
        self._running = running

    def begin(self) -> None:
        """Check the limits, and count the request for its address. It counts when all of it has arrived. Raises
        Overloaded, TooManyRequests."""
        self.client = client = client_key(self._request)
        current_client.set(client)
        running = self._running
        if running.is_crowded:
            if running.is_full:
                raise Overloaded("The server has too many requests in progress; try again.")
            if running.is_at_client_limit(client) and not self._has_own_share():
                raise too_many_requests()
        # An empty body has arrived before the handler begins.
        if self._request.has_arrived:
            running.begin(self)
        else:
            self._waits_for_body = True

    def body_arrived(self) -> None:
        """Count the request, because all of its body has arrived."""
        if self._waits_for_body:
            self._running.begin(self)

    def _has_own_share(self) -> bool:
        """Return whether the principal is known at once, and is not the same client as its address. Otherwise others at
        this address could lock it out."""
        with suppress(ApiError):
            principal = self._engine.authenticate(self._request)
            if isinstance(principal, Principal):
                self._found = principal
                return principal_key(principal, self.client) != self.client
            if asyncio.iscoroutine(principal):
                principal.close()
        return False

    def find(self) -> Principal | Awaitable[Principal]:
        """Return the principal, or an awaitable of it if the issuer has to be asked. Call `take` with the result.
        Raises Unauthenticated, InvalidToken, AuthUnavailable."""
        return self._found or self._engine.authenticate(self._request)

    def take(self, principal: Principal) -> Context:
        """Keep the principal, and return what it may do. Raises TooManyRequests."""
        self.principal = principal
        context = self._engine.context_of(principal)
        if principal is not ANONYMOUS and self.is_counted:
            self._count_for_principal()
        return context

    def _count_for_principal(self) -> None:
        """Count the request for its principal, and not for its address any more: clients behind one address do not use
        each other's shares, and one client with many addresses has one share. Raises TooManyRequests."""
        client = principal_key(self.principal, self.client)
        if client == self.client:
            return
        if self._running.is_at_client_limit(client):
            raise too_many_requests()
        self._running.move(self, client)
        current_client.set(client)

    @property
    def is_private(self) -> bool:
        """Whether only the sender may keep the answer. Custom code may find the principal in any header."""
        is_known = self.principal is not ANONYMOUS or self._engine.authenticator.is_custom
        return is_known or bool(self._request.answer_cookies)

    @property
    def answer_cookies(self) -> Sequence[str]:
        """The headers Set-Cookie of the answer, which keep or end the session."""
        return self._request.answer_cookies

    @property
    def depends_on(self) -> str:
        """The headers that say who sends a request."""
        return "Authorization, Cookie" if self._engine.authenticator.reads_cookies else "Authorization"
