"""Finds out who sends a request, before its body arrives, and counts it for its client. What comes in: a request. What
goes out: its principal and context, and headers for caches.

It must not know: documents, what a principal may do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError
from querybuild.planning.context import Context, View
from querybuild.principal import ANONYMOUS, Principal
from server.authentication.bearer import challenge
from server.errors import Overloaded, too_many_requests
from server.handlers.receiving import Receiving
from server.http.allowed_hosts import own_origin
from server.http.headers import Headers
from server.limits.clients import client_key, current_client, principal_key
from server.limits.running import CancelScope
from server.routes import NOT_ALLOWED, Route


class Identifying(Receiving):
    """The base of handlers that know who sends the request. principal: ANONYMOUS without credentials. client: for whom
    the request is counted, an address or a principal."""

    is_at_work = False
    is_long = False
    client = ""
    _found: Principal | None = None
    """The principal, if it was known before the limits were checked."""
    _waits_for_body = False
    principal: Principal = ANONYMOUS
    context: Context
    """What the principal may do. `prepare` sets it."""
    cancel_scope: CancelScope
    route: Route | None
    resource: Resource
    _headers: Headers

    def begin_work(self) -> None:
        """Check the limits, and count the request for its address. It counts when all of it has arrived. Raises
        Overloaded, TooManyRequests."""
        self.client = client = client_key(self.request)
        current_client.set(client)
        running = self._running
        if running.is_crowded:
            if running.is_full:
                raise Overloaded("The server has too many requests in progress; try again.")
            if running.is_at_client_limit(client) and not self._has_own_share():
                raise too_many_requests()
        # An empty body has arrived before the handler begins.
        if self.request._body_future.done():
            running.begin(self)
        else:
            self._waits_for_body = True

    def _has_own_share(self) -> bool:
        """Return whether the principal is known at once, and is not the same client as its address. Otherwise others at
        this address could lock it out."""
        with suppress(ApiError):
            found = self.engine.authenticate(self.request)
            if isinstance(found, Principal):
                self._found = found
                return principal_key(found, self.client) != self.client
            if asyncio.iscoroutine(found):
                found.close()
        return False

    def identify(self) -> Awaitable[Principal] | None:
        """Find the principal. Returns an awaitable of it if the issuer has to be asked: then call `take_principal` with
        the result. Raises Unauthenticated, InvalidToken, AuthUnavailable, TooManyRequests."""
        found = self._found or self.engine.authenticate(self.request)
        if isinstance(found, Principal):
            self.take_principal(found)
            return None
        return self.cancel_scope.run(found)

    def take_principal(self, principal: Principal) -> None:
        """Keep the principal and its context. Raises TooManyRequests."""
        self.principal = principal
        self.context = self.engine.context_of(principal)
        if (view := self.context.access.view) is not None:
            self._take_view(view)
        if principal is not ANONYMOUS:
            self.count_for_principal()
        if self.engine.has_authentication:
            self.tell_caches_of_principals()

    def _take_view(self, view: View) -> None:
        """Take the declarations as the principal sees them. The route exists no more if its relationship is hidden."""
        route = self.route
        if route is None or route.resource is None:
            return
        self.resource = view.catalog.by_type[route.resource.type]
        if route.relationship is not None and route.relationship not in self.resource.relationships:
            self.route, self.method = None, NOT_ALLOWED

    @property
    def catalog(self) -> Catalog:
        """The declarations as the principal sees them."""
        return self.engine.view_of(self.context).catalog

    def count_for_principal(self) -> None:
        """Count the request for its principal, and not for its address any more: clients behind one address do not use
        each other's shares, and one client with many addresses has one share. Raises TooManyRequests."""
        client = principal_key(self.principal, self.client)
        if client == self.client:
            return
        if self._running.is_at_client_limit(client):
            raise too_many_requests()
        self._running.move(self, client)
        current_client.set(client)

    def tell_caches_of_principals(self) -> None:
        """Set the headers that keep caches from mixing up the answers to several principals (RFC 9111, 3.5, 4.1)."""
        self._headers["Vary"] = f"{self._headers['Vary']}, Authorization"
        if self.is_private:
            self._headers["Cache-Control"] = "private"

    def tell_caches(self) -> None:
        """Set the header Cache-Control of an answer that shows resources."""
        engine = self.engine
        directives = engine.settings.cache_control
        if directives:
            is_private = engine.has_authentication and self.is_private
            self._headers["Cache-Control"] = engine.private_cache_control if is_private else directives

    @property
    def is_private(self) -> bool:
        """Whether only the sender may keep the answer. Custom code may find the principal in any header."""
        return self.principal is not ANONYMOUS or self.engine.authenticator.is_custom

    def ask_for_credentials(self, error: BaseException) -> None:
        """Set the header of a 401 that says which credentials to send."""
        metadata = self.engine.resource_metadata
        self._headers["WWW-Authenticate"] = challenge(
            error, None if metadata is None else metadata.url(own_origin(self.request))
        )
