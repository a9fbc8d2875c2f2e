"""Finds out who sends a request, before its body arrives. What comes in: a request. What goes out: its principal and
context, and headers for caches.

It must not know: documents, what a principal may do.
"""

from __future__ import annotations

from collections.abc import Awaitable

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource
from querybuild.planning.context import Context, View
from querybuild.principal import ANONYMOUS, Principal
from server.authentication.bearer import challenge
from server.engine import ANYBODY
from server.handlers.receiving import Receiving
from server.http.headers import Headers
from server.limits.running import CancelScope
from server.routes import Route


class Identifying(Receiving):
    """The base of handlers that know who sends the request. principal: ANONYMOUS without credentials."""

    principal: Principal = ANONYMOUS
    context: Context = ANYBODY
    cancel_scope: CancelScope
    route: Route | None
    resource: Resource
    _headers: Headers

    def identify(self) -> Awaitable[Principal] | None:
        """Find the principal. Returns an awaitable of it if the issuer has to be asked: then call `take_principal` with
        the result. Raises Unauthenticated, InvalidToken, AuthUnavailable, TooManyRequests."""
        found = self.engine.authenticate(self.request)
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
            self.route = None

    @property
    def catalog(self) -> Catalog:
        """The declarations as the principal sees them."""
        return self.engine.view_of(self.context).catalog

    def count_for_principal(self) -> None:
        """Count the request for its principal."""
        raise NotImplementedError

    def tell_caches_of_principals(self) -> None:
        """Set the headers that keep caches from mixing up the answers to several principals (RFC 9111, 3.5, 4.1)."""
        self._headers["Vary"] = f"{self._headers['Vary']}, Authorization"
        if self.is_private:
            self._headers["Cache-Control"] = "private"

    def tell_caches(self) -> None:
        """Set the header Cache-Control of an answer that shows resources."""
        directives = self.engine.private_cache_control if self.is_private else self.engine.settings.cache_control
        if directives:
            self._headers["Cache-Control"] = directives

    @property
    def is_private(self) -> bool:
        """Whether only the sender may keep the answer. Custom code may find the principal in any header."""
        return self.principal is not ANONYMOUS or self.engine.authenticator.is_custom

    def ask_for_credentials(self, error: BaseException) -> None:
        """Set the header of a 401 that says which credentials to send."""
        metadata = self.engine.resource_metadata
        self._headers["WWW-Authenticate"] = challenge(error, None if metadata is None else metadata.url)
