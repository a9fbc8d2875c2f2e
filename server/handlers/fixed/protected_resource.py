"""Answers which issuer gives tokens for the server (RFC 9728)."""

from __future__ import annotations

from server.handlers.base import Handler
from server.http.allowed_hosts import own_origin


class ProtectedResourceHandler(Handler):
    """Describes the server to clients that look for the issuer of its tokens (RFC 9728)."""

    def prepare(self) -> None:
        """Check nothing else: a client without a token asks for this."""
        self.check_method()

    async def get(self) -> None:
        metadata = self.engine.resource_metadata
        assert metadata is not None
        self.tell_caches()
        self.set_header("Content-Type", "application/json")
        self.finish_document(metadata.document(own_origin(self.request)))
