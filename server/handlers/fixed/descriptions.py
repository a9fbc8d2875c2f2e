"""Answers with the descriptions of the server: its OpenAPI document, and the page that shows it."""

from __future__ import annotations

from typing import Any

from server.describing.descriptions import Description, Descriptions
from server.describing.viewer import CONTENT_SECURITY_POLICY, viewer_file
from server.handlers.base import Handler
from server.handlers.conditional import ends_with_tag


class DescribingHandler(Handler):
    """The base of the handlers of the OpenAPI document and its page."""

    def initialize(self, descriptions: Descriptions, **context: Any) -> None:  # type: ignore[override]  # it takes more
        super().initialize(**context)
        self.descriptions = descriptions

    def finish_described(self, description: Description) -> None:
        """Answer with this document, or with 304 if the client has it."""
        self.set_header("Content-Type", description.media_type)
        if not ends_with_tag(self, description.etag, None, len(description.body)):
            self.finish_document(description.body)


class OpenApiHandler(DescribingHandler):
    """Answers with the OpenAPI document, as the principal sees it."""

    async def get(self) -> None:
        self.check_parameters()
        description = await self.cancel_scope.run(self.descriptions.of(self.context))
        self.tell_caches()
        self.finish_described(description)


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
