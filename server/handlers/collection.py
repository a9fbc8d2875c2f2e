"""Answers /{collection}: list and create."""

from __future__ import annotations

from functools import partial

from querybuild.planning.context import check_method
from server.engine import ReadShape
from server.handlers.writing import WritingHandler


class CollectionHandler(WritingHandler):
    """Lists a collection and creates resources in it."""

    async def get(self) -> None:
        await self.answer_read(ReadShape("collection", self.resource, accepts=self._method.accepts))

    async def post(self) -> None:
        check_method(self.resource, "create")
        await self.answer_create(self.resource, partial(self.decode_resource, "create"))
