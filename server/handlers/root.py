"""Answers / with links to every collection, `OPTIONS *` with the methods of the server, the description for clients
that look for the issuer of tokens, and the preflight requests of browsers for a page of another origin (CORS)."""

from __future__ import annotations

from typing import Any

import msgspec

from serializers.objects import LinksDocument
from server.handlers.base import Handler
from server.http.cors import preflight_headers


class RootHandler(Handler):
    """Answers with links to every collection."""

    async def get(self) -> None:
        self.check_parameters()
        base = self.engine.base_url
        links = {"self": f"{base}/"}
        listed = [resource for resource in self.engine.catalog if "list" in resource.methods]
        links.update({resource.path[1:]: base + resource.path for resource in listed})
        operations_path = self.engine.settings.operations_path
        if operations_path:
            links["operations"] = base + operations_path
        self.tell_caches()
        self.finish_document(msgspec.json.encode(LinksDocument(links, {})))


class ServerHandler(Handler):
    """Answers `OPTIONS *` (RFC 9110, 9.3.7)."""


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
        self.finish_document(metadata.document)


class PreflightHandler(Handler):
    """Allows the request that follows. The answer is the same for every path."""

    def prepare(self) -> None:
        """Check nothing. An error is the answer to the request that follows, where the page can read it."""

    async def options(self, *_: Any) -> None:
        self.set_status(204)
        self.clear_header("Content-Type")
        for name, value in preflight_headers(self.request.headers).items():
            self.set_header(name, value)
