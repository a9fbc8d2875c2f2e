"""Decodes, prepares and answers writes of one resource or one relationship, for all routes that have them."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import ApiError, release_frames
from querybuild.planning.writes.linkage import written_relationships
from querybuild.query import Change, ChangeKind
from serializers.decode import decode_resource_document, with_id
from serializers.json_api import encode_identifier_document
from serializers.links import quote_segment, resource_path
from serializers.objects import MetaDocument
from server.execution.execute import ReadResult
from server.execution.writes.answers import Nothing, ReadBack
from server.execution.writes.reply import Reply
from server.handlers.auditing import AuditedHandler
from server.handlers.pipeline import Parse
from server.preparing.reads import PreparedRead, ReadShape
from server.preparing.writes import PreparedWrite, TypedWrite


def message_document(message: str) -> bytes:
    """Return a document with this message in its `meta`."""
    return msgspec.json.encode(MetaDocument({"message": message}))


DELETED = message_document("Object successfully deleted")


class AnsweredWrite(msgspec.Struct, frozen=True, eq=False):
    """A write, and the read that answers it."""

    write: PreparedWrite
    read: PreparedRead


class WritingHandler(AuditedHandler):
    """The base of handlers that write."""

    def asked(self, kind: ChangeKind, id_text: str | None = None) -> Change:
        """Return the change that the request asks for, without what its body says. id_text: that of the path, if it is
        the written resource's."""
        return Change(kind=kind, type=None, id=id_text)

    def decode_resource(self, asked: Change, errors: list[ApiError]) -> Change | None:
        """Decode the body as a resource. Appends to errors."""
        return self._decode(self.take_body(), asked, errors)

    def decode_write(self, asked: Change, errors: list[ApiError]) -> Change | TypedWrite | None:
        """Decode the body as the resource of the route. Appends to errors."""
        body = self.take_body()
        typed = self.engine.writes.prepare_typed(self.resource, asked, body, self.context)
        return self._decode(body, asked, errors) if typed is None else typed

    def _decode(self, body: bytes, asked: Change, errors: list[ApiError]) -> Change | None:
        change = decode_resource_document(body, asked, errors, self.engine.limits)
        return change if change is None or asked.id is None else with_id(change, asked.id, errors)

    def plan_write(self, resource: Resource, change: Change | None, errors: list[ApiError]) -> PreparedWrite | None:
        """Return the write of a change, or None if it could not be decoded. Appends to errors."""
        return None if change is None else self.engine.writes.prepare(resource, change, self.context, errors)

    def with_read(self, write: PreparedWrite | None, shape: ReadShape, errors: list[ApiError]) -> AnsweredWrite | None:
        """Return the write with the read that answers it, or None if one of them has errors. Appends to errors."""
        try:
            read = self.engine.reads.prepare(shape, self.request.query, self.context)
        except ApiError as error:
            release_frames(error)
            errors.append(error)
            return None
        return None if write is None else AnsweredWrite(write, read)

    def shape_of(self, resource: Resource, change: Change | None) -> ReadShape:
        """Return the shape of the read that answers a write of this resource."""
        written = () if change is None else written_relationships(change, resource, self.catalog)
        return ReadShape("resource", resource, written=written, accepts=self._method.accepts)

    async def execute_write(self, answered: AnsweredWrite) -> tuple[Any, ReadResult | None]:
        """Write, and read the answer. Returns the id of the row, and the rows of the document. None: the row may not be
        read."""
        answer = ReadBack(answered.write, answered.read, self.engine, self.context)
        return await self.writer.run([answered.write], answer)

    async def execute_unread(self, write: PreparedWrite) -> None:
        """Write what the answer shows nothing of."""
        await self.writer.run([write], Nothing())

    def reply_written(self, answered: AnsweredWrite, written: tuple[Any, ReadResult | None]) -> Reply:
        """Return the answer with the resource that was written, or with nothing if it may not be read."""
        result = written[1]
        return Reply(204) if result is None else Reply(200, self.document(answered.read, result, {}))

    def reply_deleted(self, *_: object) -> Reply:
        """Return the answer that a resource was deleted."""
        return Reply(200, DELETED)

    async def answer_create(self, resource: Resource, parse: Parse[Change | TypedWrite | None]) -> None:
        """Create a resource and answer with it."""
        await self.answer_write(parse, partial(self.plan_read_back, resource), self.execute_write, self._reply_created)

    def plan_read_back(
        self, resource: Resource, change: Change | TypedWrite | None, errors: list[ApiError]
    ) -> AnsweredWrite | None:
        """Return the write of a resource, with the read of this resource that answers it. Appends to errors."""
        if isinstance(change, TypedWrite):
            shape = ReadShape("resource", resource, written=change.written, accepts=self._method.accepts)
            return self.with_read(change.write, shape, errors)
        write = self.plan_write(resource, change, errors)
        return self.with_read(write, self.shape_of(resource, change), errors)

    def _reply_created(self, answered: AnsweredWrite, written: tuple[Any, ReadResult | None]) -> Reply:
        row_id, result = written
        resource = answered.write.resource
        if result is None:
            return Reply(201, encode_identifier_document(resource, row_id))
        location = resource_path(self.engine.base_url, resource, quote_segment(str(row_id)))
        has_path = "detail" in resource.methods
        links = {"self": location} if has_path else {}
        document = self.encoder_of(answered.read).document(result.rows, links, None, result.received_bytes)
        return Reply(201, document, location if has_path else "")
