"""Answers /{collection}: list and create. Each method calls the stages in their order."""

from __future__ import annotations

from querybuild.changes import check_method
from querybuild.errors import Errors
from server.engine import ReadShape
from server.handlers.writing import WritingHandler


class CollectionHandler(WritingHandler):
    """Lists a collection and creates resources in it."""

    async def get(self) -> None:
        await self.answer_read(ReadShape("collection", self.resource, accepts=self._method.accepts))

    async def post(self) -> None:
        check_method(self.resource, "create")
        errors = Errors()
        await self.answer_create(self.resource, self.decode_resource("create", errors), errors)
