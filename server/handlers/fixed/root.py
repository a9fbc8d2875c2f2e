"""Answers / with links to every collection and to the descriptions of the API, and `OPTIONS *` with the methods of the
server."""

from __future__ import annotations

import msgspec

from serializers.objects import LinksDocument
from server.handlers.base import Handler
from server.handlers.pages.answering import finish_page
from server.handlers.pages.start import start_page
from server.http.negotiation import HTML
from server.routes import Shape

_DESCRIPTIONS = {"service-desc": Shape.OPENAPI, "service-doc": Shape.DOCS}
"""The descriptions of the API by their link relations. Source: RFC 8631."""


class RootHandler(Handler):
    """Answers with links to every collection."""

    async def get(self) -> None:
        self.check_parameters()
        if self.answer_type is HTML:
            finish_page(self, await start_page(self))
            return
        base = self.engine.base_url
        links = {"self": f"{base}/"}
        links.update({name: base + path for name, path in _DESCRIPTIONS.items() if path in self.engine.fixed_paths})
        listed = [resource for resource in self.engine.catalog if "list" in resource.methods]
        links.update({resource.path[1:]: base + resource.path for resource in listed})
        operations_path = self.engine.settings.operations_path
        if operations_path:
            links["operations"] = base + operations_path
        self.tell_caches()
        self.finish_document(msgspec.json.encode(LinksDocument(links, {})))


class ServerHandler(Handler):
    """Answers `OPTIONS *` (RFC 9110, 9.3.7)."""
