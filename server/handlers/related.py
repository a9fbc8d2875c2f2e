"""Answers /{collection}/{id}/{relationship}: related resources. POST creates a resource in a to-many. PATCH and DELETE
write the resource of a to-one."""

from __future__ import annotations

from typing import Any

import msgspec

from querybuild.changes import check_method
from querybuild.errors import Errors, raise_all
from querybuild.query import Change, Owner
from querybuild.resource import Resource
from server.engine import PreparedWrite, ReadShape
from server.execution.answers import Nothing
from server.handlers.resource import DELETED
from server.handlers.writing import WritingHandler


class RelatedHandler(WritingHandler):
    """Reads and writes related resources."""

    @property
    def target(self) -> Resource:
        """The resource at the other end of the relationship."""
        return self.engine.catalog.target(self.relationship)

    async def get(self) -> None:
        shape = ReadShape("related", self.resource, self.relationship, accepts=self._method.accepts)
        await self.answer_read(shape, self.path_id(self.resource))

    async def post(self) -> None:
        assert self.route is not None
        check_method(self.target, "create")
        self.path_id(self.resource)
        errors = Errors()
        change = self.decode_resource("create", errors)
        if change is not None:
            owner = Owner(self.resource.type, self.route.id, self.relationship.name)
            change = msgspec.structs.replace(change, owner=owner)
        await self.answer_create(self.target, change, errors)

    async def patch(self) -> None:
        check_method(self.target, "update")
        path_id = self.path_id(self.resource)
        errors = Errors()
        change = self.decode_resource("update", errors)
        self.stage("plan")
        read = self.prepare_answer(self.answer_shape(self.target, change), errors)
        raise_all(errors)
        assert change is not None
        assert read is not None
        write = self._related_write(path_id, change)
        self.stage("execute")
        _, result = await self.writer.run([write], self.read_back(write, read))
        self.stage("encode")
        await self.finish_written(self.document(read, result, {}))

    async def delete(self) -> None:
        check_method(self.target, "delete")
        path_id = self.path_id(self.resource)
        self.check_parameters()
        write = self._related_write(path_id, Change(kind="delete", type=None))
        self.stage("execute")
        await self.writer.run([write], Nothing())
        self.finish_document(DELETED)

    def _related_write(self, path_id: Any, change: Change) -> PreparedWrite:
        return self.engine.prepare_related_write(self.resource, self.relationship, path_id, change, self.context)
