"""Answers /{collection}/{id}/relationships/{relationship}: linkage. A write is an update of the resource that has the
relationship."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from querybuild.errors import ApiError
from querybuild.planning.context import refused_action
from querybuild.query import Change, LinkMode
from serializers.decode import decode_linkage_document
from serializers.links import quote_segment, related_path, resource_path
from serializers.objects import Meta
from server.execution.execute import ReadResult
from server.execution.writes.answers import LinkageVersion
from server.execution.writes.reply import Reply
from server.handlers.writing import AnsweredWrite, WritingHandler, message_document
from server.preparing.reads import ReadShape
from server.preparing.writes import PreparedWrite

CREATED = message_document("Relationship successfully created")
UPDATED = "Relationship successfully updated"
REMOVED = message_document(UPDATED)


class RelationshipHandler(WritingHandler):
    """Reads and writes linkage."""

    async def get(self) -> None:
        await self.answer_read(self._shape, self._related_link)

    async def post(self) -> None:
        await self._change_linkage("add", CREATED)

    async def delete(self) -> None:
        await self._change_linkage("remove", REMOVED)

    async def patch(self) -> None:
        parse = partial(self._parse, "replace")
        await self.answer_write(parse, self._plan_replace, self.execute_write, self._reply_replaced)

    async def _change_linkage(self, mode: LinkMode, answer: bytes) -> None:
        parse, plan = partial(self._parse, mode), partial(self.plan_write, self.resource)

        def reply(_: PreparedWrite, version: str | None) -> Reply:
            return Reply(200, answer, has_tag=version is not None, version=version)

        await self.answer_write(parse, plan, self._execute_change, reply)

    async def _execute_change(self, write: PreparedWrite) -> str | None:
        """Write linkage, and return its version. None: it has none, or the principal may not read it."""
        if not self.is_readable() or self._is_unreadable():
            await self.execute_unread(write)
            return None
        linkage = self.engine.reads.prepare_linkage(self._shape, self.context)
        return await self.writer.run([write], LinkageVersion(write, linkage, self.context))

    def _is_unreadable(self) -> bool:
        """Return whether no rule lets the principal read both ends of the relationship."""
        ends = (self.resource, self.catalog.target(self.relationship))
        return any(refused_action(resource, "read", self.context) is not None for resource in ends)

    def _parse(self, mode: LinkMode, errors: list[ApiError]) -> Change | None:
        assert self.route is not None
        self.path_id(self.resource)
        linkage = decode_linkage_document(self.received.take(), errors, self.engine.limits, mode=mode)
        if linkage is None:
            return None
        asked, relationships = self.asked("update", self.route.id), {self.relationship.name: linkage}
        return msgspec.structs.replace(asked, relationships=relationships, pointer=linkage.pointer)

    def _plan_replace(self, change: Change | None, errors: list[ApiError]) -> AnsweredWrite | None:
        return self.with_read(self.plan_write(self.resource, change, errors), self._shape, errors)

    def _reply_replaced(self, answered: AnsweredWrite, written: tuple[Any, ReadResult | None]) -> Reply:
        return self.reply_shown(answered.read, written[1], self._related_link(), Meta(UPDATED))

    @property
    def _shape(self) -> ReadShape:
        return ReadShape("linkage", self.resource, self.relationship, accepts=self.method.accepts)

    def _related_link(self) -> dict[str, str]:
        assert self.route is not None
        if not self.is_readable():
            return {}
        own = resource_path(self.engine.base_url, self.resource, quote_segment(self.route.id))
        return {"related": related_path(own, self.relationship)}
