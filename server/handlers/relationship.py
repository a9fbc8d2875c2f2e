"""Answers /{collection}/{id}/relationships/{relationship}: linkage. A write is an update of the resource that has the
relationship."""

from __future__ import annotations

from querybuild.errors import ApiError, Errors, raise_all
from querybuild.query import Change, LinkMode
from serializers.links import quote_segment, related_path, resource_path
from serializers.objects import Meta
from server.engine import ReadShape
from server.execution.answers import Nothing
from server.handlers.writing import WritingHandler, message_document

CREATED = message_document("Relationship successfully created")
UPDATED = "Relationship successfully updated"
REMOVED = message_document(UPDATED)


class RelationshipHandler(WritingHandler):
    """Reads and writes linkage."""

    async def get(self) -> None:
        await self.answer_read(self._shape, self.path_id(self.resource), self._related_link())

    async def post(self) -> None:
        await self._change_linkage("add", CREATED)

    async def delete(self) -> None:
        await self._change_linkage("remove", REMOVED)

    async def patch(self) -> None:
        self.path_id(self.resource)
        errors = Errors()
        write, read = self.prepare_write(self.resource, self._decoded("replace", errors), self._shape, errors)
        self.stage("execute")
        _, result = await self.writer.run([write], self.read_back(write, read))
        self.stage("encode")
        await self.finish_written(self.document(read, result, self._related_link(), Meta(UPDATED)))

    async def _change_linkage(self, mode: LinkMode, answer: bytes) -> None:
        self.path_id(self.resource)
        errors = Errors()
        self.check_parameters()
        change = self._decoded(mode, errors)
        self.stage("plan")
        write = None if change is None else self.engine.prepare_write(self.resource, change, self.context, errors)
        raise_all(errors)
        assert write is not None
        self.stage("execute")
        await self.writer.run([write], Nothing())
        self.finish_document(answer)

    def _decoded(self, mode: LinkMode, errors: list[ApiError]) -> Change | None:
        assert self.route is not None
        linkage = self.decode_linkage(mode, errors)
        if linkage is None:
            return None
        relationships = {self.relationship.name: linkage}
        return Change(kind="update", type=None, id=self.route.id, relationships=relationships, pointer=linkage.pointer)

    @property
    def _shape(self) -> ReadShape:
        return ReadShape("linkage", self.resource, self.relationship, accepts=self._method.accepts)

    def _related_link(self) -> dict[str, str]:
        assert self.route is not None
        if not self.is_readable():
            return {}
        own = resource_path(self.engine.base_url, self.resource, quote_segment(self.route.id))
        return {"related": related_path(own, self.relationship)}
