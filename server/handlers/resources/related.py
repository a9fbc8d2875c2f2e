"""Answers /{collection}/{id}/{relationship}: related resources. POST creates a resource in a to-many. PATCH and DELETE
write the resource of a to-one."""

from __future__ import annotations

from typing import Any

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError
from querybuild.planning.context import check_method
from querybuild.query import Change, Owner
from serializers.tags import version_of_related
from server.execution.execute import ReadResult
from server.execution.writes.reply import Reply
from server.handlers.writing import AnsweredWrite, WritingHandler
from server.preparing.reads import ReadShape
from server.preparing.writes import PreparedWrite


class RelatedHandler(WritingHandler):
    """Reads and writes related resources."""

    @property
    def target(self) -> Resource:
        """The resource at the other end of the relationship."""
        return self.catalog.target(self.relationship)

    async def get(self) -> None:
        await self.answer_read(ReadShape("related", self.resource, self.relationship, accepts=self.method.accepts))

    async def post(self) -> None:
        check_method(self.target, "create")
        await self.answer_create(self.target, self._parse_create)

    async def patch(self) -> None:
        check_method(self.target, "update")
        await self.answer_write(self._parse_update, self._plan_update, self.execute_write, self._reply_updated)

    async def delete(self) -> None:
        check_method(self.target, "delete")
        await self.answer_write(self._parse_delete, self._plan_related, self.execute_unread, self.reply_deleted)

    def _reply_updated(self, answered: AnsweredWrite, written: tuple[Any, ReadResult | None]) -> Reply:
        reply = self.reply_written(answered, written)
        if reply.version is None:
            return reply
        version = version_of_related(written[0], reply.version)
        return msgspec.structs.replace(reply, version=version)

    def _parse_create(self, errors: list[ApiError]) -> Change | None:
        assert self.route is not None
        self.path_id(self.resource)
        owner = Owner(self.resource.type, self.route.id, self.relationship.name)
        return self.decode_resource(msgspec.structs.replace(self.asked("create"), owner=owner), errors)

    def _parse_update(self, errors: list[ApiError]) -> Change | None:
        self.path_id(self.resource)
        return self.decode_resource(self.asked("update"), errors)

    def _parse_delete(self, _: list[ApiError]) -> Change:
        self.path_id(self.resource)
        return self.asked("delete")

    def _plan_update(self, change: Change | None, errors: list[ApiError]) -> AnsweredWrite | None:
        write = None if change is None else self._plan_related(change, errors)
        return self.with_read(write, self.shape_of(self.target, change), errors)

    def _plan_related(self, change: Change, _: list[ApiError]) -> PreparedWrite:
        """Return the write of the related resource. Its transaction finds the id and plans it."""
        path_id = self.path_id(self.resource)
        return self.engine.writes.prepare_related(self.resource, self.relationship, path_id, change, self.context)
