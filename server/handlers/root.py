"""Answers / with links to every collection, `OPTIONS *` with the methods of the server, the descriptions of the server
with their page, and the preflight requests of browsers for a page of another origin (CORS)."""

from __future__ import annotations

from typing import Any

import msgspec

from serializers.objects import LinksDocument
from server.describing.descriptions import Description, Descriptions
from server.describing.viewer import CONTENT_SECURITY_POLICY, viewer_file
from server.handlers.base import Handler
from server.http.cors import preflight_headers
from server.http.headers import has_version


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


class DescribingHandler(Handler):
    """The base of the handlers of the OpenAPI document and its page."""

    def initialize(self, descriptions: Descriptions, **context: Any) -> None:  # type: ignore[override]  # it takes more
        super().initialize(**context)
        self.descriptions = descriptions

    def finish_described(self, found: Description) -> None:
        """Answer with this document, or with 304 if the client has it."""
        self.set_header("Content-Type", found.media_type)
        self.set_header("ETag", found.etag)
        if has_version(self.request.headers.get("If-None-Match", ""), found.etag):
            self.set_status(304)
            self.clear_header("Content-Type")
            self.finish()
            return
        self.finish_document(found.body)


class OpenApiHandler(DescribingHandler):
    """Answers with the OpenAPI document, as the principal sees it."""

    async def get(self) -> None:
        self.check_parameters()
        found = await self.cancel_scope.run(self.descriptions.of(self.context))
        self.tell_caches()
        self.finish_described(found)


class DocsHandler(DescribingHandler):
    """Answers with the page that shows the OpenAPI document, or with a file of it. They are the same for everybody."""

    async def get(self) -> None:
        self.set_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cache-Control", "no-cache")
        assert self.route is not None
        self.finish_described(viewer_file(self.route.path.rpartition("/")[2]))


class DocsFileHandler(DocsHandler):
    """Answers with a file of the page. The page asks for its files without credentials."""


class PreflightHandler(Handler):
    """Allows the request that follows. The answer is the same for every path."""

    def prepare(self) -> None:
        """Check nothing. An error is the answer to the request that follows, where the page can read it."""

    async def options(self, *_: Any) -> None:
        self.set_status(204)
        self.clear_header("Content-Type")
        for name, value in preflight_headers(self.request.headers).items():
            self.set_header(name, value)
