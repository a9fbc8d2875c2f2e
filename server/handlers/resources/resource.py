"""Answers /{collection}: list and create; and /{collection}/{id}: detail, update and delete."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from querybuild.errors import ApiError
from querybuild.parse import parse_on_conflict, split_pairs
from querybuild.planning.context import check_method
from querybuild.query import Change
from server.handlers.received_file import ReceivedFile
from server.handlers.resources.importing import answer_import, import_type
from server.handlers.writing import WritingHandler
from server.http.negotiation import ANY, MediaType
from server.preparing.reads import ReadShape
from server.preparing.writes import TypedWrite


class CollectionHandler(WritingHandler):
    """Lists a collection and creates resources in it: one of a document, or many of a file. imported: the media type of
    the file."""

    imported: MediaType | None = None

    def initialize(self, **context: Any) -> None:  # type: ignore[override]  # it passes them on
        super().initialize(**context)
        if self.request.method == "POST" and (imported := import_type(self.request.headers)) is not None:
            self.imported = imported
            most, bodies = self.engine.settings.max_import_bytes, self._running.bodies
            self.received = ReceivedFile(self.request, self.request_id, most, bodies)
            # A file has no version of its own, and is not a document.
            self.method = msgspec.structs.replace(self.method, body=ANY, preconditions=frozenset())

    async def get(self) -> None:
        await self.answer_read(ReadShape("collection", self.resource, accepts=self.method.accepts))

    async def post(self) -> None:
        if self.imported is not None:
            await answer_import(self, self.imported)
            return
        check_method(self.resource, "create")
        await self.answer_create(self.resource, self._parse_create)

    def _parse_create(self, errors: list[ApiError]) -> Change | TypedWrite | None:
        asked = self.asked("create")
        if self.request.query:
            on_conflict = parse_on_conflict(split_pairs(self.request.query, []), errors)
            asked = msgspec.structs.replace(asked, on_conflict=on_conflict)
        return self.decode_write(asked, errors)


class ResourceHandler(WritingHandler):
    """Reads, updates and deletes one resource."""

    async def get(self) -> None:
        await self.answer_read(ReadShape("resource", self.resource, accepts=self.method.accepts))

    async def patch(self) -> None:
        check_method(self.resource, "update")
        plan = partial(self.plan_read_back, self.resource)
        await self.answer_write(self._parse_update, plan, self.execute_write, self.reply_written, self.form_of_written)

    async def delete(self) -> None:
        check_method(self.resource, "delete")
        plan = partial(self.plan_write, self.resource)
        await self.answer_write(self._parse_delete, plan, self.execute_unread, self.reply_deleted, self.form_of_deleted)

    def _parse_update(self, errors: list[ApiError]) -> Change | TypedWrite | None:
        assert self.route is not None
        self.path_id(self.resource)
        return self.decode_write(self.asked("update", self.route.id), errors)

    def _parse_delete(self, _: list[ApiError]) -> Change:
        assert self.route is not None
        self.path_id(self.resource)
        return self.asked("delete", self.route.id)
