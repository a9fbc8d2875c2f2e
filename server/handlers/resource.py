"""Answers /{collection}/{id}: detail, update and delete. Each method calls the stages in their order."""

from __future__ import annotations

from querybuild.changes import check_method
from querybuild.errors import Errors
from querybuild.query import Change
from serializers.decode import with_id
from server.engine import ReadShape
from server.execution.answers import Nothing
from server.handlers.writing import WritingHandler, message_document

DELETED = message_document("Object successfully deleted")


class ResourceHandler(WritingHandler):
    """Reads, updates and deletes one resource."""

    async def get(self) -> None:
        resource = self.resource
        shape = ReadShape("resource", resource, accepts=self._method.accepts)
        await self.answer_read(shape, self.path_id(resource))

    async def patch(self) -> None:
        assert self.route is not None
        resource = self.resource
        check_method(resource, "update")
        self.path_id(resource)
        errors = Errors()
        change = self.decode_resource("update", errors)
        if change is not None:
            change = with_id(change, self.route.id, errors)
        write, read = self.prepare_write(resource, change, self.answer_shape(resource, change), errors)
        self.stage("execute")
        _, result = await self.writer.run([write], self.read_back(write, read))
        self.stage("encode")
        await self.finish_written(self.document(read, result, {}))

    async def delete(self) -> None:
        assert self.route is not None
        check_method(self.resource, "delete")
        self.stage("plan")
        self.check_parameters()
        self.path_id(self.resource)
        errors = Errors()
        write = self.engine.prepare_write(
            self.resource, Change(kind="delete", type=None, id=self.route.id), self.context, errors
        )
        self.stage("execute")
        await self.writer.run([write], Nothing())
        self.finish_document(DELETED)
