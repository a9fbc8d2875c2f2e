"""/{collection}/{id}/relationships/{relationship}: linkage."""

from __future__ import annotations

from serializers.links import quote_segment
from server.engine import ReadShape
from server.handlers.reading import ReadingHandler


class RelationshipHandler(ReadingHandler):
    methods = ("GET",)

    def allowed(self) -> tuple[str, ...]:
        return self.methods if "read" in self.relationship.methods else ()

    async def get(self) -> None:
        path_id = self.path_id(self.resource)
        assert self.route is not None
        owner = f"{self.engine.base_url}{self.resource.path}/{quote_segment(self.route.id)}"
        related = {"related": f"{owner}/{quote_segment(self.relationship.name)}"}
        await self.answer_read(ReadShape("linkage", self.resource, self.relationship), path_id, related)
