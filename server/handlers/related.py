"""/{collection}/{id}/{relationship}: the resources at the other end."""

from __future__ import annotations

from server.engine import ReadShape
from server.handlers.reading import ReadingHandler


class RelatedHandler(ReadingHandler):
    methods = ("GET",)

    def allowed(self) -> tuple[str, ...]:
        return self.methods if "read" in self.relationship.methods else ()

    async def get(self) -> None:
        await self.answer_read(ReadShape("related", self.resource, self.relationship), self.path_id(self.resource))
