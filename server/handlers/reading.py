"""The reading of a page or of one resource, alike on every route that has it. What comes in: a shape and a
path's id. What goes out: a document."""

from __future__ import annotations

from typing import Any

from querybuild.errors import resource_not_found
from serializers.links import cursor_links, page_count, page_links, with_query
from serializers.objects import Meta
from server.engine import PreparedRead, ReadShape
from server.execute import ReadResult, cursors, execute_read
from server.handlers.base import Handler


class ReadingHandler(Handler):
    """Answers a GET; links holds what the document links to besides itself and its pages."""

    async def answer_read(self, shape: ReadShape, path_id: Any = None, links: dict[str, str] | None = None) -> None:
        assert self.route is not None
        self.stage("plan")
        prepared = self.engine.prepare_read(shape, self.request.query)
        self.stage("execute")
        result = await self.lifeline.run(execute_read(self.database, prepared, path_id, self.engine))
        if shape.kind == "resource" and not result.rows[0]:
            raise resource_not_found(shape.resource.type, self.route.id)
        self.stage("encode")
        body = self.document(prepared, result, links or {})
        self.finish_document(body)

    def document(
        self, prepared: PreparedRead, result: ReadResult, links: dict[str, str], meta: Meta | None = None
    ) -> bytes:
        """links, meta: what the document has besides those of itself and of its pages."""
        path = self.self_path()
        if not prepared.plan.is_collection:
            own = {"self": with_query(path, prepared.queries.own)} if self.is_readable() else {}
            return prepared.compiled.encoder.encode(result.rows, own | links, meta)
        page, total = prepared.query.page, result.total
        exact = None if result.is_estimated else total
        pages: dict[str, str] = {}
        if self.is_readable() and page.family == "cursor":
            first, last = cursors(prepared, result)
            pages = cursor_links(path, prepared.queries, page, first, last, has_more=result.has_more)
        elif self.is_readable():
            pages = page_links(path, prepared.queries, page, total=exact, has_next=result.has_more)
        counted = Meta(
            message=None if meta is None else meta.message,
            count=len(result.rows[0]),
            total=total,
            totalPages=None if total is None else page_count(total, page.size),
            totalEstimated=result.is_estimated,
        )
        return prepared.compiled.encoder.encode(result.rows, pages | links, counted)

    def is_readable(self) -> bool:
        """Whether a GET of the path has an answer, and so a link to it a meaning."""
        return "GET" in self.allowed()

    def self_path(self) -> str:
        assert self.route is not None
        return self.engine.base_url + self.route.path
